"""Coordinator records and their fields, whose bytes lie in logs that others wrote too. Pure.

Older versions of a record write lengths as int16 and int32, flexible ones as unsigned varints.
Every length is held against the bytes there are; what does not fit is CORRUPT_MESSAGE.
"""

from struct import Struct
from struct import error as StructError
from typing import Protocol
from uuid import UUID

from ottla.protocol.errors import ErrorCode, KafkaError

_BYTE = Struct(">b")
_SHORT = Struct(">h")
_INT = Struct(">i")
_LONG = Struct(">q")
_VARINT_BYTES_MAX = 5


class KeyValue(Protocol):
    """What is written: a record of either coordinator."""

    @property
    def key(self) -> bytes: ...

    @property
    def value(self) -> bytes | None: ...


class FieldReader:
    """Fields one after another."""

    __slots__ = ("_at", "_data", "_is_flexible")

    def __init__(self, data: bytes, at: int = 0, *, is_flexible: bool = False) -> None:
        self._data = data
        self._at = at
        self._is_flexible = is_flexible

    def int8(self) -> int:
        return self._fixed(_BYTE)

    def int16(self) -> int:
        return self._fixed(_SHORT)

    def int32(self) -> int:
        return self._fixed(_INT)

    def int64(self) -> int:
        return self._fixed(_LONG)

    def uuid(self) -> UUID:
        return UUID(bytes=self._take(16))

    def raw(self, length: int) -> bytes:
        return self._take(length)

    def unsigned_varint(self) -> int:
        data, at = self._data, self._at
        if at < len(data) and data[at] < 0x80:  # as nearly all are
            self._at = at + 1
            return data[at]
        value = 0
        for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise corrupt("a varint has more than five bytes")

    def nullable_string(self) -> str | None:
        length = self.unsigned_varint() - 1 if self._is_flexible else self.int16()
        if length < 0:
            return None
        start = self._at
        end = self._at = start + length
        if end > len(self._data):
            raise corrupt("it ends early")
        try:
            return self._data[start:end].decode()
        except UnicodeDecodeError:
            raise corrupt("a string is not UTF-8") from None

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise corrupt("a string that must be there is null")
        return text

    def sized_bytes(self) -> bytes:
        return self._take(self._length())

    def nullable_bytes(self) -> bytes | None:
        length = self.unsigned_varint() - 1 if self._is_flexible else self.int32()
        return None if length < 0 else self._take(length)

    def array_length(self) -> int:
        length = self._length()
        if length > len(self._data) - self._at:
            raise corrupt(f"an array claims {length} elements")
        return length

    def nullable_array_length(self) -> int | None:
        at = self._at
        length = self.unsigned_varint() - 1 if self._is_flexible else self.int32()
        if length < 0:
            return None
        self._at = at
        return self.array_length()

    def tagged(self) -> dict[int, bytes]:
        """The tagged fields that end a flexible struct, by tag."""
        found: dict[int, bytes] = {}
        for _ in range(self.unsigned_varint()):
            tag = self.unsigned_varint()
            found[tag] = self._take(self.unsigned_varint())
        return found

    def _length(self) -> int:
        length = self.unsigned_varint() - 1 if self._is_flexible else self.int32()
        if length < 0:
            raise corrupt("bytes or an array that must be there are null")
        return length

    def _fixed(self, form: Struct) -> int:
        try:
            value: int = form.unpack_from(self._data, self._at)[0]
        except StructError:
            raise corrupt("it ends early") from None
        self._at += form.size
        return value

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if end > len(self._data):
            raise corrupt("it ends early")
        taken = self._data[self._at : end]
        self._at = end
        return taken


def corrupt(what: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"A coordinator record is damaged: {what}")
