"""A full disk is told: in the log, by a gauge, and by /readyz, until there is room again."""

import asyncio
import json
import logging

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.server.exposition import render
from ottla.storage.failures import DiskFull
from ottla.storage.fullness import OVER_SECONDS, TOLD_AGAIN_SECONDS, Fullness
from support.broker_room import BrokerRoom, in_broker_room


def metrics(room: BrokerRoom) -> dict[str, float]:
    lines = render(room.broker.services).decode().splitlines()
    return {
        name.split("{")[0]: float(value)
        for name, value in (line.rsplit(" ", 1) for line in lines if line.startswith("ottla_log"))
    }


def test_a_broker_tells_of_a_full_disk_until_there_is_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(room: BrokerRoom) -> None:
        await room.create_topic("t")
        assert (await room.produce("t", room.batch())).error_code == 0
        assert metrics(room)["ottla_log_directory_full"] == 0
        room.disk.limit_space(10)
        caplog.clear()
        for _ in range(20):
            answer = await room.produce("t", room.batch())
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            room.disk.limit_space(10)
        told = [one for one in caplog.records if one.levelno == logging.ERROR]
        assert len(told) == 1
        assert "no room left" in told[0].getMessage()
        assert metrics(room)["ottla_log_directory_full"] == 1
        assert metrics(room)["ottla_log_directory_refusals_total"] >= 20
        page = room.broker._health.ready_page("")
        assert page.status == 200  # what is there can be read
        assert "no room left" in json.loads(page.body)["warnings"]["room in /data"]
        assert (await room.fetch("t", 0)).error_code == 0
        room.disk.limit_space(None)
        assert (await room.produce("t", room.batch())).error_code == 0
        await asyncio.sleep(OVER_SECONDS + 2)
        assert metrics(room)["ottla_log_directory_full"] == 0
        assert "warnings" not in json.loads(room.broker._health.ready_page("").body)

    in_broker_room(story)


def test_a_refusal_is_told_at_first_and_then_now_and_then() -> None:
    fullness, full = Fullness(), DiskFull("/data", "no space")
    assert fullness.note(full, 100.0)
    assert not fullness.note(full, 100.0 + TOLD_AGAIN_SECONDS - 1)
    assert fullness.note(full, 100.0 + TOLD_AGAIN_SECONDS)
    assert fullness.refusals_total == 3
    last = 100.0 + TOLD_AGAIN_SECONDS
    assert not fullness.maybe_end(last + OVER_SECONDS - 1, has_room=True)
    assert not fullness.maybe_end(last + OVER_SECONDS, has_room=False)
    assert fullness.maybe_end(last + OVER_SECONDS, has_room=True)
    assert not fullness.maybe_end(last + OVER_SECONDS, has_room=True)
    assert fullness.note(full, last + OVER_SECONDS)
