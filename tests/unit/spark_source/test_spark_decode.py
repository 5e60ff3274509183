"""The native decoder against iter_records, record by record; and on bytes that lie.

What the compiled loops read cannot be watched, so the same source also runs in plain Python over
memory that knows its bounds.
"""

from contextlib import suppress
from random import Random
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client import TopicPartition
from ottla.client.fetch_response import AbortedTransaction
from ottla.protocol.batches import (
    HEADER_BYTES,
    BatchHeader,
    ControlType,
    Record,
    TimestampType,
    build_batch,
    control_batch,
    iter_batches,
    iter_records,
    read_varint,
    write_crc,
)
from ottla.protocol.codecs import Codec
from ottla.protocol.errors import KafkaError
from ottla.spark import decode, decode_kernels
from ottla.spark.decode import CorruptBatch, RecordDecoder
from ottla.spark.schema import ARROW_SCHEMA, ARROW_SCHEMA_WITH_HEADERS, spark_schema

PARTITION = TopicPartition("orders", 3)
FAR = 1 << 62


class Fetched(NamedTuple):
    records: memoryview
    aborted_transactions: tuple[AbortedTransaction, ...] = ()


def fetched(*batches: bytes | bytearray, aborted: tuple[AbortedTransaction, ...] = ()) -> Fetched:
    return Fetched(memoryview(b"".join(batches)), aborted)


def rows_of(
    *chunks: Fetched,
    start: int = 0,
    end: int = FAR,
    headers: bool = True,
    committed: bool = False,
    check_crcs: bool = True,
    rows_max: int = 7,
) -> list[dict[str, Any]]:
    decoder = RecordDecoder(
        PARTITION,
        start_offset=start,
        end_offset=end,
        include_headers=headers,
        is_read_committed=committed,
        check_crcs=check_crcs,
        rows_max=rows_max,
    )
    batches = [batch for chunk in chunks for batch in decoder.decode(chunk)]
    last = decoder.finish()
    batches += [] if last is None else [last]
    for batch in batches:
        batch.validate(full=True)
        assert 0 < batch.num_rows <= rows_max
        assert batch.schema.equals(ARROW_SCHEMA_WITH_HEADERS if headers else ARROW_SCHEMA)
    return [row for batch in batches for row in _with_plain_times(batch).to_pylist()]


def _with_plain_times(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Python's datetime ends in the year 9999; a lie may not."""
    times = batch.column("timestamp").cast(pa.int64())
    return batch.set_column(batch.schema.get_field_index("timestamp"), "timestamp", times)


def expected_rows(
    data: memoryview, *, start: int = 0, end: int = FAR, headers: bool = True
) -> list[dict[str, Any]]:
    found = []
    for position, header in iter_batches(data):
        if header.is_control:
            continue
        for record in iter_records(data[position : position + header.size_bytes]):
            if start <= record.offset < end:
                found.append(expected_row(header, record, headers))
    return found


def expected_row(header: BatchHeader, record: Record, headers: bool) -> dict[str, Any]:
    row = {
        "key": record.key,
        "value": record.value,
        "topic": "orders",
        "partition": 3,
        "offset": record.offset,
        "timestamp": record.timestamp_ms * 1000,
        "timestampType": int(header.timestamp_type),
    }
    if headers:
        row["headers"] = [
            {"key": key.decode("utf-8", "replace"), "value": value} for key, value in record.headers
        ] or None
    return row


FIELDS = st.none() | st.binary(max_size=200)
TIMES_MS = st.integers(-1, 4_102_444_800_000)
RECORDS = st.lists(
    st.tuples(
        st.integers(0, 3),
        TIMES_MS,
        FIELDS,
        FIELDS,
        st.lists(st.tuples(st.binary(max_size=10), FIELDS), max_size=3),
    ),
    min_size=1,
    max_size=12,
)


@st.composite
def batches(draw: st.DrawFn, codecs: tuple[Codec, ...] = tuple(Codec)) -> bytes:
    """Batches in order, with gaps between offsets as compaction leaves them."""
    offset, made = draw(st.integers(0, 1 << 40)), b""
    for given_records in draw(st.lists(RECORDS, min_size=1, max_size=5)):
        base, records = offset, []
        for gap, time_ms, key, value, headers in given_records:
            offset += gap
            records.append(Record(offset, time_ms, key, value, tuple(headers)))
            offset += 1
        made += build_batch(
            records,
            base_offset=base,
            codec=draw(st.sampled_from(codecs)),
            timestamp_type=draw(st.sampled_from(TimestampType)),
        )
        offset += draw(st.integers(0, 2))
    return made


@given(batches(), st.booleans(), st.data())
@settings(max_examples=60)
def test_rows_are_those_of_iter_records(made: bytes, headers: bool, data: st.DataObject) -> None:
    view = memoryview(made)
    first = next(header for _, header in iter_batches(view))
    start = first.base_offset + data.draw(st.integers(0, 20))
    end = start + data.draw(st.integers(0, 30))
    assert rows_of(Fetched(view), headers=headers) == expected_rows(view, headers=headers)
    wanted = expected_rows(view, start=start, end=end, headers=headers)
    assert rows_of(Fetched(view), start=start, end=end, headers=headers) == wanted


@given(batches(), st.integers(0, 400))
@settings(max_examples=60)
def test_a_batch_cut_short_at_the_end_is_left_for_the_next_fetch(made: bytes, cut: int) -> None:
    view = memoryview(made)[: max(0, len(made) - cut)]
    assert rows_of(Fetched(view)) == expected_rows(view)


@given(st.lists(batches(), min_size=2, max_size=3), st.booleans())
@settings(max_examples=30)
def test_rows_of_several_fetches_gather_in_one_batch(parts: list[bytes], headers: bool) -> None:
    chunks = [fetched(part) for part in parts]
    wanted = [row for chunk in chunks for row in expected_rows(chunk.records, headers=headers)]
    assert rows_of(*chunks, headers=headers, rows_max=1000) == wanted


def hostile(random: Random) -> tuple[bytes, bytes]:
    """Honest batches, and the same with bytes that lie at the places where lengths are.

    What follows a lie is read as lengths too, so the data itself is full of bytes that go on.
    """
    honest, offset = bytearray(), 0
    for _ in range(random.randint(1, 3)):
        records = []
        for n in range(random.randint(1, 6)):
            key, value, extra = (_hostile_bytes(random) for _ in range(3))
            headers = ((b"h", extra), (extra or b"", None)) if random.random() < 0.3 else ()
            records.append(Record(offset + n, random.randint(-1, 1 << 42), key, value, headers))
        honest += build_batch(records, base_offset=offset)
        offset += len(records)
    made = bytearray(honest)
    for position, header in iter_batches(bytes(honest)):
        at, end = position + HEADER_BYTES, position + header.size_bytes
        starts = []
        while at < end:
            starts.append(at)
            length, body = read_varint(honest, at, end)
            at = body + length
        for _ in range(random.randint(0, 4)):
            near = random.choice(starts) + random.choice([0, 0, 0, *range(14)])
            last = random.choice([*starts[1:], end]) - random.choice([1, 1, 2])
            place = random.choice([near, near, last, random.randrange(position + 57, end)])
            if place < end:
                made[place] = random.choice([0, 1, 2, 3, 62, 63, 126, 127, 128, 130, 254, 255])
        write_crc(made, position)
    return bytes(honest), bytes(made)


def _hostile_bytes(random: Random) -> bytes | None:
    size = random.choice([None, 0, 1, 3, 20, 70])
    return (
        None if size is None else bytes(random.choice([0x7F, 0xFE, 0xFF, 4]) for _ in range(size))
    )


@pytest.mark.parametrize("seed", range(4))
def test_bytes_that_lie_give_what_the_oracle_gives_or_an_error(seed: int) -> None:
    random, refused = Random(seed), 0
    for _ in range(250):
        made = memoryview(hostile(random)[1])
        wanted: list[dict[str, Any]] | None = None
        with suppress(KafkaError):
            wanted = expected_rows(made)
        try:
            found = rows_of(Fetched(made))
        except CorruptBatch:
            refused += 1
            continue
        assert found == wanted
    assert 50 < refused < 220


@given(batches(), st.data())
@settings(max_examples=60)
def test_any_flipped_byte_is_found_by_the_crc(made: bytes, data: st.DataObject) -> None:
    broken = bytearray(made)
    position, header = data.draw(st.sampled_from(list(iter_batches(made))))
    broken[position + data.draw(st.integers(17, header.size_bytes - 1))] ^= data.draw(
        st.integers(1, 255)
    )
    with pytest.raises(CorruptBatch, match=f"offset {header.base_offset} of topic orders"):
        rows_of(fetched(broken))


class Guarded:
    """Bytes that may only be read inside."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.shape = (len(data),)

    def byte(self, at: int) -> int:
        assert 0 <= at < len(self.data), f"read at {at} of {len(self.data)}"
        return self.data[at]


def _guarded_copy(target: Any, target_at: int, source: Guarded, at: int, size: int) -> None:
    assert size >= 0
    assert 0 <= at <= at + size <= len(source.data), f"copy from {at}, {size} bytes"
    assert 0 <= target_at <= target_at + size <= target.shape[0], f"copy to {target_at}"
    target[target_at : target_at + size] = np.frombuffer(source.data, np.uint8)[at : at + size]


def interpreted_kernels() -> dict[str, Any]:
    """The kernels' source as plain Python, over memory that knows its bounds."""
    names = dict(vars(decode_kernels))
    names["_byte"] = lambda source, at: source.byte(int(at))
    names["copy_bytes"] = _guarded_copy
    for name, value in vars(decode_kernels).items():
        if hasattr(value, "py_func"):
            names[name] = FunctionType(value.py_func.__code__, names, name)
    return names


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_read_or_written_outside(seed: int) -> None:
    run, random = interpreted_kernels(), Random(seed)
    with np.errstate(over="ignore"):
        for number in range(250):
            for made in hostile(random):
                _decode_guarded(run, made, headers=number % 2 == 0)


def _decode_guarded(run: dict[str, Any], made: bytes, *, headers: bool) -> None:
    """Decode into buffers that are often full, as long as records fit into them at all."""
    source = Guarded(made)
    table = np.empty((8, decode_kernels.TABLE_COLUMNS), np.int64)
    status, count, _ = run["scan_batches"](source, len(made), table)
    if status != decode_kernels.DONE:
        return
    columns = decode._Columns(3, 75, 75, headers)
    cursor = columns._written
    while True:
        status = run["decode_records"](
            source,
            table,
            count,
            cursor,
            0,
            FAR,
            columns._keys.offsets_view,
            columns._keys.data_view,
            columns._keys.validity_view,
            columns._values.offsets_view,
            columns._values.data_view,
            columns._values.validity_view,
            columns._offset_view,
            columns._timestamp_view,
            columns._type_view,
            columns._header_positions,
            columns._header_counts,
        )
        if headers:
            _headers_guarded(run, source, columns)
        if status != decode_kernels.FULL or cursor[decode_kernels.ROWS] == 0:
            return
        cursor[decode_kernels.ROWS :] = 0


def _headers_guarded(run: dict[str, Any], source: Guarded, columns: Any) -> None:
    sizes = columns._written[decode_kernels.HEADERS :].tolist()
    keys, values = (decode._BinaryBuffers(sizes[0], size) for size in sizes[1:3])
    rows = int(columns._written[decode_kernels.ROWS])
    run["decode_headers"](
        source,
        columns._header_positions,
        columns._header_counts,
        rows,
        np.zeros(rows + 1, np.int32),
        np.zeros((rows + 7) // 8, np.uint8),
        keys.offsets_view,
        keys.data_view,
        values.offsets_view,
        values.data_view,
        values.validity_view,
    )


def transactional(offset: int, producer_id: int, *values: bytes) -> bytearray:
    records = [Record(offset + n, 5, None, value) for n, value in enumerate(values)]
    return build_batch(
        records,
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


def marker(offset: int, producer_id: int, kind: ControlType) -> bytearray:
    return control_batch(
        kind,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp_ms=5,
        base_offset=offset,
    )


def test_read_committed_leaves_out_what_was_aborted() -> None:
    chunk = fetched(
        transactional(0, 7, b"aborted", b"aborted"),
        transactional(2, 8, b"kept by 8"),
        marker(3, 7, ControlType.ABORT),
        transactional(4, 7, b"kept by 7"),
        marker(5, 7, ControlType.COMMIT),
        transactional(6, 7, b"aborted again"),
        marker(7, 8, ControlType.COMMIT),
        marker(8, 7, ControlType.ABORT),
        aborted=(AbortedTransaction(7, 6), AbortedTransaction(7, 0)),
    )
    committed = [row["value"] for row in rows_of(chunk, committed=True)]
    assert committed == [b"kept by 8", b"kept by 7"]
    assert [row["offset"] for row in rows_of(chunk)] == [0, 1, 2, 4, 6]


def test_a_record_larger_than_all_buffers_is_read() -> None:
    large = bytes(range(256)) * 2000
    chunk = fetched(
        build_batch(
            [Record(0, 1, None, b"s"), Record(1, 1, large, large), Record(2, 1, b"k", None)]
        )
    )
    rows = rows_of(chunk, headers=False)
    assert [(row["key"], row["value"]) for row in rows] == [
        (None, b"s"),
        (large, large),
        (b"k", None),
    ]


def test_compressed_data_that_inflates_beyond_the_bound_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decode, "INFLATED_BYTES_MAX", 1000)
    chunk = fetched(build_batch([Record(0, 1, None, bytes(5000))], codec=Codec.ZSTD))
    with pytest.raises(CorruptBatch, match="more than 1000 bytes"):
        rows_of(chunk)


def test_check_crcs_off_reads_on() -> None:
    batch = build_batch([Record(0, 1, None, b"value")])
    batch[18] ^= 1
    assert len(rows_of(fetched(batch), check_crcs=False)) == 1
    with pytest.raises(CorruptBatch, match="CRC"):
        rows_of(fetched(batch))


def test_a_timestamp_beyond_spark_is_an_error() -> None:
    batch = build_batch([Record(0, 1 << 60, None, b"value")])
    with pytest.raises(CorruptBatch, match="timestamp"):
        rows_of(fetched(batch))


def test_no_timestamp_is_the_millisecond_before_1970_as_in_spark() -> None:
    batch = build_batch([Record(0, -1, None, b"value")])
    assert rows_of(fetched(batch))[0]["timestamp"] == -1000


@pytest.mark.parametrize("headers", [False, True])
def test_the_schema_is_what_spark_makes_of_its_own(headers: bool) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = ARROW_SCHEMA_WITH_HEADERS if headers else ARROW_SCHEMA
    converted: pa.Schema = to_arrow_schema(spark_schema(include_headers=headers), timezone="UTC")
    assert converted.equals(schema)


def test_old_message_formats_are_named() -> None:
    batch = build_batch([Record(0, 1, None, b"value")])
    batch[16] = 1
    with pytest.raises(CorruptBatch, match="format 2"):
        rows_of(fetched(batch))
