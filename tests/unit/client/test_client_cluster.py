"""The client against a broker in this process, and against peers that are none."""

import socket
import threading
from collections.abc import Iterator
from struct import pack

import pytest

from ottla.client import (
    EARLIEST,
    LATEST,
    Client,
    ClientConfig,
    CommittedOffset,
    CoordinatorType,
    CorruptBatch,
    PartitionFetcher,
    TopicPartition,
    Unreachable,
    commit_offsets,
    committed_offsets,
    fetcher,
    list_offsets,
)
from ottla.client.fetch_response import FetchedPartition, FetchedTopic, FetchResponse
from ottla.protocol.api import ApiKey
from ottla.protocol.batches import (
    MAGIC_AT,
    Record,
    build_batch,
    iter_batches,
    iter_records,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.testing import Cluster
from support.wire import Wire

PARTITIONS = [TopicPartition("numbers", 0), TopicPartition("numbers", 1)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        cluster.create_topic("numbers", 2, config={"retention.ms": "-1"})
        with Wire(cluster.bootstrap_servers) as wire:
            for start in range(0, 600, 60):
                records = [
                    Record(n, 1000 + start + n, b"%d" % (start + n), bytes(500)) for n in range(60)
                ]
                wire.produce("numbers", build_batch(records), partition=0)
        yield cluster


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    config = ClientConfig.of(cluster.bootstrap_servers, max_partition_fetch_bytes="70000")
    with Client(config) as client:
        yield client


def keys_of(records: memoryview) -> list[bytes | None]:
    return [
        record.key
        for position, header in iter_batches(records)
        for record in iter_records(records[position : position + header.size_bytes])
    ]


def test_metadata_names_leaders_and_ids(client: Client) -> None:
    topic = client.topic("numbers")
    assert sorted(topic.partitions) == [0, 1]
    assert topic.topic_id is not None
    assert client.topic_names() == ["numbers"]
    assert client.leader("numbers", 1) == client.controller()
    with pytest.raises(KafkaError, match="no partition 2"):
        client.partition("numbers", 2)


def test_asking_for_a_topic_that_is_missing_does_not_create_it(client: Client) -> None:
    with pytest.raises(KafkaError, match="'absent' does not exist") as caught:
        client.topic("absent")
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.topic_names() == ["numbers"]


def test_offsets_by_place_and_time(client: Client) -> None:
    ends = list_offsets(client, dict.fromkeys(PARTITIONS, LATEST))
    assert [ends[p].offset for p in PARTITIONS] == [600, 0]
    found = list_offsets(client, {PARTITIONS[0]: 1100, PARTITIONS[1]: EARLIEST})
    assert [found[p].offset for p in PARTITIONS] == [100, 0]
    assert list_offsets(client, {PARTITIONS[0]: 9_999_999})[PARTITIONS[0]].offset == -1


def test_a_group_keeps_offsets_without_members(client: Client) -> None:
    assert committed_offsets(client, "plain", PARTITIONS) == {}
    commit_offsets(client, "plain", {PARTITIONS[0]: CommittedOffset(17, "seen by the test")})
    for partitions in (PARTITIONS, None):
        found = committed_offsets(client, "plain", partitions, require_stable=True)
        assert found == {PARTITIONS[0]: CommittedOffset(17, "seen by the test")}
    assert client.coordinator(CoordinatorType.GROUP, "plain") == client.controller()


@pytest.mark.parametrize("start", [0, 75, 599])
def test_fetching_pipelines_every_batch_in_order(client: Client, start: int) -> None:
    keys: list[bytes | None] = []
    for chunk in PartitionFetcher(client, PARTITIONS[0], start, 600):
        keys += keys_of(chunk.records)
    first = start // 60 * 60
    assert keys == [b"%d" % n for n in range(first, 600)]


@pytest.mark.parametrize("version", [4, 6, 11, 12, 13, 17])
def test_fetching_in_older_versions(client: Client, version: int) -> None:
    connection = client.broker(client.controller())
    lowest, _ = connection._ranges[ApiKey.FETCH]
    connection._ranges[ApiKey.FETCH] = (lowest, version)
    chunk = PartitionFetcher(client, PARTITIONS[0], 0, 60).next_chunk()
    assert keys_of(chunk.records)[:2] == [b"0", b"1"]


def test_a_fetcher_given_up_half_way_leaves_the_client_usable(client: Client) -> None:
    fetcher = PartitionFetcher(client, PARTITIONS[0], 0, 600)
    assert len(fetcher.next_chunk().records)
    fetcher.close()
    assert client.topic("numbers", is_fresh=True).name == "numbers"


def test_fetching_nothing_ends_in_time(client: Client) -> None:
    fetcher = PartitionFetcher(client, PARTITIONS[1], 0, 1, poll_timeout_ms=10)
    with pytest.raises(KafkaError, match="sent nothing from offset 0") as caught:
        fetcher.next_chunk()
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT


def test_an_offset_out_of_range_is_told_to_the_caller(client: Client) -> None:
    with pytest.raises(KafkaError) as caught:
        PartitionFetcher(client, PARTITIONS[0], 601, 700).next_chunk()
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("allowed", "first_max", "later_max"),
    [(3 << 20, 1 << 20, 3 << 20), (200_000, 200_000, 200_000)],
    ids=["more than Kafka's default", "less"],
)
def test_a_long_range_is_fetched_in_pieces_as_large_as_they_may_be(
    allowed: int, first_max: int, later_max: int
) -> None:
    batch_bytes = 100_000
    partition = TopicPartition("long", 0)
    with Cluster() as own:
        own.create_topic("long", 1, config={"retention.ms": "-1"})
        with Wire(own.bootstrap_servers) as wire:
            for _ in range(50):
                wire.produce("long", build_batch([Record(0, 1000, None, bytes(batch_bytes))]))
        config = ClientConfig.of(own.bootstrap_servers, max_partition_fetch_bytes=str(allowed))
        with Client(config) as client:
            chunks = PartitionFetcher(client, partition, 0, 50)
            pieces = [(len(chunk.records), len(keys_of(chunk.records))) for chunk in chunks]
    assert sum(count for _, count in pieces) == 50
    assert first_max - 2 * batch_bytes < pieces[0][0] <= first_max
    assert later_max - 2 * batch_bytes < pieces[1][0] <= later_max


def test_clients_of_several_threads_do_not_disturb_each_other(cluster: Cluster) -> None:
    config = ClientConfig.of(cluster.bootstrap_servers, max_partition_fetch_bytes="1000")
    counts: list[int] = []

    def read() -> None:
        with Client(config) as own:
            chunks = PartitionFetcher(own, PARTITIONS[0], 0, 600)
            counts.append(sum(len(keys_of(chunk.records)) for chunk in chunks))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [600] * 4


def test_a_broker_that_comes_back_is_found_again() -> None:
    with Cluster() as own:
        own.create_topic("lasting")
        with Client(ClientConfig.of(own.bootstrap_servers)) as client:
            partition = TopicPartition("lasting", 0)
            assert list_offsets(client, {partition: LATEST})[partition].offset == 0
            own.restart()
            assert list_offsets(client, {partition: LATEST})[partition].offset == 0


def test_no_broker_is_one_sentence() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    client = Client(ClientConfig.of(f"127.0.0.1:{port}", default_api_timeout_ms="1"))
    with pytest.raises(Unreachable, match=f"127.0.0.1:{port} cannot be reached"):
        client.topic_names()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "is it a Kafka broker"),
        (pack(">ii", 4, 99), "answered request 99"),
        (b"", "closed the connection"),
    ],
)
def test_a_peer_that_is_no_broker_is_told_apart(answer: bytes, reason: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        port = server.getsockname()[1]
        client = Client(ClientConfig.of(f"127.0.0.1:{port}"))
        with pytest.raises(Unreachable, match=reason):
            client.any_connection()
        thread.join()


def test_only_what_may_pass_is_tried_again(client: Client) -> None:
    calls: list[ErrorCode] = []
    answers = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NETWORK_EXCEPTION]

    def attempt() -> int:
        if not answers:
            return 5
        calls.append(answers.pop(0))
        raise KafkaError(calls[-1], "not now")

    assert client.retrying(attempt) == 5
    assert len(calls) == 2
    answers.append(ErrorCode.INVALID_REQUEST)
    with pytest.raises(KafkaError, match="not now"):
        client.retrying(attempt)
    answers.append(ErrorCode.NETWORK_EXCEPTION)
    with pytest.raises(KafkaError, match="not now"):
        client.retrying(attempt, timeout_ms=1)


BATCH_LENGTH_AT = 8


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (BATCH_LENGTH_AT, "bytes and message format 2"),
        (BATCH_LENGTH_AT + 1, "less than it claims"),
        (MAGIC_AT, "only format 2 is read"),
    ],
)
def test_a_damaged_header_is_told_at_once(
    client: Client, monkeypatch: pytest.MonkeyPatch, place: int, said: str
) -> None:
    parse = fetcher.parse_fetch_response
    answers = []

    def damaged(version: int, frame: memoryview, body_start: int) -> FetchResponse:
        response = parse(version, frame, body_start)
        answers.append(response)
        response.topics[0].partitions[0].records[place] ^= 0xFF
        return response

    monkeypatch.setattr(fetcher, "parse_fetch_response", damaged)
    with pytest.raises(CorruptBatch, match=f"of topic numbers, partition 0, is corrupt.*{said}"):
        PartitionFetcher(client, PARTITIONS[0], 0, 60).next_chunk()
    assert len(answers) == 1


def test_corruption_that_the_broker_found_is_told_at_once(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = FetchedPartition(0, ErrorCode.CORRUPT_MESSAGE, 0, 0, 0, (), -1, memoryview(b""))
    response = FetchResponse(0, 0, 0, [FetchedTopic("numbers", [answer])])
    monkeypatch.setattr(fetcher, "parse_fetch_response", lambda *arguments: response)
    with pytest.raises(CorruptBatch, match=r"offset 7 of topic numbers.*the broker says so"):
        PartitionFetcher(client, PARTITIONS[0], 7, 60).next_chunk()
