"""What strangers send: each gets Kafka's answer or a closed connection, and no one else notices."""

import random
from collections.abc import Iterator
from struct import pack, pack_into
from uuid import UUID

import psutil
import pytest

from ottla.protocol.api import ApiKey
from ottla.protocol.batches import (
    CRC_AT,
    LAST_OFFSET_DELTA_AT,
    MAGIC_AT,
    RECORDS_COUNT_AT,
    write_crc,
)
from ottla.protocol.codecs import Codec
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import encode_request
from ottla.testing import Cluster
from support.wire import Wire, batch_of

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        running.create_topic("t")
        running.create_topic("old", config={"message.timestamp.before.max.ms": "1000"})
        large = {"max.message.bytes": "30000000"}  # for bombs that compress badly
        running.create_topic("keyed", config={"cleanup.policy": "compact", **large})
        running.create_topic("forced", config={"compression.type": "gzip", **large})
        yield running


@pytest.fixture
def wire(cluster: Cluster) -> Iterator[Wire]:
    with Wire(cluster.bootstrap_servers) as connected:
        yield connected


@pytest.fixture(autouse=True)
def _a_good_client_goes_on(cluster: Cluster) -> Iterator[None]:
    """A connection from before the test still works after it."""
    with Wire(cluster.bootstrap_servers) as good:
        before = good.produce("t", bytes(batch_of(b"good", timestamp_ms=NOW_MS)))
        yield
        after = good.produce("t", bytes(batch_of(b"good", timestamp_ms=NOW_MS)))
        assert (before.error_code, after.error_code) == (0, 0)
        assert after.base_offset > before.base_offset


def test_random_bytes_close_the_connection(cluster: Cluster) -> None:
    chance = random.Random(7)
    for _ in range(50):
        with Wire(cluster.bootstrap_servers) as wire:
            wire.socket.sendall(b"\xff" + chance.randbytes(chance.randint(10, 400)))
            assert wire.is_closed_by_peer()


@pytest.mark.parametrize("length", [2**31 - 1, -1, 0, 7, 104_857_601])
def test_an_announced_length_outside_the_limits_closes_the_connection(
    wire: Wire, length: int
) -> None:
    wire.socket.sendall(pack(">i", length))
    assert wire.is_closed_by_peer()


def test_an_array_of_two_billion_closes_the_connection_without_the_memory(wire: Wire) -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    for key, version in ((3, 1), (2, 1), (19, 2), (32, 1)):
        with Wire(f"{wire.socket.getpeername()[0]}:{wire.socket.getpeername()[1]}") as one:
            one.send(pack(">hhih", key, version, 1, -1) + pack(">i", 2**31 - 1) * 4)
            assert one.is_closed_by_peer()
    assert process.memory_info().rss - before < 32 << 20


def test_an_unknown_api_closes_the_connection(wire: Wire) -> None:
    wire.send(pack(">hhih", 4242, 0, 1, -1))
    assert wire.is_closed_by_peer()


@pytest.mark.parametrize(("key", "version"), [(0, 2), (0, 99), (1, 3), (1, 99), (3, 99), (3, -1)])
def test_an_unknown_version_closes_the_connection(wire: Wire, key: int, version: int) -> None:
    wire.send(pack(">hhih", key, version, 1, -1) + bytes(40))
    assert wire.is_closed_by_peer()


def test_api_versions_of_the_future_is_answered_in_version_0(wire: Wire) -> None:
    wire.send(pack(">hhih", 18, 99, 77, -1) + b"\0\1\2\3")
    frame = wire.receive()
    assert frame is not None
    assert frame[:6] == pack(">ih", 77, ErrorCode.UNSUPPORTED_VERSION)


def test_truncated_requests_close_the_connection(cluster: Cluster) -> None:
    whole = encode_request(
        ApiKey.METADATA,
        9,
        1,
        "wire",
        {"topics": [{"name": "t"}], "allow_auto_topic_creation": False},
    )
    for size in range(8, len(whole) - 3):
        with Wire(cluster.bootstrap_servers) as wire:
            wire.send(whole[:size])
            assert wire.is_closed_by_peer(), size


def test_a_slow_writer_is_served_byte_by_byte_and_others_meanwhile(cluster: Cluster) -> None:
    request = encode_request(ApiKey.API_VERSIONS, 0, 9, "slow", {})
    data = pack(">i", len(request)) + request
    with Wire(cluster.bootstrap_servers) as slow, Wire(cluster.bootstrap_servers) as fast:
        for byte in data:
            slow.socket.sendall(bytes([byte]))
            assert fast.ask(ApiKey.API_VERSIONS, 0, {}).error_code == 0
        assert slow.receive() is not None


def test_a_wrong_crc_is_a_corrupt_message(wire: Wire) -> None:
    batch = batch_of(b"x", timestamp_ms=NOW_MS)
    batch[CRC_AT] ^= 1
    assert wire.produce("t", bytes(batch)).error_code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("magic", "code"),
    [
        (0, ErrorCode.INVALID_RECORD),
        (1, ErrorCode.INVALID_RECORD),
        (3, ErrorCode.CORRUPT_MESSAGE),
        (255, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_another_message_format_is_refused(wire: Wire, magic: int, code: ErrorCode) -> None:
    batch = batch_of(b"x", timestamp_ms=NOW_MS)
    batch[MAGIC_AT] = magic
    assert wire.produce("t", bytes(batch)).error_code == code


@pytest.mark.parametrize("at", [LAST_OFFSET_DELTA_AT, RECORDS_COUNT_AT])
@pytest.mark.parametrize("value", [0, 1, 5, 2**31 - 1, -1])
def test_a_count_that_disagrees_is_an_invalid_record(wire: Wire, at: int, value: int) -> None:
    batch = batch_of(b"x", b"y", b"z", timestamp_ms=NOW_MS)
    pack_into(">i", batch, at, value)
    write_crc(batch, 0)
    assert wire.produce("t", bytes(batch)).error_code == ErrorCode.INVALID_RECORD


def test_a_count_that_agrees_with_the_header_but_not_with_the_records_is_refused(
    wire: Wire,
) -> None:
    batch = batch_of(b"x", b"y", b"z", timestamp_ms=NOW_MS)
    pack_into(">i", batch, LAST_OFFSET_DELTA_AT, 6)
    pack_into(">i", batch, RECORDS_COUNT_AT, 7)
    write_crc(batch, 0)
    assert wire.produce("t", bytes(batch)).error_code == ErrorCode.INVALID_RECORD


def test_a_batch_above_the_limit_is_too_large(wire: Wire) -> None:
    answer = wire.produce("t", bytes(batch_of(bytes(2_000_000), timestamp_ms=NOW_MS)))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_record_from_the_future_or_too_old_has_an_invalid_timestamp(wire: Wire) -> None:
    future = bytes(batch_of(b"x", timestamp_ms=2**42))
    assert wire.produce("t", future).error_code == ErrorCode.INVALID_TIMESTAMP
    past = bytes(batch_of(b"x", timestamp_ms=NOW_MS - DAY_MS))
    assert wire.produce("old", past).error_code == ErrorCode.INVALID_TIMESTAMP


def test_a_compacted_topic_wants_keys(wire: Wire) -> None:
    answer = wire.produce("keyed", bytes(batch_of(b"x", timestamp_ms=NOW_MS)))
    assert answer.error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY])
def test_a_decompression_bomb_is_refused_without_the_memory(wire: Wire, codec: Codec) -> None:
    """The topic forces gzip, so the broker must open what comes in another codec or keyed."""
    bomb = bytes(batch_of(bytes(200 << 20), timestamp_ms=NOW_MS, codec=codec))
    process = psutil.Process()
    before = process.memory_info().rss
    topic = "keyed" if codec is Codec.GZIP else "forced"
    answer = wire.produce(topic, bomb)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert "holds more than" in answer.error_message  # the decoder said so, not a limit before it
    assert process.memory_info().rss - before < 128 << 20


def test_no_records_and_unknown_partitions_have_their_own_errors(wire: Wire) -> None:
    good = bytes(batch_of(b"x", timestamp_ms=NOW_MS))
    assert wire.produce("t", None).error_code != 0
    assert wire.produce("nope", good).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert wire.produce("t", good, partition=9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert wire.produce("t", good, acks=5).error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_many_half_frames_at_once_leave_the_broker_small(cluster: Cluster) -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    wires = [Wire(cluster.bootstrap_servers) for _ in range(200)]
    try:
        for wire in wires:
            wire.socket.sendall(pack(">i", 50 << 20) + bytes(1000))
        assert wires[0].socket.fileno() >= 0
        with Wire(cluster.bootstrap_servers) as good:
            assert good.ask(ApiKey.API_VERSIONS, 0, {}).error_code == 0
        assert process.memory_info().rss - before < 64 << 20
    finally:
        for wire in wires:
            wire.socket.close()


def test_a_replica_id_of_a_stranger_is_refused(cluster: Cluster, wire: Wire) -> None:
    response = wire.ask(
        ApiKey.FETCH,
        11,
        {
            "replica_id": 55,
            "max_wait": 0,
            "min_bytes": 0,
            "max_bytes": 1000,
            "topics": [
                {
                    "topic": "t",
                    "partitions": [
                        {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
                    ],
                }
            ],
        },
    )
    assert response.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_transactional_batch_is_refused_as_nobody_could_end_it(wire: Wire) -> None:
    batch = batch_of(
        b"x",
        timestamp_ms=NOW_MS,
        is_transactional=True,
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
    )
    answer = wire.produce("t", bytes(batch))
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_internal_topics_are_not_for_clients(wire: Wire) -> None:
    topics = [{"name": "__consumer_offsets", "num_partitions": 1, "replication_factor": 1}]
    wire.ask(ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout": 10_000})
    batch = bytes(batch_of(b"x", timestamp_ms=NOW_MS))
    described = wire.ask(ApiKey.METADATA, 12, {"topics": [{"name": "__consumer_offsets"}]})
    by_id = {
        "acks": 1,
        "topic_data": [
            {
                "topic_id": described.topics[0].topic_id,
                "partition_data": [{"index": 0, "records": batch}],
            }
        ],
    }
    for _ in range(2):  # also when they insist
        answer = wire.produce("__consumer_offsets", batch)
        assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    for _ in range(2):
        answer = wire.ask(ApiKey.PRODUCE, 13, by_id).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_zstd_is_refused_in_versions_that_did_not_know_it(wire: Wire) -> None:
    batch = bytes(batch_of(b"x", timestamp_ms=NOW_MS, codec=Codec.ZSTD))
    refused = wire.produce("t", batch, version=6)
    assert refused.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert wire.produce("t", batch, version=7).error_code == 0


def test_refusals_name_the_records_and_where_the_log_starts(wire: Wire) -> None:
    answer = wire.produce("keyed", bytes(batch_of(b"x", b"y", timestamp_ms=NOW_MS)))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [one.batch_index for one in answer.record_errors] == [0, 1]
    assert answer.log_start_offset == 0


@pytest.mark.parametrize("version", [10, 11])
def test_metadata_by_id_is_refused_before_version_12(wire: Wire, version: int) -> None:
    topics = [{"name": None, "topic_id": UUID(int=77)}]
    answer = wire.ask(ApiKey.METADATA, version, {"topics": topics})
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.INVALID_REQUEST]


def test_topics_to_delete_are_given_by_name_or_by_id(wire: Wire) -> None:
    topics = [{"name": "t", "topic_id": UUID(int=77)}, {"name": None, "topic_id": None}]
    answer = wire.ask(ApiKey.DELETE_TOPICS, 6, {"topics": topics, "timeout": 10_000})
    assert [one.error_code for one in answer.responses] == [ErrorCode.INVALID_REQUEST] * 2


def test_a_cursor_that_nobody_gave_out_is_refused(wire: Wire) -> None:
    for cursor in (("t", -1), ("none", 0)):
        place = {"topic_name": cursor[0], "partition_index": cursor[1]}
        fields = {"topics": [{"name": "t"}], "response_partition_limit": 9, "cursor": place}
        answer = wire.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, fields)
        assert [one.error_code for one in answer.topics] == [ErrorCode.INVALID_REQUEST]
