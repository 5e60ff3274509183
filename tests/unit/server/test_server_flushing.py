"""When a running broker syncs records: by flush.ms, looked at as often as it is told to."""

import asyncio

import pytest

from support.broker_room import BrokerRoom, in_broker_room


@pytest.mark.parametrize(
    ("config", "late_s", "due_s"),
    [
        ({}, 0.5, 2.5),  # Kafka's default would never look
        ({"log.flush.scheduler.interval.ms": "6000"}, 3.0, 7.0),
        ({"log.flush.scheduler.interval.ms": "100"}, 0.05, 0.4),
    ],
)
def test_records_are_synced_when_flush_ms_is_over(
    config: dict[str, str], late_s: float, due_s: float
) -> None:
    async def story(room: BrokerRoom) -> None:
        await room.create_topic("t", flush_ms="100")
        await room.produce("t", room.batch())
        log = room.broker.replicas.partitions["t", 0].log
        start = room.now
        while room.now - start < due_s and not log.recovery_point:
            await asyncio.sleep(0.01)
        assert log.recovery_point == 1
        await room.produce("t", room.batch())
        await asyncio.sleep(late_s)
        assert log.recovery_point == 1
        await asyncio.sleep(due_s)
        assert log.recovery_point == 2

    in_broker_room(story, config)
