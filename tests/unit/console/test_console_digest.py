"""Rows and checks of one view, and how values become text."""

import pytest

from ottla.console.digest import Digest
from ottla.console.history import History
from ottla.console.kafka.model import (
    BrokerView,
    ClusterView,
    GroupView,
    LogDirectory,
    Metadata,
    PartitionView,
    TopicView,
)
from ottla.console.sampler import partition_rates, topic_rates
from ottla.console.web.rendering import byte_size, compact, duration, iso, number, per_second


def view(
    *, isr: tuple[int, ...] = (1, 2), leader: int = 1, error: str | None = None
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
            "ahead": GroupView("ahead", "PreparingRebalance", "classic", "consumer", 2),
            "new": GroupView("new", "Empty", "classic", "", 2),
        },
        committed={"slow": {("t", 0): 20, ("t", 1): 45}, "ahead": {("t", 0): 120}},
        sizes={("t", 0): 900, ("t", 1): 100},
        log_directories=(LogDirectory(1, "/d", error, 10, 5, 1000, 2),),
    )


def digest(found: ClusterView, rate: float = 0.1) -> Digest:
    rates = History()
    rates.sample(1.0, {"t": rate, "__own": 0.0})
    return Digest(found, rates, {("t", 0): 3.0, ("t", 1): 4.0}, {"slow": 2.5})


def test_topics_add_up_their_partitions() -> None:
    row = digest(view()).topics["t"]
    assert (row.partition_count, row.record_count, row.size_bytes) == (2, 140, 1000)
    assert (row.group_count, row.lag_max, row.under_replicated_count) == (2, 85, 0)
    assert digest(view()).topics["__own"].is_internal


def test_lag_is_never_negative_and_unknown_without_a_commit() -> None:
    groups = digest(view()).groups
    assert (groups["slow"].lag, groups["ahead"].lag, groups["new"].lag) == (85, 0, None)
    assert groups["slow"].behind_s == pytest.approx(850)
    assert [row.group_id for row in digest(view()).slowest_groups] == ["slow", "ahead"]
    assert [row.group_id for row in digest(view()).groups_of_topic("t")] == ["slow", "ahead"]


def test_brokers_carry_what_they_lead() -> None:
    one, two = digest(view(isr=(1,))).brokers
    assert (one.is_controller, one.leader_count, one.rate, one.size_bytes) == (True, 1, 3.0, 1000)
    assert (two.leader_count, two.replica_count, two.not_in_isr_count) == (2, 3, 1)


def test_checks_name_what_is_not_well_and_nothing_else() -> None:
    def titles(found: ClusterView, rate: float = 100.0) -> list[tuple[str, str]]:
        return [(check.severity, check.title) for check in digest(found, rate).checks]

    rebalancing = ("warn", "1 group rebalancing")
    assert titles(view()) == [rebalancing]
    assert titles(view(), 0.1) == [
        ("warn", "1 group more than five minutes behind"),
        rebalancing,
    ]
    assert titles(view(leader=-1, isr=(1,), error="KAFKA_STORAGE_ERROR")) == [
        ("bad", "1 partition without a leader"),
        ("warn", "1 under-replicated partition"),
        ("bad", "Log directory /d of broker 1 is offline"),
        rebalancing,
    ]


def test_rates_are_by_partition_and_topic() -> None:
    before, after = view(), view()
    moved = {**after.end_offsets, ("t", 0): 120, ("t", 1): 40, ("t", 2): 9}
    after = ClusterView(after.metadata, 2.0, end_offsets=moved)
    rates = partition_rates(before, after, 2.0)
    assert rates == {("t", 0): 10.0, ("t", 1): 0.0, ("t", 2): 0.0, ("__own", 1): 0.0}
    assert topic_rates(after.metadata, rates) == {"t": 10.0, "__own": 0.0}
    assert partition_rates(before, after, 0.0) == {}


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
