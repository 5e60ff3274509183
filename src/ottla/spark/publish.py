"""The broker as the store that the exactly-once protocol publishes to.

One `BrokerStore` per query and process; its connections stay open over micro-batches. The marker
is an offset of a consumer group that has the transactional id's name, on partition 0 of a topic
that exists: `markerTopic`, the one topic of the sink, or the first topic of the micro-batch. As
rows may choose topics, the marker may move; it only grows, so the highest counts.

Shell; belongs to the process that commits.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic, time

from ottla.client.client import Client
from ottla.client.metadata import TopicPartition
from ottla.client.offsets import committed_offsets
from ottla.client.transactions import Batch, BatchProducer, MarkedOffset
from ottla.protocol.errors import KafkaError
from ottla.spark.exactly_once import MarkerMismatch, Outcome, Publisher
from ottla.spark.sink_errors import Moment, explained, mismatch
from ottla.spark.sink_options import SinkOptions

_OFFSETS_TOPIC = "__consumer_offsets"  # exists wherever an offset can be committed


@dataclass(slots=True)
class Output:
    """What a micro-batch writes."""

    batches: Sequence[Batch]
    records: int

    @property
    def partitions(self) -> list[TopicPartition]:
        return list(dict.fromkeys(batch.partition for batch in self.batches))


class BrokerStore:
    """The steps of a transaction, as requests to brokers."""

    def __init__(self, options: SinkOptions, transactional_id: str, *, has_marker: bool) -> None:
        self.transactional_id = transactional_id
        self._options = options
        self._has_marker = has_marker
        self._is_open = False
        self._is_end_sent = False
        self._began_at: float | None = None  # of the transaction, at the latest
        self._client = Client(options.client)
        self._producer = BatchProducer(
            self._client,
            transactional_id,
            transaction_timeout_ms=options.transaction_timeout_ms,
            delivery_timeout_ms=options.delivery_timeout_ms,
            in_flight_max=options.in_flight_max,
        )

    def close(self) -> None:
        self._client.close()

    @property
    def moment(self) -> Moment:
        """When in a publication this is."""
        timeout_s = self._options.transaction_timeout_ms / 1000
        is_overdue = self._began_at is not None and monotonic() - self._began_at >= timeout_s
        return Moment(self._is_end_sent, is_overdue, self._has_marker)

    def take_over(self) -> None:
        self._is_open = self._is_end_sent = False
        self._began_at = None
        self._producer.take_producer_id()

    def read_marker(self) -> int | None:
        if not self._has_marker:
            return None
        found = committed_offsets(self._client, self.transactional_id, None, require_stable=True)
        return max((committed.offset for committed in found.values()), default=None)

    def add_partitions(self, staged: Output) -> None:
        self._begin()
        self._producer.add_partitions(staged.partitions)
        self._is_open = bool(staged.batches)

    def write(self, staged: Output) -> None:
        self._producer.produce(staged.batches)

    def add_marker(self) -> None:
        if self._has_marker:
            self._begin()
            self._producer.add_group(self.transactional_id)
            self._is_open = True

    def set_marker(self, marker: int, staged: Output | None) -> None:
        if not self._has_marker:
            return
        topic = self._options.marker_topic or self._options.topic
        if topic is None:
            batches = staged.batches if staged is not None else ()
            topic = batches[0].partition.topic if batches else _OFFSETS_TOPIC
        about = {
            "next_batch": marker,
            "records": staged.records if staged is not None else 0,
            "host": socket.gethostname(),
            "time_ms": int(time() * 1000),
        }
        marked = MarkedOffset(marker, json.dumps(about, separators=(",", ":")))
        self._producer.commit_group_offsets(
            self.transactional_id, {TopicPartition(topic, 0): marked}
        )

    def commit(self) -> None:
        if self._is_open:  # without output and marker nothing was begun
            self._is_end_sent = True
            self._producer.end_transaction(is_commit=True)
        self._is_open = self._is_end_sent = False
        self._began_at = None

    def _begin(self) -> None:
        """Note the time before the broker can: its clock for the transaction starts later."""
        if self._began_at is None:
            self._began_at = monotonic()


class QueryPublisher:
    """Publishes for one query or one batch write; what fails is told in sentences."""

    def __init__(
        self, options: SinkOptions, transactional_id: str, *, has_marker: bool = True
    ) -> None:
        self._store = BrokerStore(options, transactional_id, has_marker=has_marker)
        self._publisher = Publisher(options.mismatch_policy)

    @property
    def takes_over(self) -> bool:
        """Whether the next publication begins by fencing whoever published before."""
        return self._publisher.takes_over

    def publish(self, batch_id: int, read_staged: Callable[[], Output]) -> Outcome:
        """Publish the output of a micro-batch unless it was published."""
        transactional_id = self._store.transactional_id
        try:
            return self._publisher.publish(self._store, batch_id, read_staged)
        except MarkerMismatch as error:
            raise mismatch(transactional_id, error) from error
        except KafkaError as error:
            moment = self._store.moment
            self._store.close()
            raise explained(error, transactional_id, moment) from error

    def close(self) -> None:
        self._store.close()
