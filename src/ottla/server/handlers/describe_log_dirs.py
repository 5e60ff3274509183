"""DescribeLogDirs: which log directories there are, and what lies in them.

Versions 1 to 5. No list of topics means all. A directory that failed is listed with
KAFKA_STORAGE_ERROR.
"""

from collections import defaultdict
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services
from ottla.storage.log_dir_sizes import LogDirDescription, describe_log_dirs


async def handle(services: Services, call: Call, request: Any) -> Fields:
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    found = await describe_log_dirs(services.logs, services.runtime.disk)
    return {"error_code": ErrorCode.NONE, "results": [_describe(one, wanted) for one in found]}


def _describe(directory: LogDirDescription, wanted: set[tuple[str, int]] | None) -> Fields:
    topics: defaultdict[str, list[Fields]] = defaultdict(list)
    for partition, size in directory.partitions:
        if wanted is None or (partition.topic, partition.partition) in wanted:
            topics[partition.topic].append(
                {
                    "partition_index": partition.partition,
                    "partition_size": size,
                    "offset_lag": 0,  # what lies here is led here
                    "is_future_key": False,
                }
            )
    failed = directory.failure is not None
    return {
        "error_code": ErrorCode.KAFKA_STORAGE_ERROR if failed else ErrorCode.NONE,
        "log_dir": directory.path,
        "topics": [{"name": name, "partitions": found} for name, found in topics.items()],
        "total_bytes": directory.total_bytes,
        "usable_bytes": directory.usable_bytes,
        "is_cordoned": directory.is_cordoned,
    }
