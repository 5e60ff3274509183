"""The internal topic of a coordinator: which partition has a key, and that there is a topic.

Shell over the metadata's newest image. Clients look for their coordinator before they ask it for
anything; so who asks for a key of a topic that is not there has not looked, or not here.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from ottla.config.broker import BrokerConfig
from ottla.coordinators.partitioning import partition_of
from ottla.metadata.image import MetadataImage
from ottla.metadata.internal_topics import new_topic
from ottla.metadata.topics import CreatedTopic, NewTopic
from ottla.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

TopicCreator: TypeAlias = Callable[[NewTopic], Awaitable[CreatedTopic]]


class CoordinatorTopic:
    def __init__(
        self,
        name: str,
        *,
        config: Callable[[], BrokerConfig],
        image: Callable[[], MetadataImage],
        create_topic: TopicCreator,
    ) -> None:
        self.name = name
        self._config = config
        self._image = image
        self._create_topic = create_topic

    async def locate(self, key: str) -> int:
        """The partition that coordinates `key`, after the topic was created if need be."""
        if self.name not in self._image().topics:
            await self._create()
        return self._index_of(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def index_of(self, key: str) -> int:
        """The partition that coordinates `key`; NOT_COORDINATOR if nobody has looked for it."""
        return self._index_of(key, ErrorCode.NOT_COORDINATOR)

    def _index_of(self, key: str, code_without_topic: ErrorCode) -> int:
        topic = self._image().topics.get(self.name)
        if topic is None:
            raise KafkaError(code_without_topic)
        return partition_of(key, len(topic.partitions))

    async def _create(self) -> None:
        result = await self._create_topic(new_topic(self.name, self._config()))
        if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            log.warning("%s cannot be created: %s", self.name, result.error_message)
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, result.error_message)
