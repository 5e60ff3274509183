"""Creating topics on behalf of a client: by request, or because it asked about one (auto-creation).

Shell around `metadata.topics.decide_create_topics`: supplies the broker's defaults, chance and
configuration checks, and submits the decision.
"""

from collections.abc import Mapping, Sequence

from ottla.config.dynamic import ResourceType, validate
from ottla.metadata.image import ConfigResource
from ottla.metadata.internal_topics import new_topic
from ottla.metadata.topics import (
    CreatedTopic,
    NewTopic,
    TopicDefaults,
    decide_create_topics,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics import CLUSTER_METADATA_TOPIC
from ottla.server.services import Services


async def create_topics(
    services: Services, topics: Sequence[NewTopic], *, validate_only: bool = False
) -> list[CreatedTopic]:
    """One result per topic; those that could be created are, once this returns."""
    config = services.config
    random = services.runtime.random
    refused = [_prohibited(topic) for topic in topics if topic.name == CLUSTER_METADATA_TOPIC]
    allowed = [topic for topic in topics if topic.name != CLUSTER_METADATA_TOPIC]
    created = await services.metadata.submit(
        lambda image: decide_create_topics(
            image,
            allowed,
            defaults=TopicDefaults(config.num_partitions, config.default_replication_factor),
            chance=random,
            new_id=random.uuid4,
            check_config=lambda resource, settings: check_config(services, resource, settings),
            validate_only=validate_only,
        )
    )
    return [*created, *refused]


async def create_missing_topics(services: Services, names: Sequence[str]) -> dict[str, KafkaError]:
    """Create the topics that a client asked about; the errors of those that could not be."""
    wanted = [new_topic(name, services.config) for name in dict.fromkeys(names)]
    results = await create_topics(services, wanted)
    return {
        result.name: KafkaError(result.error_code, result.error_message)
        for result in results
        # Two clients that ask about the same topic race; it is there for both.
        if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    }


def check_config(services: Services, resource: ConfigResource, settings: Mapping[str, str]) -> None:
    validate(ResourceType(resource.type), resource.name, settings, broker=services.config)


def _prohibited(topic: NewTopic) -> CreatedTopic:
    return CreatedTopic(
        topic.name,
        ErrorCode.INVALID_REQUEST,
        f"{CLUSTER_METADATA_TOPIC} is the metadata log itself and cannot be created",
    )
