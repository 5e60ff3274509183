"""What a controller's listener serves: what Kafka's controllers do, and no records."""

from typing import Any

import pytest

from ottla.protocol.api import CONTROLLER_APIS, ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.server.broker import Broker
from ottla.server.handlers.describe_cluster import BROKERS, CONTROLLERS
from support.broker_world import NODE, with_broker
from support.sim_client import SimClient

PORT = 9093
CONFIG = {"listeners": f"PLAINTEXT://{NODE}:9092,CONTROLLER://{NODE}:{PORT}"}


def of_the_controller(broker: Broker, client: SimClient) -> SimClient:
    return SimClient(client._runtime, NODE, broker.listeners["CONTROLLER"][1])


async def describe(client: SimClient, endpoint_type: int) -> Any:
    fields = {"include_cluster_authorized_operations": False, "endpoint_type": endpoint_type}
    return await client.ask(ApiKey.DESCRIBE_CLUSTER, 1, fields)


def test_each_listener_tells_of_its_own_kind_of_nodes() -> None:
    async def scenario(broker: Broker, client: SimClient) -> None:
        controller = of_the_controller(broker, client)
        for asked, kind, port in ((client, BROKERS, 9092), (controller, CONTROLLERS, PORT)):
            answer = await describe(asked, kind)
            assert answer.error_code == ErrorCode.NONE
            assert answer.endpoint_type == kind
            assert answer.controller_id == broker.broker_id
            assert [(one.broker_id, one.host, one.port) for one in answer.brokers] == [
                (broker.broker_id, NODE, port)
            ]
            other = await describe(asked, BROKERS + CONTROLLERS - kind)
            assert other.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
            unknown = await describe(asked, 7)
            assert unknown.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE

    with_broker(scenario, config=CONFIG)


def test_a_port_that_was_left_to_the_kernel_is_told_as_it_was_given() -> None:
    async def scenario(broker: Broker, client: SimClient) -> None:
        answer = await describe(of_the_controller(broker, client), CONTROLLERS)
        assert [one.port for one in answer.brokers] == [broker.listeners["CONTROLLER"][1]]
        assert answer.brokers[0].port > 0

    with_broker(scenario)


def test_a_controller_offers_the_apis_of_controllers_alone_and_serves_no_others() -> None:
    async def scenario(broker: Broker, client: SimClient) -> None:
        controller = of_the_controller(broker, client)
        versions = await controller.ask(ApiKey.API_VERSIONS, 0, {})
        offered = {ApiKey(one.api_key) for one in versions.api_keys}
        assert offered < CONTROLLER_APIS
        assert ApiKey.DESCRIBE_QUORUM in offered
        assert ApiKey.FETCH not in offered
        with pytest.raises(ConnectionError):
            await controller.ask(ApiKey.METADATA, 12, {"topics": None})
        await client.ask(ApiKey.METADATA, 12, {"topics": None})

    with_broker(scenario, config=CONFIG)
