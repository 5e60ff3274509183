"""What a broker tells of itself once it has started."""

import pytest

from ottla.metadata.elections import allows_unclean_election, min_insync_replicas
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.server.broker import Broker
from support.broker_world import NODE, with_broker
from support.sim_client import SimClient


@pytest.mark.parametrize(
    ("listeners", "host"),
    [
        ("PLAINTEXT://:9092,CONTROLLER://:0", NODE),
        ("PLAINTEXT://127.0.0.1:9092,CONTROLLER://:0", "127.0.0.1"),
    ],
)
def test_clients_are_told_the_name_of_the_machine_where_no_host_is_given(
    listeners: str, host: str
) -> None:
    async def scenario(broker: Broker, client: SimClient) -> None:
        answer = await client.ask(ApiKey.METADATA, 9, {"topics": []})
        assert [(one.host, one.port) for one in answer.brokers] == [(host, 9092)]
        (controller,) = broker.metadata.image.controllers.values()
        assert [one.host for one in controller.endpoints] == [NODE]

    with_broker(scenario, config={"listeners": listeners})


def test_the_controller_decides_by_what_the_properties_of_its_node_say() -> None:
    async def scenario(broker: Broker, client: SimClient) -> None:
        image = broker.metadata.image
        assert allows_unclean_election(image, "any")
        assert min_insync_replicas(image, "any") == 3

    with_broker(
        scenario,
        config={"unclean.leader.election.enable": "true", "min.insync.replicas": "3"},
    )


def test_a_broker_that_is_unregistered_while_it_runs_is_back_after_a_restart() -> None:
    async def unregister(broker: Broker, client: SimClient) -> None:
        topic = {"name": "t", "num_partitions": 1, "replication_factor": 1}
        await client.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic]})
        gone = await client.ask(ApiKey.UNREGISTER_BROKER, 0, {"broker_id": 1})
        assert gone.error_code == ErrorCode.NONE
        answer = await client.ask(ApiKey.METADATA, 9, {"topics": None})
        assert answer.brokers == ()
        assert [one.leader_id for one in answer.topics[0].partitions] == [-1]
        refused = await client.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [{**topic, "name": "u"}]})
        assert [one.error_code for one in refused.topics] == [ErrorCode.INVALID_REPLICATION_FACTOR]
        again = await client.ask(ApiKey.UNREGISTER_BROKER, 0, {"broker_id": 1})
        assert again.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED

    async def come_back(broker: Broker, client: SimClient) -> None:
        answer = await client.ask(ApiKey.METADATA, 9, {"topics": None})
        assert [one.node_id for one in answer.brokers] == [1]
        assert [one.leader_id for one in answer.topics[0].partitions] == [1]

    with_broker(unregister, come_back)
