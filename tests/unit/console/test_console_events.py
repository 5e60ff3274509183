"""The time line: what two views of a cluster tell."""

from dataclasses import replace

import pytest

from ottla.console.events import LINES_PER_KIND, compare
from ottla.console.kafka.model import (
    BrokerView,
    ClusterView,
    GroupDescription,
    GroupView,
    MemberView,
    Metadata,
    PartitionView,
    TopicView,
)


def topic(name: str, *partitions: PartitionView, topic_id: str = "1") -> TopicView:
    return TopicView(name, topic_id, False, partitions)


def partition(
    number: int = 0, leader: int = 1, epoch: int = 0, isr: tuple[int, ...] = (1, 2)
) -> PartitionView:
    return PartitionView(number, leader, epoch, (1, 2), isr, ())


def view(
    *topics: TopicView, brokers: tuple[int, ...] = (1, 2), controller: int = 1, **groups: str
) -> ClusterView:
    metadata = Metadata(
        "c",
        controller,
        {b: BrokerView(b, "h", 9092, None) for b in brokers},
        {t.name: t for t in topics},
    )
    named = {g: GroupView(g, state, "classic", "consumer", 1) for g, state in groups.items()}
    return ClusterView(metadata, 1.0, groups=named, groups_at=1.0)


def texts(before: ClusterView, after: ClusterView) -> list[tuple[str, str]]:
    return [(event.severity, event.text) for event in compare(before, after, 5.0)]


def test_the_first_view_is_no_event() -> None:
    assert compare(ClusterView(), view(topic("t", partition())), 1.0) == []


def test_topics_come_grow_and_go() -> None:
    before = view(topic("gone", partition()), topic("grown", partition()))
    after = view(topic("grown", partition(), partition(1)), topic("new", partition()))
    assert texts(before, after) == [
        ("info", "Topic gone was deleted"),
        ("good", "Topic new was created with 1 partition"),
        ("info", "Topic grown grew from 1 to 2 partitions"),
    ]


def test_a_topic_created_anew_is_not_an_election() -> None:
    after = view(topic("t", partition(epoch=0, leader=2), topic_id="2"))
    assert texts(view(topic("t", partition(epoch=4))), after) == [
        ("info", "Topic t was deleted and created anew")
    ]


def test_elections_and_replicas() -> None:
    before = view(topic("t", partition(0), partition(1), partition(2, isr=(1,))))
    after = view(
        topic("t", partition(0, 2, 1), partition(1, -1, 1, (1,)), partition(2, isr=(2, 1)))
    )
    assert texts(before, after) == [
        ("info", "t-0 elected broker 2 (epoch 1)"),
        ("bad", "t-1 lost its leader"),
        ("warn", "ISR of t-1 shrank to {1}"),
        ("good", "ISR of t-2 grew to {1, 2}"),
    ]


def test_brokers_and_controller() -> None:
    assert texts(view(brokers=(1, 2)), view(brokers=(2, 3), controller=2)) == [
        ("bad", "Broker 1 left the cluster"),
        ("good", "Broker 3 joined the cluster"),
        ("info", "Controller moved from 1 to 2"),
    ]


def test_groups_rebalance_and_settle() -> None:
    before = view(a="Stable", b="PreparingRebalance", c="Stable", d="Empty")
    after = view(a="PreparingRebalance", b="Stable", c="Empty", e="Empty")
    assert texts(before, after) == [
        ("warn", "Group a is rebalancing"),
        ("good", "Group b is stable"),
        ("info", "Group c has no members left"),
        ("good", "Group e appeared"),
        ("info", "Group d is gone"),
    ]


def test_many_changes_of_one_kind_become_one_line() -> None:
    after = view(*(topic(f"t{n:03}", partition()) for n in range(100)))
    found = texts(view(), after)
    assert len(found) == LINES_PER_KIND + 1
    # The time line is read from its end: the sum stands below what it sums up.
    assert found[0] == ("info", f"and {100 - LINES_PER_KIND} more like it")


def described(epoch: int | None, *members: tuple[str, int]) -> GroupDescription:
    views = tuple(
        MemberView(name, None, "c", "h", (("t", partition),), None, None)
        for name, partition in members
    )
    return GroupDescription("a", "Stable", "consumer", "", epoch, 1, views)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (described(3, ("m", 0)), described(5, ("m", 0), ("n", 1)), ["2 members"]),
        (described(3, ("m", 0)), described(3, ("m", 1)), []),
        (described(None, ("m", 0)), described(None, ("n", 0)), ["1 member"]),
        (described(None, ("m", 0)), described(None, ("m", 0)), []),
    ],
)
def test_a_rebalance_that_nobody_saw_is_known_by_the_generation_it_left(
    before: GroupDescription, after: GroupDescription, told: list[str]
) -> None:
    one = replace(view(a="Stable"), descriptions={"a": before})
    other = replace(view(a="Stable"), descriptions={"a": after})
    assert texts(one, other) == [("info", f"Group a rebalanced: {what}") for what in told]


def test_groups_that_were_not_looked_at_are_not_compared() -> None:
    before = replace(view(), groups_at=0.0)
    assert texts(before, view(a="Stable")) == []


def test_the_marker_of_a_sink_comes_and_goes_without_a_word() -> None:
    marked = replace(view(sink="Empty"), markers={"sink": 4})
    assert texts(view(), marked) == []
    assert texts(marked, view()) == []
