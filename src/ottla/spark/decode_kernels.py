"""The loops that turn record batches into Arrow's buffers, compiled by numba.

An object per record would cost fifty times as much as the bytes it names. Here a record is never
an object: its fields are copied from the fetched frame into the buffers of the columns.

The bytes come from strangers. Every varint and length is held against the end of what encloses it
before anything is read or copied, and every write against the room there is. A loop that meets a
lie returns what kind and where, and leaves the words to decode.py.

The kernels take plain arrays and keep nothing. An index here is never negative and always below
the length it was checked against, so numba's own checks are off.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ottla.spark.native import copy_bytes, intrinsic, numba

F = TypeVar("F", bound=Callable[..., Any])


def _compiled(function: F) -> F:
    """numba's decorator, typed: it lets other threads run meanwhile."""
    compiled: F = numba.njit(nogil=True, cache=True)(function)
    return compiled


# Columns of the table of batches: what the header says, and where the records lie.
START = 0  # of the batch in the frame
END = 1
BASE_OFFSET = 2
LAST_OFFSET_DELTA = 3
ATTRIBUTES = 4
BASE_TIMESTAMP = 5
MAX_TIMESTAMP = 6
PRODUCER_ID = 7
COUNT = 8
CRC = 9
DATA_START = 10  # of the records in the source, which is the frame or what was inflated
DATA_END = 11
TABLE_COLUMNS = 12

# The cursor: where a decoding goes on, and what it has written so far.
BATCH = 0
RECORD = 1
POSITION = 2
ROWS = 3
KEY_BYTES = 4
VALUE_BYTES = 5
KEY_NULLS = 6
VALUE_NULLS = 7
NEEDED_BYTES = 8  # what the record that did not fit needs
HEADERS = 9
HEADER_KEY_BYTES = 10
HEADER_VALUE_BYTES = 11
CURSOR_SIZE = 12

# What a kernel returns.
DONE = 0
FULL = 1  # call again with new buffers
BAD_VARINT = 2
BAD_RECORD_LENGTH = 3
BAD_FIELD_LENGTH = 4
BAD_HEADERS = 5
BAD_RECORD_END = 6
BAD_BATCH_END = 7
BAD_OFFSET = 8
BAD_TIMESTAMP = 9
BAD_BATCH_LENGTH = 10
BAD_MAGIC = 11
BAD_COUNT = 12

_LOG_APPEND_TIME = 0x08
_HEADER_BYTES = 61
_LENGTH_MIN = 49
_RECORD_BYTES_MIN = 7
_TIMESTAMP_MS_MAX = 9_223_372_036_854_775  # what int64 can hold in microseconds
_VARINT_SHIFT_MAX = 28
_VARLONG_SHIFT_MAX = 63
_UINT32 = 0xFFFFFFFF
_INT63 = 0x7FFFFFFFFFFFFFFF


def _byte_typing(typing: Any, source: Any, at: Any) -> Any:
    """One byte; an ordinary index would first ask whether it is negative."""
    signature = numba.int64(source, numba.int64)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        loaded = builder.load(builder.gep(data, [args[1]]))
        return builder.zext(loaded, context.get_value_type(numba.int64))

    return signature, generate


_byte: Any = intrinsic(_byte_typing)


@_compiled
def _big_endian(source: Any, at: int, size: int) -> int:
    """A signed integer of `size` bytes."""
    value: int = _byte(source, at)
    if value >= 128:
        value -= 256
    for position in range(at + 1, at + size):
        value = (value << 8) | _byte(source, position)
    return value


@_compiled
def _varint(source: Any, at: int, end: int) -> tuple[int, int]:
    """A zigzag varint of at most 32 bits, and the position after it: -1 if there is none."""
    value = 0
    shift = 0
    while at < end:
        byte = _byte(source, at)
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= _UINT32
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > _VARINT_SHIFT_MAX:
            break
    return 0, -1


@_compiled
def _varlong(source: Any, at: int, end: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits, and the position after it: -1 if there is none."""
    value = 0
    shift = 0
    while at < end:
        byte = _byte(source, at)
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return ((value >> 1) & _INT63) ^ -(value & 1), at
        shift += 7
        if shift > _VARLONG_SHIFT_MAX:
            break
    return 0, -1


@_compiled
def scan_batches(source: Any, size: int, table: Any) -> tuple[int, int, int]:
    """Fill the table with the batches of a frame; (status, batches, bytes walked).

    FULL if the table has no room for the next one. A batch cut short at the end is left out.
    """
    at = 0
    row = 0
    while size - at >= _HEADER_BYTES:
        length = _big_endian(source, at + 8, 4)
        if length < _LENGTH_MIN:
            return BAD_BATCH_LENGTH, row, at
        if _byte(source, at + 16) != 2:
            return BAD_MAGIC, row, at
        end = at + 12 + length
        if end > size:
            break
        if row == table.shape[0]:
            return FULL, row, at
        count = _big_endian(source, at + 57, 4)
        delta = _big_endian(source, at + 23, 4)
        if count < 0 or delta < 0:
            return BAD_COUNT, row, at
        table[row, START] = at
        table[row, END] = end
        table[row, BASE_OFFSET] = _big_endian(source, at, 8)
        table[row, LAST_OFFSET_DELTA] = delta
        table[row, ATTRIBUTES] = _big_endian(source, at + 21, 2)
        table[row, BASE_TIMESTAMP] = _big_endian(source, at + 27, 8)
        table[row, MAX_TIMESTAMP] = _big_endian(source, at + 35, 8)
        table[row, PRODUCER_ID] = _big_endian(source, at + 43, 8)
        table[row, COUNT] = count
        table[row, CRC] = _big_endian(source, at + 17, 4) & _UINT32
        table[row, DATA_START] = at + _HEADER_BYTES
        table[row, DATA_END] = end
        row += 1
        at = end
    return DONE, row, at


@_compiled
def _skip_headers(source: Any, at: int, end: int, count: int) -> tuple[int, int, int]:
    """Walk `count` headers; (position after them or -1, bytes of keys, bytes of values)."""
    key_bytes = 0
    value_bytes = 0
    if count < 0 or count > (end - at) // 2:
        return -1, key_bytes, value_bytes
    for _ in range(count):
        length, at = _varint(source, at, end)
        if at < 0 or length < 0 or length > end - at:
            return -1, key_bytes, value_bytes
        at += length
        key_bytes += length
        length, at = _varint(source, at, end)
        if at < 0 or length < -1 or length > end - at:
            return -1, key_bytes, value_bytes
        if length > 0:
            at += length
            value_bytes += length
    return at, key_bytes, value_bytes


@_compiled
def decode_records(
    source: Any,
    table: Any,
    batches: int,
    cursor: Any,
    start_offset: int,
    end_offset: int,
    key_offsets: Any,
    key_data: Any,
    key_validity: Any,
    value_offsets: Any,
    value_data: Any,
    value_validity: Any,
    offsets: Any,
    timestamps: Any,
    timestamp_types: Any,
    header_positions: Any,
    header_counts: Any,
) -> int:
    """Append the records of [start_offset, end_offset) to the buffers until done or full.

    The validity bits must all be set beforehand; `cursor` is updated in every case.
    """
    rows_max = offsets.shape[0]
    with_headers = header_positions.shape[0] > 0
    row = cursor[ROWS]
    key_at = cursor[KEY_BYTES]
    value_at = cursor[VALUE_BYTES]
    batch = cursor[BATCH]
    record = cursor[RECORD]
    at = cursor[POSITION]
    status = DONE
    while batch < batches:
        data_end = table[batch, DATA_END]
        base_offset = table[batch, BASE_OFFSET]
        last_delta = table[batch, LAST_OFFSET_DELTA]
        count = table[batch, COUNT]
        base_timestamp = table[batch, BASE_TIMESTAMP]
        is_append_time = (table[batch, ATTRIBUTES] & _LOG_APPEND_TIME) != 0
        timestamp_type = np.int32(1) if is_append_time else np.int32(0)
        if record == 0:
            at = table[batch, DATA_START]
            if count > (data_end - at) // _RECORD_BYTES_MIN:
                status = BAD_COUNT
                break
        while record < count:
            length, body = _varint(source, at, data_end)
            if body < 0:
                status = BAD_VARINT
                break
            end = body + length
            if length < 1 or end > data_end:
                status = BAD_RECORD_LENGTH
                break
            delta, field = _varlong(source, body + 1, end)
            if field < 0:
                status = BAD_VARINT
                break
            offset_delta, field = _varint(source, field, end)
            if field < 0:
                status = BAD_VARINT
                break
            if offset_delta < 0 or offset_delta > last_delta:
                status = BAD_OFFSET
                break
            key_length, key = _varint(source, field, end)
            if key < 0:
                status = BAD_VARINT
                break
            if key_length < -1 or key_length > end - key:
                status = BAD_FIELD_LENGTH
                break
            key_size = max(key_length, 0)
            value_length, value = _varint(source, key + key_size, end)
            if value < 0:
                status = BAD_VARINT
                break
            if value_length < -1 or value_length > end - value:
                status = BAD_FIELD_LENGTH
                break
            value_size = max(value_length, 0)
            header_count, field = _varint(source, value + value_size, end)
            if field < 0:
                status = BAD_VARINT
                break
            header_at = field
            header_key_bytes = 0
            header_value_bytes = 0
            if header_count != 0:
                field, header_key_bytes, header_value_bytes = _skip_headers(
                    source, field, end, header_count
                )
                if field < 0:
                    status = BAD_HEADERS
                    break
            if field != end:
                status = BAD_RECORD_END
                break
            offset = base_offset + offset_delta
            if start_offset <= offset < end_offset:
                timestamp = (
                    table[batch, MAX_TIMESTAMP] if is_append_time else base_timestamp + delta
                )
                if timestamp > _TIMESTAMP_MS_MAX or timestamp < -_TIMESTAMP_MS_MAX:
                    status = BAD_TIMESTAMP
                    break
                if (
                    row == rows_max
                    or key_size > key_data.shape[0] - key_at
                    or value_size > value_data.shape[0] - value_at
                ):
                    cursor[NEEDED_BYTES] = max(key_size, value_size)
                    status = FULL
                    break
                if key_length < 0:
                    key_validity[row >> 3] &= ~np.uint8(1 << (row & 7))
                    cursor[KEY_NULLS] += 1
                elif key_size > 0:
                    copy_bytes(key_data, key_at, source, key, key_size)
                    key_at += key_size
                if value_length < 0:
                    value_validity[row >> 3] &= ~np.uint8(1 << (row & 7))
                    cursor[VALUE_NULLS] += 1
                elif value_size > 0:
                    copy_bytes(value_data, value_at, source, value, value_size)
                    value_at += value_size
                offsets[row] = offset
                timestamps[row] = timestamp * 1000
                timestamp_types[row] = timestamp_type
                if with_headers:
                    header_positions[row] = header_at
                    header_counts[row] = header_count
                    cursor[HEADERS] += header_count
                    cursor[HEADER_KEY_BYTES] += header_key_bytes
                    cursor[HEADER_VALUE_BYTES] += header_value_bytes
                row += 1
                key_offsets[row] = key_at
                value_offsets[row] = value_at
            at = end
            record += 1
        if status != DONE:
            break
        if at != data_end:
            status = BAD_BATCH_END
            break
        batch += 1
        record = 0
    cursor[BATCH] = batch
    cursor[RECORD] = record
    cursor[POSITION] = at
    cursor[ROWS] = row
    cursor[KEY_BYTES] = key_at
    cursor[VALUE_BYTES] = value_at
    return status


@_compiled
def decode_headers(
    source: Any,
    positions: Any,
    counts: Any,
    rows: int,
    list_offsets: Any,
    list_validity: Any,
    key_offsets: Any,
    key_data: Any,
    value_offsets: Any,
    value_data: Any,
    value_validity: Any,
) -> tuple[int, int, bool]:
    """Fill in the headers of rows that `decode_records` has walked, into buffers of exact size.

    The validity bits must all be set beforehand. Returns how many rows have no headers and how many
    values are null, and whether every key is ASCII.
    """
    header = 0
    key_at = 0
    value_at = 0
    empty_rows = 0
    nulls = 0
    seen = 0
    end = source.shape[0]
    for row in range(rows):
        at = positions[row]
        if counts[row] == 0:
            list_validity[row >> 3] &= ~np.uint8(1 << (row & 7))
            empty_rows += 1
        for _ in range(counts[row]):
            length, at = _varint(source, at, end)
            copy_bytes(key_data, key_at, source, at, length)
            for position in range(at, at + length):
                seen |= _byte(source, position)
            at += length
            key_at += length
            length, at = _varint(source, at, end)
            if length < 0:
                value_validity[header >> 3] &= ~np.uint8(1 << (header & 7))
                nulls += 1
            else:
                copy_bytes(value_data, value_at, source, at, length)
                at += length
                value_at += length
            header += 1
            key_offsets[header] = key_at
            value_offsets[header] = value_at
        list_offsets[row + 1] = header
    return empty_rows, nulls, seen < 0x80
