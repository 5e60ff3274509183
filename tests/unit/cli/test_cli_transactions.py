"""Which open transactions hang, against a reading of Kafka's rule one by one."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.transactions_client import (
    PARTITIONS_PER_REQUEST_MAX,
    Place,
    ProducerState,
    by_topic,
    hanging,
    in_batches,
)

PLACES = st.tuples(st.sampled_from("ab"), st.integers(0, 2))
STATES = st.builds(
    lambda place, producer: ProducerState(*place, producer, 0, 0, 0, 0, 5),
    PLACES,
    st.integers(0, 3),
)


@given(
    st.lists(STATES, max_size=8),
    st.dictionaries(st.integers(0, 3), st.sampled_from("xyz")),
    st.dictionaries(st.sampled_from("xyz"), st.frozensets(PLACES)),
)
def test_a_transaction_hangs_unless_its_coordinator_knows_the_partition(
    states: list[ProducerState], ids: dict[int, str], places_of: dict[str, frozenset[Place]]
) -> None:
    def hangs(state: ProducerState) -> bool:
        if state.producer_id not in ids:
            return True
        if ids[state.producer_id] not in places_of:
            return True
        return state.place not in places_of[ids[state.producer_id]]

    assert hanging(states, ids, places_of) == [state for state in states if hangs(state)]


@given(st.integers(0, 3 * PARTITIONS_PER_REQUEST_MAX))
def test_batches_hold_everything_once(count: int) -> None:
    places = [("t", number) for number in range(count)]
    batches = list(in_batches(places))
    assert [place for batch in batches for place in batch] == places
    assert all(len(batch) <= PARTITIONS_PER_REQUEST_MAX for batch in batches)


def test_partitions_are_grouped_by_topic() -> None:
    assert by_topic([("a", 1), ("b", 0), ("a", 0)]) == {"a": [1, 0], "b": [0]}
