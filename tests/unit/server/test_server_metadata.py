"""What a Metadata request brings into being, and what is kept of its answers."""

import pytest

from ottla.config.broker import BrokerConfig
from ottla.metadata.internal_topics import new_topic
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics import (
    INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTION_TOPIC,
)
from ottla.server.broker import Broker
from ottla.server.single_node import single_node_properties
from support.broker_world import with_broker
from support.sim_client import SimClient


@pytest.mark.parametrize("name", [OFFSETS_TOPIC, TRANSACTION_TOPIC])
def test_asking_about_an_internal_topic_makes_it_as_its_coordinator_would(name: str) -> None:
    partitions = {"offsets.topic.num.partitions": "5", "transaction.state.log.num.partitions": "5"}

    async def scenario(broker: Broker, client: SimClient) -> None:
        asked = {"topics": [{"name": name}], "allow_auto_topic_creation": True}
        answer = await client.ask(ApiKey.METADATA, 9, asked)
        (topic,) = answer.topics
        assert topic.error_code == ErrorCode.NONE
        assert topic.is_internal
        assert len(topic.partitions) == 5
        made = broker.metadata.image.topic_config(name)
        assert made == dict(new_topic(name, broker.config).configs)
        assert made["cleanup.policy"] == "compact"

    with_broker(scenario, partitions)


def test_every_internal_topic_has_settings_of_its_own() -> None:
    config = BrokerConfig.from_properties(
        single_node_properties(
            "/data", 9092, {"share.coordinator.state.topic.replication.factor": "1"}
        )
    )
    for name in INTERNAL_TOPICS:
        topic = new_topic(name, config)
        assert topic.num_partitions > 0
        assert topic.replication_factor == 1
        assert dict(topic.configs)["segment.bytes"] == "104857600"
    assert dict(new_topic(SHARE_STATE_TOPIC, config).configs)["retention.ms"] == "-1"
    assert new_topic("orders", config).configs == ()
