"""Striped placement: what must always hold, and what evenness it promises."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata.placement import StripedPlacer, UsableBroker
from ottla.protocol.errors import ErrorCode, KafkaError

CLUSTERS = st.lists(
    st.tuples(st.sampled_from((None, "a", "b", "c")), st.booleans()), min_size=1, max_size=9
).map(lambda brokers: [UsableBroker(n, rack, fenced) for n, (rack, fenced) in enumerate(brokers)])


@given(CLUSTERS, st.integers(1, 9), st.integers(1, 25), st.integers())
def test_replicas_are_distinct_and_led_by_unfenced_brokers(
    brokers: list[UsableBroker], factor: int, count: int, seed: int
) -> None:
    placer = StripedPlacer(brokers, Random(seed))
    fenced = {broker.broker_id for broker in brokers if broker.fenced}
    if factor > len(brokers) or len(fenced) == len(brokers):
        with pytest.raises(KafkaError) as refused:
            placer.place(factor)
        assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
        return
    for _ in range(count):
        placed = placer.place(factor)
        assert len(set(placed)) == factor
        assert placed[0] not in fenced
        assert set(placed) <= {broker.broker_id for broker in brokers}


@given(st.integers(0, 2), st.integers())
def test_every_partition_spans_all_racks(extra: int, seed: int) -> None:
    brokers = [UsableBroker(n, f"r{n % 3}", False) for n in range(9)]
    placer = StripedPlacer(brokers, Random(seed))
    for _ in range(30):
        placed = placer.place(3 + extra)
        assert {broker % 3 for broker in placed} == {0, 1, 2}


@given(st.integers(1, 6), st.integers())
def test_leaders_and_replicas_are_spread_evenly(rounds: int, seed: int) -> None:
    brokers = [UsableBroker(n, None, False) for n in range(5)]
    placer = StripedPlacer(brokers, Random(seed))
    placed = [placer.place(3) for _ in range(5 * rounds)]
    assert set(Counter(replicas[0] for replicas in placed).values()) == {rounds}
    assert set(Counter(broker for replicas in placed for broker in replicas).values()) == {
        3 * rounds
    }


def test_fenced_brokers_are_taken_only_when_others_run_out() -> None:
    brokers = [UsableBroker(1, None, False), UsableBroker(2, None, False)]
    brokers.append(UsableBroker(3, None, True))
    placer = StripedPlacer(brokers, Random(0))
    assert all(3 not in placer.place(2) for _ in range(20))
    assert all(placer.place(3)[2] == 3 for _ in range(20))


@pytest.mark.parametrize("factor", [0, -1])
def test_a_replication_factor_must_be_positive(factor: int) -> None:
    with pytest.raises(KafkaError, match="not positive"):
        StripedPlacer([UsableBroker(1, None, False)], Random(0)).place(factor)
