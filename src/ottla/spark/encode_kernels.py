"""What is done per record when rows become record batches, compiled. Pure.

A Python loop over records costs about a microsecond for each field. These functions are compiled
by numba and walk Arrow's buffers as they lie, once to choose partitions and once to write records.
They are handed plain numpy arrays and never allocate.

They trust their arguments: `arrow_columns.py` makes sure that offsets lie within the data, and
`encode.py` that the output has room for what `limit` allows.

Functions are compiled by a call, not by a decorator: numba is Any to the type checker.
"""

from typing import Any

import numpy as np

from ottla.spark.native import copy_bytes, numba, pointer_to

_MURMUR_SEED = 0x9747B28C
_MURMUR_MIX = 0x5BD1E995
_LOW_32_BITS = 0xFFFFFFFF


def _murmur2(data: Any, start: int, end: int) -> int:
    """The hash by which Java's producer chooses partitions, as an unsigned 32-bit number."""
    length = end - start
    h = (_MURMUR_SEED ^ length) & _LOW_32_BITS
    at = start
    for _ in range(length >> 2):
        k = (
            int(data[at])
            | (int(data[at + 1]) << 8)
            | (int(data[at + 2]) << 16)
            | (int(data[at + 3]) << 24)
        )
        k = (k * _MURMUR_MIX) & _LOW_32_BITS
        k ^= k >> 24
        k = (k * _MURMUR_MIX) & _LOW_32_BITS
        h = (h * _MURMUR_MIX) & _LOW_32_BITS
        h ^= k
        at += 4
    rest = length & 3
    if rest == 3:
        h ^= int(data[at + 2]) << 16
    if rest >= 2:
        h ^= int(data[at + 1]) << 8
    if rest >= 1:
        h ^= int(data[at])
        h = (h * _MURMUR_MIX) & _LOW_32_BITS
    h ^= h >> 13
    h = (h * _MURMUR_MIX) & _LOW_32_BITS
    h ^= h >> 15
    return h


murmur2 = numba.njit(cache=True)(_murmur2)


def _is_valid(bitmap: Any, position: int) -> bool:
    """Whether Arrow's validity bitmap has the bit; a bitmap of no bytes says that all are valid."""
    return len(bitmap) == 0 or (bitmap[position >> 3] >> (position & 7)) & 1 == 1


is_valid = numba.njit(cache=True, inline="always")(_is_valid)


def _choose_targets(
    targets: Any,
    topic_of_row: Any,
    partitions_of_topic: Any,
    first_target_of_topic: Any,
    asked: Any,
    asked_valid: Any,
    asked_shift: int,
    key_data: Any,
    key_offsets: Any,
    key_valid: Any,
    key_shift: int,
    value_offsets: Any,
    keys_count: bool,
    sticky_partition: Any,
    sticky_bytes: Any,
    sticky_bytes_max: int,
) -> int:
    """Fill `targets` with the target of every row; the first row that asks for a partition which
    its topic lacks, or -1.

    A row that asks for a partition gets it, one with a key goes by the key's hash, the others
    stay with one partition until `sticky_bytes_max` went there, then move to the next.
    """
    for row in range(len(targets)):
        topic = topic_of_row[row]
        partitions = partitions_of_topic[topic]
        if len(asked) > 0 and is_valid(asked_valid, row + asked_shift):
            partition = asked[row]
            if partition < 0 or partition >= partitions:
                return row
        elif keys_count and len(key_offsets) > 0 and is_valid(key_valid, row + key_shift):
            hashed = murmur2(key_data, key_offsets[row], key_offsets[row + 1])
            partition = (hashed & 0x7FFFFFFF) % partitions
        else:
            partition = sticky_partition[topic] % partitions
            sticky_bytes[topic] += value_offsets[row + 1] - value_offsets[row] + 1
            if sticky_bytes[topic] >= sticky_bytes_max:
                sticky_partition[topic] = (partition + 1) % partitions
                sticky_bytes[topic] = 0
        targets[row] = first_target_of_topic[topic] + partition
    return -1


choose_targets = numba.njit(cache=True)(_choose_targets)


def _varint_bytes(value: int) -> int:
    """How many bytes a length or a small positive number takes as a zigzag varint."""
    zigzag = value << 1
    size = 1
    while zigzag >= 0x80:
        zigzag >>= 7
        size += 1
    return size


varint_bytes = numba.njit(cache=True)(_varint_bytes)


def _put_varint(out: Any, at: int, value: int) -> int:
    """Write a number that is not below -1 as a zigzag varint; the position after it."""
    zigzag = value << 1 if value >= 0 else 1
    while zigzag >= 0x80:
        out[at] = (zigzag & 0x7F) | 0x80
        zigzag >>= 7
        at += 1
    out[at] = zigzag
    return at + 1


put_varint = numba.njit(cache=True)(_put_varint)


def _field_bytes(offsets: Any, valid: Any, shift: int, row: int) -> int:
    """The length of a key or a value, -1 where there is none."""
    if len(offsets) == 0 or not is_valid(valid, row + shift):
        return -1
    return int(offsets[row + 1] - offsets[row])


field_bytes = numba.njit(cache=True)(_field_bytes)


def _header_bytes(
    row: int,
    list_offsets: Any,
    list_valid: Any,
    list_shift: int,
    name_offsets: Any,
    header_offsets: Any,
    header_valid: Any,
    header_shift: int,
) -> tuple[int, int]:
    """How many headers a row has, and how many bytes they take without their count."""
    if len(list_offsets) == 0 or not is_valid(list_valid, row + list_shift):
        return 0, 0
    first, last = list_offsets[row], list_offsets[row + 1]
    size = 0
    for header in range(first, last):
        name = name_offsets[header + 1] - name_offsets[header]
        size += varint_bytes(name) + name
        value = field_bytes(header_offsets, header_valid, header_shift, header)
        size += 1 if value < 0 else varint_bytes(value) + value
    return last - first, size


header_bytes = numba.njit(cache=True)(_header_bytes)


def _write_rows(
    first: int,
    targets: Any,
    addresses: Any,
    positions: Any,
    limits: Any,
    records: Any,
    key_data: Any,
    key_offsets: Any,
    key_valid: Any,
    key_shift: int,
    value_data: Any,
    value_offsets: Any,
    value_valid: Any,
    value_shift: int,
    list_offsets: Any,
    list_valid: Any,
    list_shift: int,
    name_data: Any,
    name_offsets: Any,
    header_data: Any,
    header_offsets: Any,
    header_valid: Any,
    header_shift: int,
) -> tuple[int, int]:
    """Write rows from `first` on, each behind the records of its target, until one does not fit:
    that row, and the bytes it needs; or the number of rows.

    The open batch of target t lies at `addresses[t]`. It has `records[t]` records, the next one
    goes to `positions[t]` and must end at `limits[t]`. All have the time of their batch.
    """
    for row in range(first, len(targets)):
        target = targets[row]
        key = field_bytes(key_offsets, key_valid, key_shift, row)
        value = field_bytes(value_offsets, value_valid, value_shift, row)
        headers, headers_size = header_bytes(
            row,
            list_offsets,
            list_valid,
            list_shift,
            name_offsets,
            header_offsets,
            header_valid,
            header_shift,
        )
        delta = records[target]
        size = 2 + varint_bytes(delta) + varint_bytes(headers) + headers_size
        size += 1 if key < 0 else varint_bytes(key) + key
        size += 1 if value < 0 else varint_bytes(value) + value
        needed = varint_bytes(size) + size
        at = positions[target]
        limit = limits[target]
        if at + needed > limit:
            return row, needed
        out = numba.carray(pointer_to(addresses[target]), (limit,), np.uint8)
        at = put_varint(out, at, size)
        out[at] = 0
        out[at + 1] = 0
        at = put_varint(out, at + 2, delta)
        at = put_varint(out, at, key)
        if key > 0:
            copy_bytes(out, at, key_data, key_offsets[row], key)
            at += key
        at = put_varint(out, at, value)
        if value > 0:
            copy_bytes(out, at, value_data, value_offsets[row], value)
            at += value
        at = put_varint(out, at, headers)
        if headers > 0:
            for header in range(list_offsets[row], list_offsets[row + 1]):
                name = int(name_offsets[header + 1] - name_offsets[header])
                at = put_varint(out, at, name)
                copy_bytes(out, at, name_data, name_offsets[header], name)
                at += name
                length = field_bytes(header_offsets, header_valid, header_shift, header)
                at = put_varint(out, at, length)
                if length > 0:
                    copy_bytes(out, at, header_data, header_offsets[header], length)
                    at += length
        positions[target] = at
        records[target] = delta + 1
    return len(targets), 0


write_rows = numba.njit(cache=True)(_write_rows)
