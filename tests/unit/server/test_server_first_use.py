"""The first use of a log after a start waits for threads, and the loop serves others meanwhile."""

import asyncio
from typing import Any

import pytest

from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.ids import TopicPartition
from ottla.runtime.simulated.node_world import SimulatedOffload
from ottla.storage.log_manager import LogManager
from ottla.storage.segment_indexes import IndexedSegment
from support.broker_room import BrokerRoom, in_broker_room

PARTITIONS = 4


def forbid_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a log or reading its indexes on the loop is an error from now on."""
    finish, load = SimulatedOffload._finish, IndexedSegment._load_indexes
    is_in_thread = False

    def finish_in_thread(self: SimulatedOffload, future: Any) -> None:
        nonlocal is_in_thread
        is_in_thread = True
        try:
            finish(self, future)
        finally:
            is_in_thread = False

    def get(self: LogManager, topic_partition: TopicPartition) -> None:
        raise AssertionError(f"the loop opens {topic_partition}")

    def load_in_thread(self: IndexedSegment) -> Any:
        assert is_in_thread, f"the loop reads the indexes of {self}"
        return load(self)

    monkeypatch.setattr(SimulatedOffload, "_finish", finish_in_thread)
    monkeypatch.setattr(LogManager, "get", get)
    monkeypatch.setattr(IndexedSegment, "_load_indexes", load_in_thread)


async def list_offset(room: BrokerRoom, partition: int, timestamp: int, **more: Any) -> Any:
    asked = {"partition_index": partition, "timestamp": timestamp}
    topics = [{"name": "t", "partitions": [asked]}]
    answer = await room.client.ask(
        ApiKey.LIST_OFFSETS, 7, {"replica_id": -1, "topics": topics, **more}
    )
    return answer.topics[0].partitions[0]


async def fill_and_restart(room: BrokerRoom, *, kill: bool) -> None:
    await room.create_topic("t", PARTITIONS, segment_bytes="1048576", index_interval_bytes="100")
    for partition in range(PARTITIONS):
        for _ in range(12):
            await room.produce("t", room.batch(200_000, 2), partition=partition)
    await (room.kill() if kill else room.restart())


@pytest.mark.parametrize("kill", [False, True])
def test_whatever_comes_first_finds_the_log_opened_by_a_thread(
    monkeypatch: pytest.MonkeyPatch, kill: bool
) -> None:
    async def story(room: BrokerRoom) -> None:
        await fill_and_restart(room, kill=kill)
        forbid_waiting(monkeypatch)
        produced = await room.produce("t", room.batch(), partition=0)
        assert (produced.error_code, produced.base_offset) == (0, 24)
        fetched = await room.fetch("t", 5, partition=1)
        assert (fetched.error_code, fetched.high_watermark) == (0, 24)
        assert len(fetched.records) > 200_000
        assert (await list_offset(room, 2, -1)).offset == 24
        assert (await list_offset(room, 2, -2)).offset == 0
        first = await list_offset(room, 2, 1)
        assert first.offset == 0
        assert (await list_offset(room, 2, first.timestamp + 1)).offset > 0
        assert (await list_offset(room, 2, -3)).offset >= 22
        deleted = await room.client.ask(
            ApiKey.DELETE_RECORDS,
            2,
            {
                "topics": [
                    {"name": "t", "partitions": [{"partition_index": 3, "offset": 7}]},
                ],
                "timeout": 1000,
            },
        )
        assert deleted.topics[0].partitions[0].low_watermark == 7

    in_broker_room(story)


def test_everybody_who_comes_while_a_log_is_opened_is_served_by_one_opening() -> None:
    async def story(room: BrokerRoom) -> None:
        await fill_and_restart(room, kill=False)
        openings: list[TopicPartition] = []
        opened_in_thread = room.broker.logs._open_in_thread

        def note(handle: Any, epoch: Any) -> Any:
            openings.append(handle.topic_partition)
            return opened_in_thread(handle, epoch)

        room.broker.logs._open_in_thread = note  # type: ignore[method-assign]  # counts
        answers = await asyncio.gather(
            *[room.fetch("t", 0, client=room.new_client()) for _ in range(5)],
            *[room.produce("t", room.batch(), client=room.new_client()) for _ in range(5)],
        )
        assert {one.error_code for one in answers} == {0}
        assert openings == [TopicPartition("t", 0)]
        assert sorted(one.base_offset for one in answers[5:]) == list(range(24, 29))

    in_broker_room(story)


def test_requests_of_one_connection_keep_their_order_while_a_log_is_opened() -> None:
    async def story(room: BrokerRoom) -> None:
        await fill_and_restart(room, kill=False)
        for number in range(3):
            answer = await room.produce("t", room.batch(), acks=(1, -1, 1)[number])
            assert answer.base_offset == 24 + number

    in_broker_room(story)


@pytest.mark.parametrize("seed", range(8))
def test_a_topic_that_is_made_anew_while_its_old_log_is_opened_stays(seed: int) -> None:
    async def story(room: BrokerRoom) -> None:
        await fill_and_restart(room, kill=seed % 2 == 1)
        early = [
            asyncio.create_task(room.fetch("t", 0, wait_ms=10, client=room.new_client()))
            for _ in range(3)
        ]
        await asyncio.sleep(0.003 * (seed % 4))
        await room.client.ask(ApiKey.DELETE_TOPICS, 3, {"topic_names": ["t"], "timeout": 1000})
        await room.create_topic("t", PARTITIONS)
        answers = await asyncio.gather(*early)
        assert {one.error_code for one in answers} <= {
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        }
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        while code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            produced = await room.produce("t", room.batch())
            code = produced.error_code
        assert (code, produced.base_offset) == (0, 0)
        assert len((await room.fetch("t", 0)).records) == len(room.batch())
        await room.restart()
        assert (await room.fetch("t", 0)).high_watermark == 1
        assert room.broker.logs.online_directories

    in_broker_room(story, seed=seed)


def test_a_log_that_cannot_be_opened_answers_with_its_error() -> None:
    async def story(room: BrokerRoom) -> None:
        await fill_and_restart(room, kill=False)
        room.disk.fail_io("/other/t-", reads=True)
        path = next(one.path for one in room.broker.logs.handles if one.topic_partition[1] == 1)
        room.disk.fail_io(path)
        for answer in (
            await room.fetch("t", 0, partition=1),
            await list_offset(room, 1, -1),
            await room.produce("t", room.batch(), partition=1),
        ):
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR

    in_broker_room(story, {"log.dirs": "/data,/other", "metadata.log.dir": "/metadata"})


def test_acks_zero_to_a_log_that_cannot_be_opened_costs_the_connection() -> None:
    async def story(room: BrokerRoom) -> None:
        await fill_and_restart(room, kill=False)
        path = next(one.path for one in room.broker.logs.handles if one.topic_partition[1] == 1)
        room.disk.fail_io(path)
        client = room.new_client()
        with pytest.raises(ConnectionError):
            await room.produce("t", room.batch(), partition=1, acks=0, client=client)

    in_broker_room(story, {"log.dirs": "/data,/other", "metadata.log.dir": "/metadata"})


@pytest.mark.parametrize("isolation", [-1, 2, 9])
def test_an_isolation_level_that_does_not_exist_is_refused(isolation: int) -> None:
    async def story(room: BrokerRoom) -> None:
        await room.create_topic("t")
        refused = await list_offset(room, 0, -1, isolation_level=isolation)
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert (await list_offset(room, 0, -1)).offset == 0

    in_broker_room(story)
