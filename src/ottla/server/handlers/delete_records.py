"""DeleteRecords: let go of everything below an offset.

Versions 0 to 2. Offset -1 means the high watermark. Segments wholly below the new start are
deleted by the next retention round; readers are refused below it at once. A topic that is
only compacted refuses: its start must not move past what compaction keeps.
"""

from typing import Any

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import NO_EPOCH
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services

HIGH_WATERMARK = -1


async def handle(services: Services, call: Call, request: Any) -> Fields:
    topics: dict[str, dict[int, Any]] = {}
    for topic in request.topics:
        # Of a partition that is named twice, Kafka takes the last word.
        named = topics.setdefault(topic.name, {})
        named.update((partition.partition_index, partition) for partition in topic.partitions)
    return {
        "topics": [
            {
                "name": name,
                "partitions": [
                    await _delete(services, name, asked) for asked in partitions.values()
                ],
            }
            for name, partitions in topics.items()
        ]
    }


async def _delete(services: Services, topic: str, asked: Any) -> Fields:
    index = asked.partition_index
    try:
        low_watermark = await _advance(services, topic, index, asked.offset)
    except KafkaError as error:
        return {"partition_index": index, "low_watermark": -1, "error_code": error.code}
    return {
        "partition_index": index,
        "low_watermark": low_watermark,
        "error_code": ErrorCode.NONE,
    }


async def _advance(services: Services, topic: str, index: int, offset: int) -> int:
    partition = services.replicas.partition(topic, index)
    partition.check_epoch(NO_EPOCH)
    log = await partition.open()
    partition.check_epoch(NO_EPOCH)
    if "delete" not in log.config.cleanup_policy:
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    target = partition.high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= target <= partition.high_watermark:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    log.advance_log_start_offset(target)
    partition.wake_watchers()
    return log.log_start_offset
