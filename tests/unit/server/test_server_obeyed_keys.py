"""Keys of server.properties that a broker obeys as a whole: starting, stopping, directories."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.definitions import ConfigError
from ottla.config.resources import ConfigResourceType
from ottla.metadata.node import MetadataNode
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.runtime.simulated import Simulation
from ottla.server.broker import Broker
from ottla.server.single_node import format_if_needed, single_node_properties
from ottla.storage.cleaner import LogCleaner
from support.broker_world import with_broker
from support.sim_client import SimClient

TWO_DIRECTORIES = {"log.dirs": "/a,/b"}


async def create(client: SimClient, name: str, partitions: int = 1, **more: Any) -> ErrorCode:
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, **more}
    answer = await client.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic]}, 60)
    return ErrorCode(answer.topics[0].error_code)


async def cordon(client: SimClient, directories: str) -> ErrorCode:
    change = {"name": "cordoned.log.dirs", "config_operation": 0, "value": directories}
    resource = {
        "resource_type": ConfigResourceType.BROKER,
        "resource_name": "1",
        "configs": [change],
    }
    asked = {"resources": [resource]}
    answer = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, asked)
    await asyncio.sleep(1)  # of the simulation: the broker tells the controller meanwhile
    return ErrorCode(answer.responses[0].error_code)


async def places(client: SimClient) -> dict[str, tuple[bool, set[str]]]:
    """Of each directory whether it is cordoned, and the topics there."""
    answer = await client.ask(ApiKey.DESCRIBE_LOG_DIRS, 5, {"topics": None})
    return {
        one.log_dir: (one.is_cordoned, {topic.name for topic in one.topics})
        for one in answer.results
    }


def test_a_cordoned_directory_gets_no_new_partitions_while_another_is_open() -> None:
    async def scenario(broker: Broker, client: SimClient) -> None:
        assert await create(client, "before", 4) is ErrorCode.NONE
        assert await cordon(client, "/a") is ErrorCode.NONE
        assert await create(client, "after", 4) is ErrorCode.NONE
        assert await places(client) == {
            "/a": (True, {"before"}),
            "/b": (False, {"before", "after"}),
        }
        image = broker.metadata.image
        (open_directory,) = image.brokers[1].open_log_dirs
        assert {p.directories for p in image.topics["after"].partitions.values()} == {
            (open_directory,)
        }
        assert await cordon(client, "*") is ErrorCode.NONE
        assert await create(client, "refused") is ErrorCode.INVALID_REPLICATION_FACTOR
        by_hand = {"assignments": [{"partition_index": 0, "broker_ids": [1]}]}
        made = await create(client, "by-hand", -1, replication_factor=-1, **by_hand)
        assert made is ErrorCode.NONE
        assert await cordon(client, "/c") is ErrorCode.INVALID_REQUEST
        assert await cordon(client, "*,/a") is ErrorCode.INVALID_REQUEST

    async def after_a_restart(broker: Broker, client: SimClient) -> None:
        assert [cordoned for cordoned, _ in (await places(client)).values()] == [True, True]
        assert broker.metadata.image.brokers[1].is_cordoned
        assert await cordon(client, "") is ErrorCode.NONE
        assert not broker.metadata.image.brokers[1].is_cordoned
        assert await create(client, "at-last") is ErrorCode.NONE

    with_broker(scenario, after_a_restart, config=TWO_DIRECTORIES)


@pytest.mark.parametrize(("is_enabled", "is_fenced"), [("true", True), ("false", False)])
def test_a_controlled_shutdown_is_left_out_where_it_is_switched_off(
    is_enabled: str, is_fenced: bool
) -> None:
    fenced: list[bool] = []

    async def stop(broker: Broker) -> None:
        await broker.stop()
        fenced.append(broker.metadata.image.brokers[1].fenced)

    run_alone({"controlled.shutdown.enable": is_enabled}, stop)
    assert fenced == [is_fenced]


@pytest.mark.parametrize(("is_enabled", "is_started"), [("true", 1), ("false", 0)])
def test_the_cleaner_is_not_started_where_it_is_switched_off(
    is_enabled: str, is_started: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(LogCleaner, "start", lambda cleaner: started.append(cleaner))

    async def scenario(broker: Broker, client: SimClient) -> None:
        assert len(started) == is_started

    with_broker(scenario, config={"log.cleaner.enable": is_enabled})


def test_a_start_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(node: MetadataNode, **settings: object) -> None:
        await asyncio.sleep(3600)

    monkeypatch.setattr(MetadataNode, "start", hang)
    with pytest.raises(KafkaError, match=r"server\.max\.startup\.time\.ms=5000"):
        run_alone({"server.max.startup.time.ms": "5000"}, Broker.stop)


def test_a_failed_directory_that_nobody_can_be_told_of_ends_the_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fatal: list[BaseException] = []

    async def refuse(node: MetadataNode, decide: Any) -> Any:
        raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too busy")

    async def scenario(broker: Broker) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(MetadataNode, "submit", refuse)
            broker.logs.fail(broker.logs.directories[1], OSError("gone"))
            await asyncio.sleep(8)
            assert fatal == []
            await asyncio.sleep(5)
        assert "cannot be told" in str(fatal[0])
        await broker.stop()

    run_alone({**TWO_DIRECTORIES, "log.dir.failure.timeout.ms": "10000"}, scenario, fatal)


def test_a_change_larger_than_the_metadata_log_takes_is_refused() -> None:
    async def scenario(broker: Broker, client: SimClient) -> None:
        assert await create(client, "small") is ErrorCode.NONE
        assert await create(client, "large", 1000) is ErrorCode.POLICY_VIOLATION
        assert await create(client, "small-too") is ErrorCode.NONE

    with_broker(scenario, config={"internal.metadata.max.batch.size.in.bytes": "5000"})


def test_the_metadata_log_rolls_at_the_size_that_tests_give_it() -> None:
    async def scenario(broker: Broker, client: SimClient) -> None:
        for number in range(30):
            assert await create(client, f"t{number}", 10) is ErrorCode.NONE
        names = broker.services.runtime.disk.listdir("/data/__cluster_metadata-0")
        assert sum(name.endswith(".log") for name in names) > 3

    with_broker(scenario, config={"internal.metadata.log.segment.bytes": "4096"})


def test_a_protocol_between_brokers_is_the_name_of_their_listener() -> None:
    properties = single_node_properties("/d", 9092, {"security.inter.broker.protocol": "PLAINTEXT"})
    config = BrokerConfig.from_properties(properties)
    assert config.inter_broker_listener_name == "PLAINTEXT"
    assert config.warnings() == ()
    wrong = single_node_properties("/d", 9092, {"security.inter.broker.protocol": "SSL"})
    with pytest.raises(ConfigError, match=r"inter\.broker\.listener\.name"):
        BrokerConfig.from_properties(wrong)


def run_alone(
    config: Mapping[str, str], scenario: Any, fatal: list[BaseException] | None = None
) -> None:
    """Start a broker without clients; the scenario stops it."""
    with Simulation(1) as simulation:
        runtime = simulation.runtime("broker")
        broker_config = BrokerConfig.from_properties(single_node_properties("/data", 9092, config))
        format_if_needed(runtime, broker_config)
        on_fatal = None if fatal is None else fatal.append
        broker = Broker(runtime, broker_config, on_fatal=on_fatal)

        async def live() -> None:
            await broker.start()
            await scenario(broker)

        simulation.run(live(), seconds_max=600)
