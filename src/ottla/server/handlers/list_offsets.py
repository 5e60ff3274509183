"""ListOffsets: which offset answers a timestamp, or one of the special timestamps.

Versions 1 to 11. A special timestamp that came with a later version than the request's is
refused with UNSUPPORTED_VERSION, partition by partition, as Kafka does. Consumers see no
offset beyond what they may fetch: the high watermark, or with read_committed the last stable
offset.
"""

from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import NO_EPOCH
from ottla.protocol.messages import given
from ottla.replication.partition import Isolation, Partition
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services
from ottla.storage.timestamp_lookup import MAX_TIMESTAMP as LARGEST

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

# The version from which each special timestamp may be asked for.
_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
# What needs no look at the records, and so no wait for the disk.
_AT_HAND = frozenset((LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD))
_UNKNOWN = {"timestamp": -1, "offset": -1, "leader_epoch": -1}


def handle(services: Services, call: Call, request: Any) -> Fields | Awaitable[Fields]:
    level = given(request, "isolation_level", 0)
    if level not in (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The isolation level must be 0 or 1")
    asked = Counter(
        (topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    )
    topics: dict[str, dict[int, Any]] = {}
    for topic in request.topics:
        named = topics.setdefault(topic.name, {})
        named.update((partition.partition_index, partition) for partition in topic.partitions)
    search = _Search(services, call.version, Isolation(level), request.replica_id)
    answers = {
        name: [
            search.answer(name, partition, is_repeated=asked[name, index] > 1)
            for index, partition in partitions.items()
        ]
        for name, partitions in topics.items()
    }
    if any(isinstance(one, Awaitable) for found in answers.values() for one in found):
        return _await_all(answers)
    return _response(answers)


async def _await_all(answers: dict[str, list[Fields | Awaitable[Fields]]]) -> Fields:
    return _response(
        {
            name: [await one if isinstance(one, Awaitable) else one for one in found]
            for name, found in answers.items()
        }
    )


def _response(answers: Mapping[str, Sequence[object]]) -> Fields:
    return {"topics": [{"name": name, "partitions": found} for name, found in answers.items()]}


class _Search(NamedTuple):
    """What one request asks of each of its partitions."""

    services: Services
    version: int
    isolation: Isolation
    replica_id: int

    def answer(self, topic: str, asked: Any, *, is_repeated: bool) -> Fields | Awaitable[Fields]:
        """The partition's answer, or where the disk must be asked the promise of one."""
        index, timestamp = asked.partition_index, asked.timestamp
        try:
            if is_repeated:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            if timestamp < EARLIEST_PENDING_UPLOAD or self.version < _SINCE.get(timestamp, 0):
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
            partition = self.services.replicas.partition(topic, index)
            partition.check_epoch(given(asked, "current_leader_epoch", -1))
            if not partition.is_open or timestamp not in _AT_HAND:
                return self._answer_later(partition, timestamp)
            found = self._at_hand(partition, timestamp)
        except KafkaError as error:
            return {"partition_index": index, "error_code": error.code, **_UNKNOWN}
        return {"partition_index": index, "error_code": ErrorCode.NONE, **found}

    async def _answer_later(self, partition: Partition, timestamp: int) -> Fields:
        index = partition.index
        try:
            await partition.open()
            partition.check_epoch(NO_EPOCH)
            if timestamp in _AT_HAND:
                found = self._at_hand(partition, timestamp)
            else:
                found = await self._by_timestamp(partition, timestamp)
        except KafkaError as error:
            return {"partition_index": index, "error_code": error.code, **_UNKNOWN}
        return {"partition_index": index, "error_code": ErrorCode.NONE, **found}

    def _at_hand(self, partition: Partition, timestamp: int) -> Fields:
        if timestamp == LATEST:
            offset = self._end_offset(partition)
            return {"timestamp": -1, "offset": offset, "leader_epoch": partition.leader_epoch}
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            log = partition.log
            epoch = log.epoch_for_offset(log.log_start_offset)
            return {
                "timestamp": -1,
                "offset": log.log_start_offset,
                "leader_epoch": -1 if epoch is None else epoch,
            }
        return _UNKNOWN  # nothing of this log is, or waits to be, in a remote tier

    async def _by_timestamp(self, partition: Partition, timestamp: int) -> Fields:
        wanted = LARGEST if timestamp == MAX_TIMESTAMP else timestamp
        found = await partition.log.find_timestamp(wanted)
        if found is None or found.offset >= self._end_offset(partition):
            return _UNKNOWN
        return {
            "timestamp": found.timestamp_ms,
            "offset": found.offset,
            "leader_epoch": -1 if found.leader_epoch is None else found.leader_epoch,
        }

    def _end_offset(self, partition: Partition) -> int:
        """Where that ends which this client may see."""
        if self.replica_id >= 0:
            return partition.log.log_end_offset
        if self.isolation is Isolation.READ_COMMITTED:
            return partition.last_stable_offset
        return partition.high_watermark
