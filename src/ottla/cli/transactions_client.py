"""What brokers know of transactions: coordinators' states, and open ones in partitions' logs.

librdkafka has none of these questions, so they go over `ottla.client`. Blocking shell, save for
`hanging`, which is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ottla.client import Client

Place = tuple[str, int]  # topic and partition

# A whole cluster's partitions in one request would hold a broker for long.
PARTITIONS_PER_REQUEST_MAX = 500


class Listing(NamedTuple):
    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class Description:
    coordinator: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_time_ms: int | None
    places: tuple[Place, ...]


class ProducerState(NamedTuple):
    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    start_offset: int | None  # of its open transaction

    @property
    def place(self) -> Place:
        return self.topic, self.partition


def listed(
    client: Client,
    *,
    states: Sequence[str] = (),
    producer_ids: Sequence[int] = (),
    duration_ms: int = -1,
) -> list[Listing]:
    """The transactions of every coordinator."""
    from ottla.client.errors import raise_for
    from ottla.protocol.api import ApiKey

    fields = {
        "state_filters": list(states),
        "producer_id_filters": list(producer_ids),
        "duration_filter": duration_ms,
    }
    found = []
    for node_id in sorted(client.metadata([]).brokers):
        response = client.ask(ApiKey.LIST_TRANSACTIONS, fields, node_id=node_id)
        raise_for(response.error_code, f"Broker {node_id} does not list its transactions")
        found += [
            Listing(one.transactional_id, node_id, int(one.producer_id), one.transaction_state)
            for one in response.transaction_states
        ]
    return sorted(found)


def described(client: Client, transactional_id: str) -> Description:
    """One transactional id, from its coordinator."""
    from ottla.client import CoordinatorType
    from ottla.client.errors import raise_for
    from ottla.protocol.api import ApiKey
    from ottla.protocol.messages import duration_ms, timestamp_ms

    node_id = client.coordinator(CoordinatorType.TRANSACTION, transactional_id)
    fields = {"transactional_ids": [transactional_id]}
    response = client.ask(ApiKey.DESCRIBE_TRANSACTIONS, fields, node_id=node_id)
    (found,) = response.transaction_states
    raise_for(found.error_code, f"Transactional id '{transactional_id}' cannot be described")
    start_ms = timestamp_ms(found.transaction_start_time)
    return Description(
        node_id,
        found.transactional_id,
        int(found.producer_id),
        int(found.producer_epoch),
        found.transaction_state,
        duration_ms(found.transaction_timeout),
        None if start_ms < 0 else start_ms,
        tuple((topic.topic, int(p)) for topic in found.topics for p in topic.partitions),
    )


def producers(
    client: Client,
    places: Sequence[Place],
    *,
    node_id: int | None = None,
    advance: Callable[[int], None] | None = None,
) -> list[ProducerState]:
    """The producers that partitions remember, from their leaders or from one broker.

    `advance` hears of partitions that were asked about.
    """
    from ottla.client import TopicPartition

    if node_id is not None:
        by_broker = {node_id: list(places)}
    else:
        wanted = [TopicPartition(*place) for place in places]
        by_leader = client.by_leader(wanted)
        by_broker = {n: [(p.topic, p.partition) for p in found] for n, found in by_leader.items()}
    states: list[ProducerState] = []
    for broker, held in by_broker.items():
        for batch in in_batches(sorted(held)):
            states += _producers_of(client, broker, batch)
            if advance is not None:
                advance(len(batch))
    return sorted(states)


def _producers_of(client: Client, node_id: int, places: Sequence[Place]) -> list[ProducerState]:
    from ottla.client.errors import raise_for
    from ottla.protocol.api import ApiKey

    fields = {"topics": [{"name": t, "partition_indexes": p} for t, p in by_topic(places).items()]}
    response = client.ask(ApiKey.DESCRIBE_PRODUCERS, fields, node_id=node_id)
    states = []
    for topic in response.topics:
        for partition in topic.partitions:
            where = f"{topic.name}-{partition.partition_index}"
            raise_for(
                partition.error_code,
                f"Producers of {where} cannot be described",
                partition.error_message,
            )
            states += [_state(topic.name, partition, one) for one in partition.active_producers]
    return states


def _state(topic: str, partition: Any, one: Any) -> ProducerState:
    start = int(one.current_txn_start_offset)
    return ProducerState(
        topic,
        int(partition.partition_index),
        int(one.producer_id),
        int(one.producer_epoch),
        int(one.coordinator_epoch),
        int(one.last_sequence),
        int(one.last_timestamp),
        None if start < 0 else start,
    )


def hanging(
    open_states: Iterable[ProducerState],
    transactional_ids: Mapping[int, str],
    places_of: Mapping[str, Collection[Place]],
) -> list[ProducerState]:
    """Open transactions that no coordinator will end: their id or their partition is unknown."""
    found = []
    for state in open_states:
        transactional_id = transactional_ids.get(state.producer_id)
        expected = places_of.get(transactional_id, ()) if transactional_id is not None else ()
        if state.place not in expected:
            found.append(state)
    return found


def find_hanging(
    client: Client,
    places: Sequence[Place],
    *,
    before_ms: int,
    node_id: int | None,
    advance: Callable[[int], None] | None = None,
) -> list[ProducerState]:
    """Open transactions without a record since `before_ms` that their coordinator forgot."""
    from ottla.protocol.errors import ErrorCode, KafkaError

    candidates = [
        state
        for state in producers(client, places, node_id=node_id, advance=advance)
        if state.start_offset is not None and state.last_timestamp_ms < before_ms
    ]
    if not candidates:
        return []
    ids = {
        listing.producer_id: listing.transactional_id
        for listing in listed(client, producer_ids=sorted({s.producer_id for s in candidates}))
    }
    expected: dict[str, Collection[Place]] = {}
    for transactional_id in ids.values():
        try:
            expected[transactional_id] = described(client, transactional_id).places
        except KafkaError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
    return hanging(candidates, ids, expected)


def abort(client: Client, state: ProducerState) -> None:
    """Write an abort marker for a transaction, past its coordinator."""
    from ottla.client.errors import raise_for
    from ottla.protocol.api import ApiKey

    fields = {
        "markers": [
            {
                "producer_id": state.producer_id,
                "producer_epoch": state.producer_epoch,
                "transaction_result": False,
                "topics": [{"name": state.topic, "partition_indexes": [state.partition]}],
                # -1 is what a partition shows before the first marker; 0 is below every epoch.
                "coordinator_epoch": max(0, state.coordinator_epoch),
            }
        ]
    }
    leader = client.leader(state.topic, state.partition)
    response = client.ask(ApiKey.WRITE_TXN_MARKERS, fields, node_id=leader)
    for marker in response.markers:
        for topic in marker.topics:
            for partition in topic.partitions:
                what = f"The transaction in {topic.name}-{partition.partition_index} stays open"
                raise_for(partition.error_code, what)


def terminate(client: Client, transactional_id: str) -> None:
    """Fence the producer of a transactional id; its coordinator aborts what is open."""
    from ottla.client import CoordinatorType
    from ottla.client.errors import raise_for
    from ottla.protocol.api import ApiKey

    node_id = client.coordinator(CoordinatorType.TRANSACTION, transactional_id)
    fields = {
        "transactional_id": transactional_id,
        "transaction_timeout": _FENCING_TIMEOUT_MS,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    response = client.ask(ApiKey.INIT_PRODUCER_ID, fields, node_id=node_id)
    raise_for(response.error_code, f"'{transactional_id}' cannot be terminated")


# What Kafka's admin client asks for when it fences a producer: the least that is allowed.
_FENCING_TIMEOUT_MS = 1


def by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    """Partitions by topic."""
    found: dict[str, list[int]] = {}
    for topic, partition in places:
        found.setdefault(topic, []).append(partition)
    return found


def in_batches(places: Sequence[Place]) -> Iterator[Sequence[Place]]:
    """Slices of at most PARTITIONS_PER_REQUEST_MAX."""
    for start in range(0, len(places), PARTITIONS_PER_REQUEST_MAX):
        yield places[start : start + PARTITIONS_PER_REQUEST_MAX]
