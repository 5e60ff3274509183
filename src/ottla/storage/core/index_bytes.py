"""What the sparse indexes of a segment share: fixed-width entries searched where they lie.

An index of 10 MB has 1.3 million entries. Turning them into Python objects at start would
cost seconds and gigabytes, so the file's bytes are kept as they are and a lookup decodes
the twenty entries that a binary search touches.

Pure. Bytes that came from a file are not copied until the first change.
"""

RELATIVE_OFFSET_MAX = 2**31 - 1


class CorruptIndexError(Exception):
    """The bytes cannot be this index; the shell rebuilds it from the log."""


def whole_entries(data: bytes | bytearray, entry_size: int) -> bytes | bytearray:
    """`data` without the zeros that a preallocated index ends in after a crash.

    Apache Kafka creates an index at its largest size, full of zeros, and cuts it only when
    the segment is closed or rolled.
    """
    if len(data) % entry_size:
        raise CorruptIndexError(f"{len(data)} bytes is not a multiple of {entry_size}")
    if any(data[-entry_size:]):
        return data
    used = len(data.rstrip(b"\0"))
    return data[: -(-used // entry_size) * entry_size]
