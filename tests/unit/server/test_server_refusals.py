"""What a client is told when a request fails as a whole, or the broker has a defect."""

import logging
from typing import Any

import pytest

from ottla.config.resources import ConfigResourceType
from ottla.metadata.node import MetadataNode
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.broker import Broker
from support.broker_world import with_broker
from support.sim_client import SimClient

FAILED = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The metadata log has failed")
TOPIC = {"name": "t", "num_partitions": 1, "replication_factor": 1}
CHANGE = {"name": "retention.ms", "config_operation": 0, "value": "1"}
RESOURCE = {"resource_type": ConfigResourceType.TOPIC, "resource_name": "t", "configs": [CHANGE]}


def codes(results: Any) -> list[tuple[int, str | None]]:
    return [(one.error_code, getattr(one, "error_message", None)) for one in results]


def test_a_change_that_the_metadata_log_refuses_is_an_error_of_each_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(node: MetadataNode, decide: Any) -> Any:
        raise FAILED

    async def scenario(broker: Broker, client: SimClient) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(MetadataNode, "submit", refuse)
            created = await client.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [TOPIC]})
            assert codes(created.topics) == [(FAILED.code, FAILED.message)]
            deleted = await client.ask(ApiKey.DELETE_TOPICS, 6, {"topics": [{"name": "t"}]})
            assert codes(deleted.responses) == [(FAILED.code, FAILED.message)]
            assert [one.name for one in deleted.responses] == ["t"]
            grown = await client.ask(
                ApiKey.CREATE_PARTITIONS, 3, {"topics": [{"name": "t", "count": 2}]}
            )
            assert codes(grown.results) == [(FAILED.code, FAILED.message)]
            altered = await client.ask(
                ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [RESOURCE, RESOURCE]}
            )
            assert codes(altered.responses) == [(FAILED.code, FAILED.message)] * 2
            asked = {"topics": [{"name": "new"}], "allow_auto_topic_creation": True}
            described = await client.ask(ApiKey.METADATA, 9, asked)
            assert codes(described.topics) == [(FAILED.code, None)]

    with_broker(scenario)


def test_a_defect_is_logged_and_answered_and_the_connection_lives_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def break_down(node: MetadataNode, decide: Any) -> Any:
        raise ZeroDivisionError

    def break_at_once(*args: Any, **options: Any) -> Any:
        raise ZeroDivisionError

    async def scenario(broker: Broker, client: SimClient) -> None:
        with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
            patch.setattr(MetadataNode, "submit", break_down)
            created = await client.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [TOPIC]})
            assert [one.error_code for one in created.topics] == [ErrorCode.UNKNOWN_SERVER_ERROR]
            patch.setattr("ottla.server.handlers.describe_cluster.broker_fields", break_at_once)
            described = await client.ask(ApiKey.DESCRIBE_CLUSTER, 1, {})
            assert described.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert [record.getMessage() for record in caplog.records] == [
            "CREATE_TOPICS failed",
            "DESCRIBE_CLUSTER failed",
        ]
        assert (await client.ask(ApiKey.DESCRIBE_CLUSTER, 1, {})).error_code == ErrorCode.NONE

    with_broker(scenario)


def test_a_broker_by_a_number_that_is_too_long_is_refused() -> None:
    async def scenario(broker: Broker, client: SimClient) -> None:
        for name in ("9" * 5000, "x", "01", "77"):
            asked = {"resource_type": ConfigResourceType.BROKER, "resource_name": name}
            change = {"name": "log.cleaner.threads", "config_operation": 0, "value": "2"}
            altered = await client.ask(
                ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [{**asked, "configs": [change]}]}
            )
            assert [one.error_code for one in altered.responses] == [ErrorCode.INVALID_REQUEST]
            described = await client.ask(
                ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [{**asked, "configuration_keys": None}]}
            )
            assert [one.error_code for one in described.results] == [ErrorCode.INVALID_REQUEST]

    with_broker(scenario)


def test_a_version_that_is_not_released_closes_the_connection() -> None:
    async def scenario(broker: Broker, client: SimClient) -> None:
        asked = {"transactional_id": None, "transaction_timeout": 1000}
        with pytest.raises(ConnectionError):
            await client.ask(ApiKey.INIT_PRODUCER_ID, 6, asked)
        assert (await client.ask(ApiKey.INIT_PRODUCER_ID, 5, asked)).error_code == ErrorCode.NONE

    with_broker(scenario)
