"""The assignors of the server against what anybody could check by hand."""

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordinators.group.consumer.assignors import (
    ASSIGNORS,
    MemberSpec,
    assign_range,
    assign_uniform,
)
from ottla.coordinators.group.consumer.member import Target

TOPICS = [UUID(int=number).bytes for number in range(4)]
A, B = TOPICS[:2]
Wishes = list[frozenset[bytes]]

sizes = st.fixed_dictionaries({topic: st.integers(0, 9) for topic in TOPICS})
wishes = st.lists(st.frozensets(st.sampled_from(TOPICS)), min_size=1, max_size=7)
alike = st.tuples(st.frozensets(st.sampled_from(TOPICS)), st.integers(1, 7)).map(
    lambda pair: [pair[0]] * pair[1]
)


def specs(wanted: Wishes, targets: dict[str, Target] | None = None) -> dict[str, MemberSpec]:
    known = targets or {}
    return {
        f"m{number}": MemberSpec(None, one, known.get(f"m{number}", {}))
        for number, one in enumerate(wanted)
    }


def loads(assigned: dict[str, Target]) -> list[int]:
    return [sum(map(len, target.values())) for target in assigned.values()]


def moved(before: dict[str, Target], after: dict[str, Target]) -> int:
    """How many partitions have another reader than before."""
    owners = {
        (topic, one): member
        for member, target in before.items()
        for topic, ones in target.items()
        for one in ones
    }
    return sum(
        owners.get((topic, one), member) != member
        for member, target in after.items()
        for topic, ones in target.items()
        for one in ones
    )


@pytest.mark.parametrize("name", ASSIGNORS)
@given(wishes | alike, sizes, wishes)
def test_each_partition_has_one_reader_that_wants_it(
    name: str, wanted: Wishes, partitions: dict[bytes, int], before: Wishes
) -> None:
    assign = ASSIGNORS[name]
    old = assign(specs(before), partitions)
    assigned = assign(specs(wanted, old), partitions)
    assert set(assigned) == set(specs(wanted))
    given_out = [
        (topic, one)
        for member, target in assigned.items()
        for topic, ones in target.items()
        for one in ones
        if topic in specs(wanted)[member].topic_ids
    ]
    expected = [
        (topic, one) for topic in frozenset().union(*wanted) for one in range(partitions[topic])
    ]
    assert sorted(given_out) == sorted(expected)
    assert sum(loads(assigned)) == len(expected)


@given(alike, sizes, alike)
def test_uniform_shares_are_equal_and_move_little(
    wanted: Wishes, partitions: dict[bytes, int], before: Wishes
) -> None:
    old = assign_uniform(specs(before), partitions)
    assigned = assign_uniform(specs(wanted, old), partitions)
    shares = loads(assigned)
    assert max(shares) - min(shares) <= 1
    assert assign_uniform(specs(wanted, assigned), partitions) == assigned, "it does not rest"
    if before[0] == wanted[0] and len(before) <= len(wanted):
        newcomers = sum(shares[len(before) :])
        assert moved(old, assigned) == newcomers, "more moved than newcomers need"


@settings(max_examples=60)
@given(wishes, sizes)
def test_uniform_leaves_no_step_that_would_even_out(
    wanted: Wishes, partitions: dict[bytes, int]
) -> None:
    """With different wishes: no partition has a reader with two more than another who wants it."""
    assigned = assign_uniform(specs(wanted), partitions)
    load = dict(zip(assigned, loads(assigned), strict=True))
    for member, target in assigned.items():
        for topic, ones in target.items():
            for other, spec in specs(wanted).items():
                if ones and topic in spec.topic_ids:
                    assert load[member] - load[other] <= 1


@given(st.integers(1, 7), st.integers(0, 20), st.integers(0, 20))
def test_range_gives_consecutive_partitions_of_each_topic(
    members: int, first: int, second: int
) -> None:
    assigned = assign_range(specs([frozenset((A, B))] * members), {A: first, B: second})
    for topic, size in ((A, first), (B, second)):
        shares = [sorted(target.get(topic, ())) for _, target in sorted(assigned.items())]
        assert [one for share in shares for one in share] == list(range(size))
        lengths = [len(share) for share in shares]
        assert lengths == sorted(lengths, reverse=True)


def test_range_takes_static_members_first() -> None:
    wish = frozenset((A,))
    members = {"a": MemberSpec(None, wish), "z": MemberSpec("box", wish)}
    assert assign_range(members, {A: 3}) == {
        "z": {A: frozenset((0, 1))},
        "a": {A: frozenset((2,))},
    }
