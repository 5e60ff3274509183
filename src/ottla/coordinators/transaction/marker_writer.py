"""Writing the end of a transaction to partitions that this broker leads.

Shell, used by the coordinator on the same broker and by WriteTxnMarkers for others'. Offsets that
the transaction committed lie in the group coordinator's partitions, which must hear of the end
when it counts, so markers to those go through it.

Owned by the event loop's thread. Invariant: the outcome of each marker is reported once.
"""

from collections.abc import Callable
from typing import Protocol

from ottla.coordinators.runtime import EndMarker, OnDone
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import Offset, TopicPartition
from ottla.protocol.internal_topics import OFFSETS_TOPIC
from ottla.replication.partition import Partition
from ottla.replication.replica_manager import ReplicaManager
from ottla.runtime.interfaces import Runtime
from ottla.storage.core.append_origin import AppendOrigin


class OffsetsOwner(Protocol):
    """The group coordinator, as far as transactions concern it."""

    def end_transaction(self, index: int, marker: EndMarker, on_done: OnDone) -> None: ...


class MarkerWriter:
    def __init__(
        self,
        runtime: Runtime,
        replicas: ReplicaManager,
        offsets: OffsetsOwner,
        *,
        timeout_ms: Callable[[], int],
    ) -> None:
        self._clock = runtime.clock
        self._replicas = replicas
        self._offsets = offsets
        self._timeout_ms = timeout_ms

    def write(self, marker: EndMarker, at: TopicPartition, on_done: OnDone) -> None:
        """`on_done` hears, perhaps before this returns, when the marker is committed or why not."""
        if at.topic == OFFSETS_TOPIC:
            if at in self._replicas.partitions:
                self._offsets.end_transaction(at.partition, marker, on_done)
            else:
                on_done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        try:
            partition, appended = self._replicas.append_guarded(
                at.topic,
                at.partition,
                marker.batch(self._clock.wall_ms()),
                acks=-1,
                origin=AppendOrigin.COORDINATOR,
                transaction_version=marker.transaction_version,
            )
        except KafkaError as error:
            on_done(error.code)
            return
        end_offset = Offset(appended.last_offset + 1)
        if partition.high_watermark >= end_offset:
            on_done(ErrorCode.NONE)
        else:
            self._replicas.await_commit(
                [(partition, end_offset)],
                self._timeout_ms(),
                lambda expired: on_done(_outcome(partition, expired)),
            )


def _outcome(partition: Partition, expired: bool) -> ErrorCode:
    if partition.failure is not None:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if not partition.is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.REQUEST_TIMED_OUT if expired else ErrorCode.NONE
