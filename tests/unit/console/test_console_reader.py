"""Records out of fetched batches: what is shown, what is passed over, where to go on."""

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client import EARLIEST, ClientConfig, TopicPartition, Unreachable
from ottla.client.connection import Frame
from ottla.client.fetch_response import (
    AbortedTransaction,
    FetchedPartition,
    FetchedTopic,
    FetchResponse,
)
from ottla.client.offsets import OffsetAtTime
from ottla.console.kafka import reader as reading
from ottla.console.kafka.group_questions import parse_assignment
from ottla.console.kafka.reader import Reader, read_batches
from ottla.protocol.api import ApiKey
from ottla.protocol.batches import ControlType, Record, build_batch, control_batch
from ottla.protocol.errors import ErrorCode, KafkaError


def batch(base: int, count: int, *, producer: int = -1) -> bytes:
    records = [Record(base + n, 1000 + n, None, b"v%d" % (base + n), ()) for n in range(count)]
    return bytes(
        build_batch(records, base_offset=base, producer_id=producer, is_transactional=producer >= 0)
    )


def marker(offset: int, producer: int) -> bytes:
    return bytes(
        control_batch(
            ControlType.ABORT, base_offset=offset, producer_id=producer, producer_epoch=0,
            timestamp_ms=1, coordinator_epoch=0, leader_epoch=0,
        )
    )  # fmt: skip


def read(data: bytes, offset: int, *aborted: AbortedTransaction) -> tuple[list[int], int]:
    answer = FetchedPartition(3, 0, 99, 99, 0, aborted, -1, memoryview(data))
    shown, following = [], offset
    for record, after in read_batches(answer, offset):
        if record is not None:
            shown.append(record.offset)
        following = after
    return shown, following


def test_records_before_the_offset_are_passed_over_and_a_cut_batch_is_left() -> None:
    data = batch(0, 5) + batch(5, 3)
    assert read(data, 3) == ([3, 4, 5, 6, 7], 8)
    assert read(data[:-1], 3) == ([3, 4], 5)
    assert read(data[:40], 3) == ([], 3)


def test_aborted_transactions_and_markers_are_not_shown_to_who_reads_committed() -> None:
    data = batch(0, 2, producer=7) + batch(2, 2) + marker(4, 7) + batch(5, 1, producer=7)
    assert read(data, 0) == ([0, 1, 2, 3, 5], 6)
    assert read(data, 0, AbortedTransaction(7, 0)) == ([2, 3, 5], 6)


def test_an_assignment_is_read_and_a_lie_in_it_is_nothing() -> None:
    data = struct.pack(">hi", 1, 1) + struct.pack(">h", 1) + b"t" + struct.pack(">iii", 2, 4, 0)
    assert parse_assignment(data) == (("t", 0), ("t", 4))
    huge = struct.pack(">hi", 1, 1) + struct.pack(">h", 1) + b"t" + struct.pack(">i", 2**31 - 1)
    assert parse_assignment(huge) == ()


@given(st.binary(max_size=80))
def test_no_bytes_of_a_member_make_an_assignment_fail(data: bytes) -> None:
    parse_assignment(data)


class StubConnection:
    """Answers in the order of the questions, as a broker does."""

    def __init__(self, answers: list[FetchResponse | KafkaError]) -> None:
        self.answers = answers
        self.pending_count = 0

    def version_of(self, api_key: ApiKey, *, highest: int | None = None) -> int:
        return 12

    def send(self, api_key: ApiKey, fields: object, *, version: int) -> int:
        self.pending_count += 1
        return version

    def receive(self, *, extra_wait_ms: int = 0) -> Frame:
        self.pending_count -= 1
        answer = self.answers.pop(0)
        if isinstance(answer, KafkaError):
            raise answer
        return Frame(ApiKey.FETCH, 12, answer, 0)  # type: ignore[arg-type]  # parsed by the stub


class StubClient:
    def __init__(self, leaders: dict[int, int], connections: dict[int, StubConnection]) -> None:
        self.leaders = leaders
        self.connections = connections
        self.forgotten: list[str] = []

    def leader(self, topic: str, partition: int) -> int:
        if self.leaders[partition] < 0:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader now")
        return self.leaders[partition]

    def broker(self, node_id: int) -> StubConnection:
        return self.connections[node_id]

    def forget_topic(self, topic: str) -> None:
        self.forgotten.append(topic)


def fetched(topic: str, partition: int, data: bytes = b"", code: int = 0) -> FetchResponse:
    found = FetchedPartition(partition, code, 9, 9, -1, (), -1, memoryview(data))
    return FetchResponse(0, 0, 0, [FetchedTopic(topic, [found])])


@pytest.fixture
def stubbed(monkeypatch: pytest.MonkeyPatch) -> Callable[[StubClient], Reader]:
    monkeypatch.setattr(reading, "parse_fetch_response", lambda version, data, start: data)

    def make(client: StubClient) -> Reader:
        reader = Reader(ClientConfig.of("127.0.0.1:1"))
        reader._client = client  # type: ignore[assignment]
        return reader

    return make


@pytest.mark.parametrize(
    "failed",
    [
        Unreachable("broker 1 is gone"),
        fetched("t", 0, code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        FetchResponse(0, int(ErrorCode.UNKNOWN_SERVER_ERROR), 0, []),
    ],
)
def test_an_error_of_one_leader_leaves_no_answer_of_another_unread(
    stubbed: Callable[[StubClient], Reader], failed: FetchResponse | KafkaError
) -> None:
    other = StubConnection([fetched("t", 1, batch(0, 2)), fetched("u", 1, batch(0, 1))])
    client = StubClient({0: 1, 1: 2}, {1: StubConnection([failed]), 2: other})
    reader = stubbed(client)
    found = reader.fetch("t", {0: 0, 1: 0}, partition_bytes=100)
    assert [record.value for record in found.chunks[1].records] == [b"v0", b"v1"]
    assert found.troubles.keys() == {0}
    assert (other.pending_count, client.forgotten) == (0, ["t"])
    assert len(reader.fetch("u", {1: 0}, partition_bytes=100).chunks[1].records) == 1


def test_an_answer_for_another_topic_is_nobodys(
    stubbed: Callable[[StubClient], Reader],
) -> None:
    client = StubClient({0: 1}, {1: StubConnection([fetched("other", 0, batch(0, 2))])})
    found = stubbed(client).fetch("t", {0: 0}, partition_bytes=100)
    assert (found.chunks, found.troubles.keys()) == ({}, {0})


def test_a_partition_without_a_leader_does_not_hold_up_the_others(
    stubbed: Callable[[StubClient], Reader],
) -> None:
    client = StubClient({0: -1, 1: 1}, {1: StubConnection([fetched("t", 1, batch(0, 2))])})
    found = stubbed(client).fetch("t", {0: 0, 1: 0}, partition_bytes=100)
    assert found.chunks.keys() == {1}
    assert "no leader" in str(found.troubles[0])


@pytest.mark.parametrize(("offset", "moved", "is_at_end"), [(2, 5, False), (99, 20, True)])
def test_an_offset_out_of_range_moves_to_the_nearest_that_is_there(
    stubbed: Callable[[StubClient], Reader],
    monkeypatch: pytest.MonkeyPatch,
    offset: int,
    moved: int,
    is_at_end: bool,
) -> None:
    code = int(ErrorCode.OFFSET_OUT_OF_RANGE)
    client = StubClient({0: 1}, {1: StubConnection([fetched("t", 0, code=code)])})

    def list_offsets(
        _client: object, wanted: dict[TopicPartition, int], **_more: object
    ) -> dict[TopicPartition, OffsetAtTime]:
        return {
            key: OffsetAtTime(5 if at == EARLIEST else 20, -1, -1) for key, at in wanted.items()
        }

    monkeypatch.setattr(reading, "list_offsets", list_offsets)
    chunk = stubbed(client).fetch("t", {0: offset}, partition_bytes=100).chunks[0]
    assert (chunk.next_offset, chunk.is_at_end, chunk.is_starved) == (moved, is_at_end, False)


def test_an_empty_answer_before_the_end_is_starved_and_one_at_the_end_is_not(
    stubbed: Callable[[StubClient], Reader],
) -> None:
    client = StubClient({0: 1}, {1: StubConnection([fetched("t", 0), fetched("t", 0)])})
    reader = stubbed(client)
    assert reader.fetch("t", {0: 3}, partition_bytes=100).chunks[0].is_starved
    assert reader.fetch("t", {0: 9}, partition_bytes=100).chunks[0].is_at_end
