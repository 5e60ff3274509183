"""DescribeQuorum: who votes on the metadata log, and how far each voter's copy reaches.

Versions 0 to 2; version 1 adds times, version 2 directories, messages and the controllers'
addresses. The request must name `__cluster_metadata`, partition 0, and nothing else. This node is
the whole quorum, so it leads and is never behind.
"""

from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.raft.log import TOPIC_PARTITION
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services

METADATA_TOPIC, METADATA_PARTITION = TOPIC_PARTITION


def handle(services: Services, call: Call, request: Any) -> Fields:
    asked = [
        (topic.topic_name, [p.partition_index for p in topic.partitions])
        for topic in request.topics
    ]
    if asked != [(METADATA_TOPIC, [METADATA_PARTITION])]:
        return {"error_code": ErrorCode.NONE, "topics": [_unknown(*one) for one in asked]}
    metadata = services.metadata
    now_ms = services.runtime.clock.wall_ms()
    voters = metadata.quorum.voters
    return {
        "error_code": ErrorCode.NONE,
        "topics": [
            {
                "topic_name": METADATA_TOPIC,
                "partitions": [
                    {
                        "partition_index": METADATA_PARTITION,
                        "error_code": ErrorCode.NONE,
                        "leader_id": services.broker_id,
                        "leader_epoch": metadata.controller_epoch,
                        "high_watermark": metadata.high_watermark,
                        "current_voters": [
                            {
                                "replica_id": voter.voter_id,
                                "replica_directory_id": voter.voter_directory_id,
                                "log_end_offset": metadata.log_end_offset,
                                "last_fetch_timestamp": now_ms,
                                "last_caught_up_timestamp": now_ms,
                            }
                            for voter in voters
                        ],
                        "observers": [],
                    }
                ],
            }
        ],
        "nodes": [
            {
                "node_id": voter.voter_id,
                "listeners": [
                    {"name": one.name, "host": one.host, "port": one.port}
                    for one in voter.endpoints
                ],
            }
            for voter in voters
        ],
    }


def _unknown(topic: str, partitions: list[int]) -> Fields:
    return {
        "topic_name": topic,
        "partitions": [
            {
                "partition_index": index,
                "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "leader_id": -1,
                "leader_epoch": -1,
                "high_watermark": -1,
                "current_voters": [],
                "observers": [],
            }
            for index in partitions
        ],
    }
