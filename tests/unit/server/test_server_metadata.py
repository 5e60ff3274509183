"""What a Metadata request brings into being, and what is kept of its answers."""

import pytest

from ottla.config.broker import BrokerConfig
from ottla.metadata.image import MetadataImage
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
from ottla.server.handlers.metadata import NULL_ID
from ottla.server.metadata_answers import (
    ASKED_TOPICS_MAX,
    KEPT_BYTES_MAX,
    MetadataAnswers,
    Question,
)
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

    with_broker(scenario, config=partitions)


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


def question(*names: str, version: int = 9) -> Question:
    return Question(version, "PLAINTEXT", tuple((name, NULL_ID) for name in names), False, False)


def test_kept_answers_never_take_more_than_their_share() -> None:
    answers, image = MetadataAnswers(), MetadataImage()
    for number in range(100):
        asked = question(f"t{number}")
        assert answers.get(image, asked) is None
        answers.maybe_keep(asked, bytes(KEPT_BYTES_MAX // 10))
        assert answers.get(image, asked) is not None
        assert 0 < answers.kept_bytes <= KEPT_BYTES_MAX


def test_an_answer_that_is_too_large_leaves_the_others_alone() -> None:
    answers, image = MetadataAnswers(), MetadataImage()
    small, large = question("small"), question("large")
    answers.get(image, small)
    answers.maybe_keep(small, b"answer")
    answers.maybe_keep(large, bytes(KEPT_BYTES_MAX))
    answers.maybe_keep(question(*map(str, range(ASKED_TOPICS_MAX + 1))), b"long question")
    assert answers.get(image, small) == b"answer"
    assert answers.get(image, large) is None
    assert answers.get(MetadataImage(), small) is None


def test_only_questions_about_topics_that_are_there_are_kept() -> None:
    async def scenario(broker: Broker, client: SimClient) -> None:
        answers = broker.services.metadata_answers
        await client.ask(ApiKey.METADATA, 9, {"topics": [{"name": "there"}]})
        before = answers.kept_bytes
        unknown = [{"name": f"nowhere-{number}"} for number in range(500)]
        asked = {"topics": unknown, "allow_auto_topic_creation": False}
        for _ in range(3):
            answer = await client.ask(ApiKey.METADATA, 9, asked)
            assert {topic.error_code for topic in answer.topics} == {
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            }
        assert answers.kept_bytes == before > 0

    with_broker(scenario)
