"""Which topics are counted: those that exist, each for itself."""

from typing import Any

from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from support.broker_room import BrokerRoom, in_broker_room


async def produce_to(room: BrokerRoom, topics: list[str]) -> list[int]:
    data = [{"index": 0, "records": room.batch()}]
    fields = {
        "transactional_id": None,
        "acks": 1,
        "timeout": 1000,
        "topic_data": [{"name": name, "partition_data": data} for name in topics],
    }
    answer = await room.client.ask(ApiKey.PRODUCE, 9, fields)
    return [one.partition_responses[0].error_code for one in answer.responses]


def counted(room: BrokerRoom) -> dict[str, Any]:
    return room.broker.services.metrics.topics


def test_names_that_somebody_made_up_are_not_counted() -> None:
    async def story(room: BrokerRoom) -> None:
        await room.create_topic("t")
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await produce_to(room, ["made up", "t"]) == [unknown, 0]
        assert (await room.fetch("another", 0)).error_code == unknown
        assert (await room.fetch("t", 0)).error_code == 0
        assert list(counted(room)) == ["t"]
        await room.client.ask(ApiKey.DELETE_TOPICS, 3, {"topic_names": ["t"], "timeout": 1000})
        assert await produce_to(room, ["t"]) == [unknown]
        assert (await room.fetch("t", 0)).error_code == unknown
        assert counted(room) == {}

    in_broker_room(story)


def test_a_failure_counts_for_its_own_topic() -> None:
    async def story(room: BrokerRoom) -> None:
        for name in ("a", "b"):
            await room.create_topic(name)
        await room.create_topic("small", max_message_bytes="10")
        await produce_to(room, ["a", "small", "b"])
        failures = {name: one.failed_produce_requests for name, one in counted(room).items()}
        assert failures == {"a": 0, "small": 1, "b": 0}

    in_broker_room(story)
