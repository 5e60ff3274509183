"""ListOffsets: which offset answers a timestamp, or one of the special timestamps.

Versions 1 to 11. A special timestamp that came with a later version than the request's is
refused with UNSUPPORTED_VERSION, partition by partition, as Kafka does. Consumers see no
offset beyond what they may fetch: the high watermark, or with read_committed the last stable
offset.
"""

from collections import Counter
from typing import Any

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages import given
from ottla.replication.partition import Isolation, Partition
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

# The version from which each special timestamp may be asked for.
_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_UNKNOWN = {"timestamp": -1, "offset": -1, "leader_epoch": -1}


def handle(services: Services, call: Call, request: Any) -> Fields:
    isolation = Isolation(given(request, "isolation_level", 0))
    asked = Counter(
        (topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    )
    topics: dict[str, dict[int, Any]] = {}
    for topic in request.topics:
        named = topics.setdefault(topic.name, {})
        named.update((partition.partition_index, partition) for partition in topic.partitions)
    return {
        "topics": [
            {
                "name": name,
                "partitions": [
                    _answer(
                        services,
                        call.version,
                        name,
                        partition,
                        isolation,
                        request.replica_id,
                        is_repeated=asked[name, index] > 1,
                    )
                    for index, partition in partitions.items()
                ],
            }
            for name, partitions in topics.items()
        ]
    }


def _answer(
    services: Services,
    version: int,
    topic: str,
    asked: Any,
    isolation: Isolation,
    replica_id: int,
    *,
    is_repeated: bool,
) -> Fields:
    index = asked.partition_index
    try:
        if is_repeated:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if asked.timestamp < EARLIEST_PENDING_UPLOAD or version < _SINCE.get(asked.timestamp, 0):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        partition = services.replicas.partition(topic, index)
        partition.check_epoch(given(asked, "current_leader_epoch", -1))
        found = _find(partition, asked.timestamp, isolation, replica_id)
    except KafkaError as error:
        return {"partition_index": index, "error_code": error.code, **_UNKNOWN}
    return {"partition_index": index, "error_code": ErrorCode.NONE, **found}


def _find(partition: Partition, timestamp: int, isolation: Isolation, replica_id: int) -> Fields:
    log = partition.log
    if replica_id >= 0:
        end_offset = log.log_end_offset
    elif isolation is Isolation.READ_COMMITTED:
        end_offset = partition.last_stable_offset
    else:
        end_offset = partition.high_watermark
    if timestamp == LATEST:
        return {"timestamp": -1, "offset": end_offset, "leader_epoch": partition.leader_epoch}
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        epoch = log.epoch_for_offset(start)
        return {"timestamp": -1, "offset": start, "leader_epoch": -1 if epoch is None else epoch}
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _UNKNOWN  # nothing of this log is, or waits to be, in a remote tier
    found = (
        log.offset_of_max_timestamp()
        if timestamp == MAX_TIMESTAMP
        else log.offset_for_timestamp(timestamp)
    )
    if found is None or found.offset >= end_offset:
        return _UNKNOWN
    return {
        "timestamp": found.timestamp_ms,
        "offset": found.offset,
        "leader_epoch": -1 if found.leader_epoch is None else found.leader_epoch,
    }
