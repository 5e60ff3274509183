"""Which record of each key is the last one, and where the keys of a batch lie.

Two keys that are taken for one would lose a record, so a hash of 64 bits will not do for
millions of keys. Short keys stand for themselves; longer ones are replaced by a digest that
nobody can find two keys for, and whose length no short key has.

Records of a batch are walked without being opened: length, offset, key, and whether there is a
value. Batches of topics that became compacted later were never looked into, so every step is
held against the bytes there are; INVALID_RECORD where they do not lead to the end.

Pure.
"""

from collections.abc import Iterator
from hashlib import blake2b

from ottla.protocol.batches import read_varint
from ottla.protocol.errors import ErrorCode, KafkaError

DIGEST_BYTES = 24
# A slot of the dictionary, also while it grows, a key of up to 24 bytes and an offset.
ENTRY_BYTES = 200


def compact_key(key: bytes) -> bytes:
    """What stands for a key in the map."""
    if len(key) < DIGEST_BYTES:
        return key
    return blake2b(key, digest_size=DIGEST_BYTES).digest()


class OffsetMap:
    """The last offset of each key in the dirty part of a log, as far as memory allows."""

    __slots__ = ("entries_max", "is_full", "latest_offset", "offsets")

    def __init__(self, *, bytes_max: int, load_factor: float = 1.0) -> None:
        self.entries_max = max(int(bytes_max * load_factor) // ENTRY_BYTES, 1)
        self.offsets: dict[bytes, int] = {}
        self.latest_offset = -1  # every record up to here is in it, the last one included
        self.is_full = False

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def utilization(self) -> float:
        return len(self.offsets) / self.entries_max

    def put(self, key: bytes, offset: int) -> bool:
        """Note the record of a key; False, for good, if there is no room for another key."""
        offsets = self.offsets
        short = compact_key(key)
        if len(offsets) >= self.entries_max and short not in offsets:
            self.is_full = True
            return False
        offsets[short] = offset
        self.latest_offset = offset
        return True

    def is_superseded(self, key: bytes, offset: int) -> bool:
        """Whether a later record of the same key is known."""
        return self.offsets.get(compact_key(key), -1) > offset


def walk_records(data: bytes, count: int) -> Iterator[tuple[int, int, int, bytes | None, bool]]:
    """Start, end, offset delta, key and whether there is a value, of each record in `data`."""
    pos, size = 0, len(data)
    try:
        for _ in range(count):
            start = pos
            byte = data[pos]
            if byte < 0x80:
                length = byte
                pos += 1
            elif (second := data[pos + 1]) < 0x80:
                length = byte & 0x7F | second << 7
                pos += 2
            else:
                length, pos = read_varint(data, pos, size)
                length <<= 1
            end = pos + (length >> 1)
            if length & 1 or length < 0 or end > size:
                raise _malformed("claims a length that is not there")
            pos += 1  # attributes
            while data[pos] >= 0x80:
                pos += 1  # the timestamp
            pos += 1
            byte = data[pos]
            if byte < 0x80:
                delta = (byte >> 1) ^ -(byte & 1)
                pos += 1
            else:
                delta, pos = read_varint(data, pos, end)
            byte = data[pos]
            if byte < 0x80:
                key_length = (byte >> 1) ^ -(byte & 1)
                pos += 1
            else:
                key_length, pos = read_varint(data, pos, end)
            key = None
            if key_length >= 0:
                key_end = pos + key_length
                key = data[pos:key_end]
                pos = key_end
            elif key_length != -1:
                raise _malformed(f"has a key of {key_length} bytes")
            if pos >= end:
                raise _malformed("ends inside its key")
            # A value that is absent has the length -1, which is the single byte 1.
            yield start, end, delta, key, data[pos] != 1
            pos = end
    except IndexError:
        raise _malformed("ends inside a field") from None
    if pos != size:
        raise _malformed("is followed by bytes that are none")


def _malformed(what: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"A record of a compacted log {what}")
