"""When a fetch is answered: min_bytes against what there is, limits and older segments."""

import asyncio
from typing import Any

import pytest

from ottla.protocol.batches import Record, build_batch, iter_batches, iter_records
from ottla.runtime.simulated.node_world import SimulatedOffload
from ottla.storage.log import PartitionLog
from ottla.storage.slices import LogSlice
from support.broker_room import BrokerRoom, in_broker_room

WAIT_MS = 20_000


async def fill(room: BrokerRoom, count: int, size: int = 1_000) -> int:
    """Batches in partition 0 of `t`; the bytes of one."""
    batch = room.batch(size)
    for _ in range(count):
        assert (await room.produce("t", batch)).error_code == 0
    return len(batch)


async def seconds_of_fetch(room: BrokerRoom, **asked: int) -> tuple[float, int]:
    """How long the answer took, virtually, and how many bytes of records it had."""
    start = room.now
    answer = await room.fetch("t", asked.pop("offset", 0), wait_ms=WAIT_MS, **asked)  # type: ignore[arg-type]  # numbers
    assert answer.error_code == 0
    return room.now - start, len(answer.records or b"")


def test_a_fetch_that_its_partitions_limit_cuts_does_not_wait_for_more() -> None:
    async def story(room: BrokerRoom) -> None:
        await room.create_topic("t")
        size = await fill(room, 10)
        limit = size * 5 // 2
        seconds, length = await seconds_of_fetch(room, partition_bytes_max=limit, bytes_min=limit)
        assert seconds < 1
        assert length == 2 * size

    in_broker_room(story)


def test_a_fetch_of_an_older_segment_does_not_wait() -> None:
    async def story(room: BrokerRoom) -> None:
        await room.create_topic("t", segment_bytes="1048576")
        await fill(room, 3, size=400_000)
        seconds, length = await seconds_of_fetch(room, bytes_min=10_000_000)
        assert seconds < 1
        assert length > 0
        # The rest, in the active segment, is too little.
        seconds, _ = await seconds_of_fetch(room, offset=2, bytes_min=10_000_000)
        assert seconds >= WAIT_MS / 1000

    in_broker_room(story)


def test_nobody_waits_for_more_than_an_answer_may_hold() -> None:
    async def story(room: BrokerRoom) -> None:
        await room.create_topic("t")
        size = await fill(room, 3)
        seconds, length = await seconds_of_fetch(room, bytes_min=1 << 30, bytes_max=size * 2)
        assert seconds < 1
        assert length == 2 * size
        seconds, _ = await seconds_of_fetch(room, bytes_min=5, bytes_max=0)
        assert seconds < 1

    in_broker_room(story, {"fetch.max.bytes": "5000"})


def test_a_fetch_waits_until_there_are_enough_bytes() -> None:
    async def story(room: BrokerRoom) -> None:
        await room.create_topic("t")
        size = await fill(room, 1)
        client = room.new_client()
        waiting = asyncio.create_task(
            room.fetch("t", 0, bytes_min=3 * size, wait_ms=WAIT_MS, client=client)
        )
        for count in (1, 2):
            await asyncio.sleep(1)
            assert not waiting.done(), f"answered with {count} of 3 batches"
            await fill(room, 1)
        answer = await asyncio.wait_for(waiting, 1)
        assert len(answer.records) == 3 * size

    in_broker_room(story)


def test_a_fetch_that_never_gets_enough_has_what_there_is_when_its_time_is_up() -> None:
    async def story(room: BrokerRoom) -> None:
        await room.create_topic("t")
        size = await fill(room, 2)
        seconds, length = await seconds_of_fetch(room, bytes_min=3 * size)
        assert WAIT_MS / 1000 <= seconds < WAIT_MS / 1000 + 1
        assert length == 2 * size

    in_broker_room(story)


@pytest.mark.parametrize("seed", range(12))
def test_a_client_that_goes_as_its_records_come_leaves_no_file_in_use(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(room: BrokerRoom) -> None:
        await room.create_topic("t")
        await fill(room, 1)
        client = room.new_client()
        waiting = asyncio.create_task(room.fetch("t", 1, wait_ms=WAIT_MS, client=client))
        await asyncio.sleep(1)
        connection = next(one for one in room.broker._acceptors[-1].connections if one.is_answering)
        partition = room.broker.replicas.partitions["t", 0]
        read = PartitionLog.read

        def read_and_lose(self: PartitionLog, *args: Any, **limits: Any) -> LogSlice:
            found = read(self, *args, **limits)
            if found.length:
                asyncio.get_running_loop().call_soon(connection.connection_lost, None)
            return found

        monkeypatch.setattr(PartitionLog, "read", read_and_lose)
        await fill(room, 1, size=100_000)
        await asyncio.sleep(1)
        assert partition.log.segments[-1].log.pins == 0
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    in_broker_room(story, seed=seed)


async def read_all(room: BrokerRoom, limit: int, *, isolation: int = 0) -> list[bytes]:
    """Every value of partition 0, fetched with this limit."""
    values: list[bytes] = []
    offset = 0
    while True:
        answer = await room.fetch(
            "t", offset, partition_bytes_max=limit, wait_ms=0, isolation=isolation
        )
        assert answer.error_code == 0, answer
        if not answer.records:
            assert offset == answer.high_watermark
            return values
        for at, header in iter_batches(answer.records):
            batch = answer.records[at : at + header.size_bytes]
            values += [record.value or b"" for record in iter_records(batch)]
            offset = header.next_offset


@pytest.mark.parametrize("cold", [0.5, 1.0])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_the_page_cache_lacks_is_read_by_threads(cold: float, is_restarted: bool) -> None:
    async def story(room: BrokerRoom) -> None:
        await room.create_topic("t", segment_bytes="1048576", index_interval_bytes="5000")
        expected = []
        for n in range(60):
            value = bytes([n]) * (200 * n * n % 90_000)
            expected.append(value)
            now_ms = room.simulation.runtime("client").clock.wall_ms()
            await room.produce("t", bytes(build_batch([Record(0, now_ms, None, value)])))
        if is_restarted:
            await room.restart()
        room.disk.cold_read_probability = cold
        warmed = 0
        run = SimulatedOffload.run

        async def count(self: SimulatedOffload, function: Any, *args: Any) -> Any:
            nonlocal warmed
            warmed += 1
            return await run(self, function, *args)

        SimulatedOffload.run = count  # type: ignore[method-assign]  # put back below
        try:
            for limit in (100, 30_000, 200_000, 5_000_000):
                for isolation in (0, 1):
                    before = warmed
                    assert await read_all(room, limit, isolation=isolation) == expected
                    assert warmed > before
        finally:
            SimulatedOffload.run = run  # type: ignore[method-assign]  # as it was
        files = [segment.log for segment in room.broker.replicas.partitions["t", 0].log.segments]
        assert len(files) > 2
        assert not any(file.pins for file in files)

    in_broker_room(story)
