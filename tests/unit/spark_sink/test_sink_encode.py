"""Rows encoded by the compiled encoder, read back by the slow reader of the protocol room."""

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.batches import check_batch, iter_records
from ottla.protocol.codecs import Codec
from ottla.spark.encode import BatchEncoder, EncodedBatch, EncodeError, Target
from ottla.spark.partitioner import Partitioning, murmur2_of, partition_of_key, partitioning_of

NOW_MS = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]

maybe_bytes = st.none() | st.binary(max_size=40)
headers = st.none() | st.lists(
    st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3
)
rows_of_records = st.lists(st.tuples(maybe_bytes, maybe_bytes, headers), min_size=1, max_size=60)


class Collector:
    def __init__(self) -> None:
        self.batches: list[tuple[Target, bytes, int]] = []

    def __call__(self, batch: EncodedBatch) -> None:
        self.batches.append((batch.target, bytes(batch.data), batch.records))

    def records(self) -> dict[Target, list[Row]]:
        found: dict[Target, list[Row]] = defaultdict(list)
        for target, data, count in self.batches:
            header = check_batch(data, 0, len(data))
            assert header.size_bytes == len(data)
            assert header.records_count == count
            for number, record in enumerate(iter_records(data)):
                assert record.offset == number
                assert record.timestamp_ms == NOW_MS
                pairs = [(name.decode(), value) for name, value in record.headers]
                found[target].append((record.key, record.value, pairs))
        return found


def encoder(consume: Any, **changes: Any) -> BatchEncoder:
    arguments: dict[str, Any] = {
        "topic": "t",
        "partitions_of": lambda topic: 3,
        "consume": consume,
        "now_ms": lambda: NOW_MS,
        "with_headers": True,
        "batch_bytes_max": 1000,
        "record_bytes_max": 100_000,
        **changes,
    }
    return BatchEncoder(**arguments)


def arrow(rows: list[Row], **columns: Any) -> Any:
    heads = [None if h is None else [{"key": k, "value": v} for k, v in h] for _, _, h in rows]
    arrays = {
        "key": pa.array([k for k, _, _ in rows], pa.binary()),
        "value": pa.array([v for _, v, _ in rows], pa.binary()),
        "headers": pa.array(heads, HEADERS),
        **columns,
    }
    return pa.record_batch(arrays)


@settings(max_examples=60, deadline=None)
@given(
    rows_of_records,
    st.integers(0, 5),
    st.sampled_from([Codec.NONE, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY, Codec.GZIP]),
    st.sampled_from([80, 150, 1000]),
)
def test_every_row_is_written_once_in_order_to_the_partition_of_its_key(
    rows: list[Row], skip: int, codec: Codec, batch_bytes_max: int
) -> None:
    collect = Collector()
    encode = encoder(collect, codec=codec, batch_bytes_max=batch_bytes_max)
    whole = arrow(rows)
    skip = min(skip, len(rows))
    encode.add(whole.slice(0, skip))
    encode.add(whole.slice(skip))  # a slice keeps the buffers and starts in their middle
    encode.finish()
    found = collect.records()
    assert sorted(repr(row) for written in found.values() for row in written) == sorted(
        repr((k, v, h or [])) for k, v, h in rows
    )
    for partition in range(3):
        keyed = [
            (k, v, h or [])
            for k, v, h in rows
            if k is not None and partition_of_key(k, 3) == partition
        ]
        got = [row for row in found.get(Target("t", partition), []) if row[0] is not None]
        assert got == keyed


def test_batches_hold_no_more_than_asked_unless_one_record_alone_is_larger() -> None:
    collect = Collector()
    encode = encoder(collect, topic="t", partitions_of=lambda topic: 1, batch_bytes_max=500)
    encode.add(arrow([(None, b"x" * 100, None)] * 20 + [(None, b"y" * 40_000, None)]))
    encode.finish()
    sizes = [len(data) for _, data, _ in collect.batches]
    assert [size for size in sizes if size > 500] == [sizes[-1]]
    assert len(collect.records()[Target("t", 0)]) == 21


def test_a_batch_grows_and_its_memory_is_used_again() -> None:
    collect = Collector()
    encode = encoder(collect, partitions_of=lambda topic: 2, batch_bytes_max=100_000)
    rows: list[Row] = [(b"%d" % n, b"%05d" % n * (n % 90), None) for n in range(4000)]
    for start in range(0, len(rows), 300):
        encode.add(arrow(rows[start : start + 300]))
    encode.finish()
    assert len(collect.batches) > 6
    found = collect.records()
    for partition in range(2):
        expected = [(k, v, []) for k, v, _ in rows if k and partition_of_key(k, 2) == partition]
        assert found[Target("t", partition)] == expected


def test_a_record_above_the_request_size_is_refused_with_the_option_to_change() -> None:
    encode = encoder(Collector(), record_bytes_max=1000)
    with pytest.raises(EncodeError, match=r"kafka\.max\.request\.size"):
        encode.add(arrow([(None, b"y" * 2000, None)]))


def test_rows_without_key_fill_one_partition_before_the_next() -> None:
    collect = Collector()
    encode = encoder(collect, batch_bytes_max=1000, sticky_start=1)
    encode.add(arrow([(None, b"x" * 99, None)] * 30))
    encode.finish()
    counts = {t.partition: 0 for t, _, _ in collect.batches}
    for target, _, count in collect.batches:
        counts[target.partition] += count
    assert counts == {0: 10, 1: 10, 2: 10}


def test_round_robin_moves_on_after_every_record_and_ignores_keys() -> None:
    collect = Collector()
    encode = encoder(collect, partitioning=Partitioning.ROUND_ROBIN)
    encode.add(arrow([(b"same", b"x", None)] * 9))
    encode.finish()
    assert sorted((t.partition, n) for t, _, n in collect.batches) == [(0, 3), (1, 3), (2, 3)]


def test_columns_name_topic_and_partition() -> None:
    collect = Collector()
    encode = encoder(collect, topic=None, partitions_of={"a": 1, "b": 4}.__getitem__)
    rows: list[Row] = [(None, bytes([n]), None) for n in range(4)]
    encode.add(
        arrow(
            rows,
            topic=pa.array(["b", "a", "b", "b"]),
            partition=pa.array([3, None, 0, 3], pa.int32()),
        )
    )
    encode.finish()
    found = {target: [row[1] for row in rows] for target, rows in collect.records().items()}
    assert found == {
        Target("b", 3): [b"\0", b"\3"],
        Target("a", 0): [b"\1"],
        Target("b", 0): [b"\2"],
    }


def test_a_partition_that_the_topic_lacks_is_named() -> None:
    encode = encoder(Collector())
    with pytest.raises(EncodeError, match="partition 3 of topic t, which has partitions 0 to 2"):
        encode.add(arrow([(None, b"", None)], partition=pa.array([3], pa.int32())))


def test_a_row_without_topic_is_refused() -> None:
    encode = encoder(Collector(), topic=None)
    with pytest.raises(EncodeError, match="option 'topic'"):
        encode.add(arrow([(None, b"", None)], topic=pa.array([None], pa.string())))


def test_a_header_without_key_is_refused() -> None:
    column = pa.array([[{"key": None, "value": b"v"}]], HEADERS)
    with pytest.raises(EncodeError, match="header has no key"):
        encoder(Collector()).add(arrow([(None, b"", None)], headers=column))


def test_many_partitions_do_not_keep_more_open_than_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ottla.spark.encode.OPEN_BYTES_MAX", 1 << 20)
    collect = Collector()
    encode = encoder(collect, partitions_of=lambda topic: 500, batch_bytes_max=1 << 20)
    encode.add(arrow([(str(n).encode(), b"v", None) for n in range(5000)]))
    assert sum(count for _, _, count in collect.batches) == 5000


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_what_java_gives(key: bytes, expected: int) -> None:
    assert murmur2_of(key) == expected


def test_partitioner_classes_of_kafka_are_known_and_others_refused() -> None:
    java = "org.apache.kafka.clients.producer."
    assert partitioning_of(None, ignore_keys=False) is Partitioning.BY_KEY
    assert partitioning_of(None, ignore_keys=True) is Partitioning.STICKY
    name = java + "RoundRobinPartitioner"
    assert partitioning_of(name, ignore_keys=False) is Partitioning.ROUND_ROBIN
    with pytest.raises(ValueError, match="'partition' column"):
        partitioning_of("com.example.Mine", ignore_keys=False)
