"""CreateTopics: new topics, each decided on its own.

Versions 2 to 7. Places replicas or takes manual assignments, checks names and configuration, or
with `validate_only` only says what would happen. The answer names the topic's id and the
configuration that it has.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from ottla.config.describe import ConfigEntry
from ottla.metadata.topics import CreatedTopic, NewTopic
from ottla.protocol.errors import ErrorCode
from ottla.server.dispatch import Call, Fields, LongAnswer
from ottla.server.services import Services
from ottla.server.topic_creation import create_topics

# More are described in slices, so that others are served in between.
TOPICS_PER_SLICE = 20


async def handle(services: Services, call: Call, request: Any) -> LongAnswer:
    topics = [
        NewTopic(
            topic.name,
            topic.num_partitions,
            topic.replication_factor,
            [(one.partition_index, one.broker_ids) for one in topic.assignments],
            [(config.name, config.value) for config in topic.configs],
        )
        for topic in request.topics
    ]
    results = await create_topics(services, topics, validate_only=request.validate_only)
    answers = []
    for number, result in enumerate(results, 1):
        answers.append(_result(services, result))
        if number % TOPICS_PER_SLICE == 0:
            await asyncio.sleep(0)
    return LongAnswer("topics", answers)


def _result(services: Services, result: CreatedTopic) -> Fields:
    has_succeeded = result.error_code is ErrorCode.NONE
    return {
        "name": result.name,
        "topic_id": result.topic_id,
        "error_code": result.error_code,
        "error_message": result.error_message,
        "num_partitions": result.num_partitions,
        "replication_factor": result.replication_factor,
        "configs": [
            _config(entry, result.configs)
            for entry in services.configs.descriptions.topic(result.configs)
        ]
        if has_succeeded
        else [],
    }


def _config(entry: ConfigEntry, given: Mapping[str, str]) -> Fields:
    """What was given is echoed as it was; DescribeConfigs shows how it is understood."""
    return {
        "name": entry.name,
        "value": None if entry.is_sensitive else given.get(entry.name, entry.value),
        "read_only": entry.is_read_only,
        "config_source": entry.source,
        "is_sensitive": entry.is_sensitive,
    }
