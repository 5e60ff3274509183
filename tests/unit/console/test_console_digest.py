"""Rows and checks of one view, and how values become text."""

from dataclasses import replace
from typing import Any

import pytest

from ottla.console.digest import NO_FIGURES, Digest, Figures
from ottla.console.kafka.model import (
    BrokerView,
    ClusterView,
    GroupDescription,
    GroupView,
    LogDirectory,
    MemberView,
    Metadata,
    PartitionView,
    TopicView,
    TransactionView,
)
from ottla.console.pipelines import pipeline_row
from ottla.console.sampler import consumed_rates, partition_rates, topic_rates
from ottla.console.web.rendering import byte_size, compact, duration, iso, number, per_second


def view(
    *,
    isr: tuple[int, ...] = (1, 2),
    leader: int = 1,
    directory: LogDirectory | None = None,
    **more: Any,
) -> ClusterView:
    partitions = (
        PartitionView(0, leader, 0, (1, 2), isr, ()),
        PartitionView(1, 2, 0, (2, 1), (2, 1), ()),
    )
    metadata = Metadata(
        "c",
        1,
        {n: BrokerView(n, "h", 9092, None) for n in (1, 2)},
        {
            "t": TopicView("t", "1", False, partitions),
            "__own": TopicView("__own", "2", False, partitions[1:]),
        },
    )
    return ClusterView(
        metadata,
        1.0,
        end_offsets={("t", 0): 100, ("t", 1): 50, ("__own", 1): 5},
        start_offsets={("t", 0): 10, ("t", 1): 0, ("__own", 1): 0},
        groups={
            "slow": GroupView("slow", "Stable", "classic", "consumer", 1),
            "ahead": GroupView("ahead", "Stable", "classic", "consumer", 2),
            "new": GroupView("new", "Empty", "classic", "", 2),
        },
        committed={"slow": {("t", 0): 20, ("t", 1): 45}, "ahead": {("t", 0): 120}},
        sizes={("t", 0): 900, ("t", 1): 100},
        log_directories=(directory or LogDirectory(1, "/d", None, 10, 5, 1000, 2),),
        **more,
    )


FIGURES = Figures(
    {("t", 0): 3.0, ("t", 1): 4.0},
    {"t": 7.0, "__own": 0.0},
    {("slow", "t"): 2.5, ("slow", "__own"): 9.0},
    {"slow": 850.0},
)


def digest(found: ClusterView, figures: Figures = FIGURES) -> Digest:
    return Digest(found, figures)


def test_topics_add_up_their_partitions() -> None:
    row = digest(view()).topics["t"]
    assert (row.partition_count, row.record_count, row.size_bytes) == (2, 140, 1000)
    assert (row.group_count, row.lag_max, row.under_replicated_count) == (2, 85, 0)
    assert digest(view()).topics["__own"].is_internal


def test_lag_is_never_negative_and_unknown_without_a_commit() -> None:
    groups = digest(view()).groups
    assert (groups["slow"].lag, groups["ahead"].lag, groups["new"].lag) == (85, 0, None)
    assert groups["slow"].behind_s == 850
    assert [row.group_id for row in digest(view()).slowest_groups] == ["slow", "ahead"]
    assert [row.group_id for row in digest(view()).groups_of_topic("t")] == ["slow", "ahead"]


def test_a_topics_consumers_show_what_they_read_of_it_alone() -> None:
    assert [row.rate for row in digest(view()).groups_of_topic("t")] == [2.5, None]


def test_what_is_not_known_now_is_not_shown_as_nothing() -> None:
    found = digest(view(), NO_FIGURES)
    assert found.topics["t"].rate is None
    assert found.groups["slow"].rate is None
    assert [row.rate for row in found.brokers] == [None, None]


def test_the_marker_of_a_sink_is_no_lag() -> None:
    found = digest(view(markers={"new": 42}))
    assert (found.groups["new"].lag, found.groups["new"].sink_batch) == (None, 42)
    assert "new" not in [row.group_id for row in found.slowest_groups]


def test_brokers_carry_what_they_lead() -> None:
    one, two = digest(view(isr=(1,))).brokers
    assert (one.is_controller, one.leader_count, one.rate, one.size_bytes) == (True, 1, 3.0, 1000)
    assert (two.leader_count, two.replica_count, two.not_in_isr_count) == (2, 3, 1)


def test_partitions_of_a_group_are_those_committed_or_assigned_the_slowest_first() -> None:
    member = MemberView("m", None, "client", "h", (("t", 1), ("u", 0)), None, None)
    about = GroupDescription("slow", "Stable", "classic", "range", None, 1, (member,))
    rows = digest(view()).partitions_of_group("slow", about)
    assert [(r.topic, r.partition, r.lag, r.client) for r in rows] == [
        ("t", 0, 80, ""),
        ("t", 1, 5, "client"),
        ("u", 0, None, "client"),
    ]


def titles(found: ClusterView, figures: Figures = NO_FIGURES, **more: Any) -> list[tuple[str, str]]:
    return [(one.severity, one.title) for one in Digest(found, figures, **more).checks]


def test_all_is_well_where_nothing_is_not() -> None:
    assert titles(view()) == []


def test_what_is_bad_is_named_first() -> None:
    offline = LogDirectory(1, "/d", "KAFKA_STORAGE_ERROR", 10, 5, 1000, 2)
    assert titles(view(leader=-1, isr=(1,), directory=offline)) == [
        ("bad", "1 partition without a leader"),
        ("bad", "Log directory /d of broker 1 is offline"),
        ("warn", "1 under-replicated partition"),
    ]


def test_a_group_that_is_behind_or_rebalances_is_told() -> None:
    assert titles(view(), FIGURES) == [("warn", "1 group more than five minutes behind")]
    found = view()
    rebalancing = GroupView("new", "PreparingRebalance", "classic", "consumer", 2)
    found = replace(found, groups={**found.groups, "new": rebalancing})
    assert titles(found) == [("warn", "1 group rebalancing")]


@pytest.mark.parametrize(
    ("usable", "severity"), [(16, None), (15, "warn"), (6, "warn"), (5, "bad"), (-1, None)]
)
def test_a_volume_that_fills_is_told(usable: int, severity: str | None) -> None:
    found = titles(view(directory=LogDirectory(1, "/d", None, 100, usable, 1, 1)))
    assert [one for one, _ in found] == ([severity] if severity else [])


@pytest.mark.parametrize(("started_ms", "is_told"), [(100_000, False), (20_000, True), (-1, False)])
def test_a_transaction_open_beyond_its_timeout_is_told(started_ms: int, is_told: bool) -> None:
    one = TransactionView("x", 1, 0, "Ongoing", 60_000, started_ms, (), 1)
    found = titles(view(open_transactions=(one,)), now_ms=150_000)
    assert found == ([("bad", "1 transaction open beyond the timeout")] if is_told else [])


@pytest.mark.parametrize(
    ("state", "is_told"), [("running", False), ("stopped", False), ("dead", True), ("failed", True)]
)
def test_a_pipeline_that_does_not_run_though_it_should_is_told(state: str, is_told: bool) -> None:
    found = titles(view(), pipelines=[pipeline_row({"state": state}, "p")])
    assert found == ([("bad", f"Pipeline p is {state}")] if is_told else [])


def test_a_broker_that_keeps_silent_is_told() -> None:
    told = view(group_troubles={2: "COORDINATOR_LOAD_IN_PROGRESS"})
    assert titles(told) == [("warn", "Broker 2 does not tell its groups")]


def test_rates_are_by_partition_and_topic() -> None:
    before, after = view(), view()
    moved = {**after.end_offsets, ("t", 0): 120, ("t", 1): 40, ("t", 2): 9}
    after = ClusterView(after.metadata, 2.0, end_offsets=moved)
    rates = partition_rates(before, after, 2.0)
    assert rates == {("t", 0): 10.0, ("t", 1): 0.0, ("t", 2): 0.0, ("__own", 1): 0.0}
    assert topic_rates(after.metadata, rates) == {"t": 10.0, "__own": 0.0}
    assert partition_rates(before, after, 0.0) == {}


def test_what_groups_consume_is_by_topic_and_a_reset_is_no_rate() -> None:
    before = {"g": {("t", 0): 10, ("t", 1): 90, ("u", 0): 5}}
    after = {"g": {("t", 0): 40, ("t", 1): 0, ("u", 0): 15, ("v", 0): 7}}
    rates = consumed_rates([(0.0, before), (5.0, {"g": {("v", 0): 2}}), (10.0, after)])
    # What was committed first within the time counts from there.
    assert rates == {("g", "t"): 3.0, ("g", "u"): 1.0, ("g", "v"): 1.0}
    assert consumed_rates([(10.0, after)]) == {}


def test_values_as_text() -> None:
    assert number(9_007_199_254_740_993) == "9,007,199,254,740,993"
    assert number(None) == "–"
    assert [compact(n) for n in (0, 999, 1000, 12_345, 999_600)] == [
        "0",
        "999",
        "1.0k",
        "12.3k",
        "1.0M",
    ]
    assert [byte_size(n) for n in (0, 999, 1500, 10**12)] == ["0 B", "999 B", "1.5 kB", "1.0 TB"]
    assert [per_second(n) for n in (None, 0.0, 0.26, 1234.4, 123_456.0)] == [
        "–", "0/s", "0.3/s", "1,234/s", "123k/s",
    ]  # fmt: skip
    assert [duration(n) for n in (None, 0.2, 59, 60, 3_661, 90_000)] == [
        "–", "< 1s", "59s", "1m", "1h 1m", "1d 1h",
    ]  # fmt: skip
    assert iso(0) == "1970-01-01T00:00:00.000Z"
    assert iso(-1) == iso(2**63) == ""
