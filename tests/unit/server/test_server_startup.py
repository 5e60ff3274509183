"""What a broker tells of itself once it has started."""

import pytest

from ottla.protocol.api import ApiKey
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

    with_broker(scenario, {"listeners": listeners})
