"""The columns of an Arrow batch as numpy views of its buffers, checked. Pure.

The compiled functions follow Arrow's offsets without looking. So what they get is made here and
only here: offsets from the array's own start, as 64-bit numbers, that never fall and never pass the
end of the data.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

pa: Any = import_module("pyarrow")

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

NO_BYTES: Bytes = np.empty(0, np.uint8)
NO_OFFSETS: Offsets = np.empty(0, np.int64)
NO_BYTES.flags.writeable = False
NO_OFFSETS.flags.writeable = False


class VariableColumn(NamedTuple):
    """Strings, bytes or lists; no offsets at all where the column is not there."""

    data: Bytes
    offsets: Offsets
    valid: Bytes  # empty where no value is null
    shift: int  # where the bit of the first row lies


class HeadersColumn(NamedTuple):
    lists: VariableColumn
    names: VariableColumn
    values: VariableColumn


NO_COLUMN = VariableColumn(NO_BYTES, NO_OFFSETS, NO_BYTES, 0)
NO_HEADERS = HeadersColumn(NO_COLUMN, NO_COLUMN, NO_COLUMN)


def variable_column(array: Any) -> VariableColumn:
    """A string or binary array, of 32-bit or 64-bit offsets."""
    if not len(array):
        return VariableColumn(NO_BYTES, np.zeros(1, np.int64), NO_BYTES, 0)
    buffers = array.buffers()
    kind = array.type
    is_large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    data = _bytes_of(buffers[2])
    offsets = _offsets_of(buffers[1], array.offset, len(array), is_large=is_large)
    _check_offsets(offsets, len(data))
    return VariableColumn(data, offsets, _validity_of(array, buffers[0]), array.offset)


def headers_column(array: Any) -> HeadersColumn:
    """An array of lists of (key, value) structs."""
    if not len(array):
        return NO_HEADERS
    buffers = array.buffers()
    offsets = _offsets_of(
        buffers[1], array.offset, len(array), is_large=pa.types.is_large_list(array.type)
    )
    entries = array.values
    _check_offsets(offsets, len(entries))
    names, values = entries.field(0), entries.field(1)
    if names.null_count:
        raise ValueError("A record header has no key; the field 'key' of headers must not be null.")
    lists = VariableColumn(NO_BYTES, offsets, _validity_of(array, buffers[0]), array.offset)
    return HeadersColumn(lists, variable_column(names), variable_column(values))


def int32_column(array: Any) -> tuple[npt.NDArray[np.int32], Bytes, int]:
    """Values, validity and the place of the first validity bit of an int32 array."""
    buffers = array.buffers()
    values = np.frombuffer(buffers[1], np.int32, len(array), array.offset * 4)
    values.flags.writeable = False
    return values, _validity_of(array, buffers[0]), array.offset


def _bytes_of(buffer: Any) -> Bytes:
    if buffer is None or buffer.size == 0:
        return NO_BYTES
    view: Bytes = np.frombuffer(buffer, np.uint8)
    view.flags.writeable = False  # one type for the compiler, wherever the buffer came from
    return view


def _offsets_of(buffer: Any, start: int, count: int, *, is_large: bool) -> Offsets:
    kind = np.dtype(np.int64 if is_large else np.int32)
    offsets = np.frombuffer(buffer, kind, count + 1, start * kind.itemsize).astype(np.int64)
    offsets.flags.writeable = False
    return offsets


def _validity_of(array: Any, buffer: Any) -> Bytes:
    return _bytes_of(buffer) if array.null_count else NO_BYTES


def _check_offsets(offsets: Offsets, data_length: int) -> None:
    if offsets[0] < 0 or offsets[-1] > data_length or bool((np.diff(offsets) < 0).any()):
        raise ValueError("The Arrow batch has offsets outside its data.")
