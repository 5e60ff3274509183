"""How configuration is described and altered over the wire."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.config.resources import ConfigResourceType
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.frames import parse_header
from ottla.protocol.ids import TopicPartition
from ottla.protocol.messages import decode_response, encode_request
from ottla.runtime.simulated.node_world import SimulatedOffload
from ottla.server.broker import Broker
from ottla.server.connection import Deferred
from ottla.server.dispatch import Dispatcher
from ottla.server.handlers import ADVERTISED, HANDLERS
from ottla.server.handlers.describe_configs import RESOURCES_PER_SLICE
from support.broker_world import with_broker
from support.sim_client import SimClient


def resource(kind: ConfigResourceType, name: str, *keys: str) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": name,
        "configuration_keys": list(keys) or None,
    }


async def describe(client: SimClient, *resources: dict[str, Any]) -> Any:
    asked = {"resources": list(resources), "include_synonyms": True}
    return (await client.ask(ApiKey.DESCRIBE_CONFIGS, 4, asked)).results


async def create(client: SimClient, names: list[str], **configs: str) -> Any:
    given = [{"name": name, "value": value} for name, value in configs.items()]
    topics = [
        {"name": name, "num_partitions": 1, "replication_factor": 1, "configs": given}
        for name in names
    ]
    return (await client.ask(ApiKey.CREATE_TOPICS, 7, {"topics": topics}, 60)).topics


def test_a_resource_that_is_asked_for_again_and_again_is_described_once() -> None:
    async def scenario(broker: Broker, client: SimClient) -> None:
        broker_one = resource(ConfigResourceType.BROKER, "1")
        results = await describe(client, *[broker_one] * 500)
        assert len(results) == 1
        assert len(results[0].configs) > 300
        one_key = resource(ConfigResourceType.BROKER, "1", "num.partitions")
        whole, part = await describe(client, broker_one, one_key, broker_one)
        assert [config.name for config in part.configs] == ["num.partitions"]
        assert len(whole.configs) > 300

    with_broker(scenario)


def test_what_is_altered_for_all_brokers_takes_effect_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[int] = []
    monkeypatch.setattr(
        SimulatedOffload, "resize", lambda _offload, threads_max: threads.append(threads_max)
    )

    async def alter(client: SimClient, name: str, value: str) -> None:
        changed = resource(ConfigResourceType.BROKER, "")
        changed["configs"] = [{"name": name, "config_operation": 0, "value": value}]
        answer = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [changed]})
        assert [one.error_code for one in answer.responses] == [ErrorCode.NONE]

    async def scenario(broker: Broker, client: SimClient) -> None:
        await create(client, ["t"])
        at = TopicPartition("t", 0)
        await alter(client, "producer.id.expiration.ms", "5000")
        assert broker.logs.get(at).producers.expiration_ms == 5000
        await create(client, ["u"])
        assert broker.logs.get(TopicPartition("u", 0)).producers.expiration_ms == 5000
        await alter(client, "background.threads", "12")
        assert threads[-1] == 12

    with_broker(scenario)


def test_many_topics_look_as_each_alone() -> None:
    names = [f"t{number}" for number in range(100)]

    async def scenario(broker: Broker, client: SimClient) -> None:
        created = await create(client, names[:99])
        created += await create(client, names[99:], **{"retention.ms": "5000"})
        assert [topic.name for topic in created] == names
        assert {topic.error_code for topic in created} == {ErrorCode.NONE}
        assert {c.name: c.value for c in created[99].configs}["retention.ms"] == "5000"
        assert {c.name: c.value for c in created[98].configs}["retention.ms"] != "5000"
        asked = [resource(ConfigResourceType.TOPIC, name) for name in (*names, "absent")]
        together = await describe(client, *asked)
        alone = [(await describe(client, one))[0] for one in asked]
        assert together == tuple(alone)
        assert together[-1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        configs = broker.services.configs
        assert configs.topic("t0") is configs.topic("t1") is not configs.topic("t99")

    with_broker(scenario)


def test_others_are_served_while_many_resources_are_described() -> None:
    names = [f"t{number}" for number in range(400)]

    async def scenario(broker: Broker, client: SimClient) -> None:
        await create(client, names)
        asked = {"resources": [resource(ConfigResourceType.TOPIC, name) for name in names]}
        frame = memoryview(encode_request(ApiKey.DESCRIBE_CONFIGS, 4, 1, "test", asked))
        dispatch = Dispatcher(broker.services, "PLAINTEXT", HANDLERS, ADVERTISED)
        header = parse_header(frame, 0, len(frame))
        connection: Any = SimpleNamespace(peer_host="somewhere")
        deferred = dispatch(connection, header, frame, len(frame))
        assert isinstance(deferred, Deferred)
        answer: Any = deferred.answer
        pauses, encoded = 0, b""
        while not encoded:
            try:
                answer.send(None)
                pauses += 1
            except StopIteration as end:
                encoded = end.value
        _, response = decode_response(ApiKey.DESCRIBE_CONFIGS, 4, memoryview(encoded))
        assert [one.resource_name for one in response.results] == names
        # Once for each slice that is described, and once for each that is encoded.
        assert pauses >= 2 * len(names) // RESOURCES_PER_SLICE

    with_broker(scenario)
