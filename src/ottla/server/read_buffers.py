"""Which memory the requests of a broker are read into, and how much of it at once.

Owned by the event loop's thread. See `connection` for how frames are cut from it.
"""

import asyncio
from typing import Protocol

# Large enough that a busy connection empties its socket buffer in one read.
BUFFER_BYTES = 256 * 1024
# Large buffers lent to connections that pause within a frame. Whoever comes when all are lent
# starts with a small one, which grows with the bytes that arrive.
LENT_BUFFERS_MAX = 16
SMALL_BUFFER_BYTES = 4096
# A producer's largest request by default is 1 MB. A buffer that has to grow to that for each
# request costs more in fresh pages than the request itself.
LARGE_BUFFER_BYTES = 2 * 1024 * 1024
LENT_LARGE_BUFFERS_MAX = 4
LENT_MAX = {BUFFER_BYTES: LENT_BUFFERS_MAX, LARGE_BUFFER_BYTES: LENT_LARGE_BUFFERS_MAX}


class Reader(Protocol):
    """A connection that has a request in part."""

    def on_room(self, size: int) -> None:
        """The rest of it may be read now."""


class ReadBuffers:
    """The read buffers of one event loop: one that all connections share, some to lend.

    They also say whose turn it is where `queued.max.request.bytes` bounds the requests that
    have come in part.
    """

    __slots__ = ("_queued_bytes", "_queued_bytes_max", "_spare", "_waiting", "shared")

    def __init__(self, queued_bytes_max: int = -1) -> None:
        self.shared = memoryview(bytearray(BUFFER_BYTES))
        self._queued_bytes = 0
        self._queued_bytes_max = queued_bytes_max
        self._waiting: dict[Reader, int] = {}
        # By size; of no size until first lent.
        self._spare = {
            size: [bytearray() for _ in range(count)] for size, count in LENT_MAX.items()
        }

    def lend(self, size: int, frame_bytes: int) -> bytearray:
        """A buffer of at least `size` bytes, and for the whole frame while there are such."""
        for spare_bytes, spare in self._spare.items():
            if spare and size <= spare_bytes and frame_bytes <= spare_bytes:
                return spare.pop() or bytearray(spare_bytes)
        return bytearray(max(size, SMALL_BUFFER_BYTES))

    def give_back(self, buffer: bytearray) -> None:
        size = len(buffer)
        spare = self._spare.get(size)
        # One that grew may have just this size without having been lent.
        if spare is not None and len(spare) < LENT_MAX[size]:
            spare.append(buffer)

    def reserve(self, connection: Reader, size: int) -> bool:
        """Whether the rest of a request may be read now; `on_room` says when, if not.

        As in Apache Kafka the last one may exceed the bound.
        """
        if self._queued_bytes_max <= 0:
            return True
        if self._queued_bytes >= self._queued_bytes_max:
            self._waiting[connection] = size
            return False
        self._queued_bytes += size
        return True

    def free(self, connection: Reader, size: int) -> None:
        """The request has been read, or its connection is gone."""
        self._waiting.pop(connection, None)
        if self._queued_bytes_max <= 0:
            return
        self._queued_bytes -= size
        while self._waiting and self._queued_bytes < self._queued_bytes_max:
            following, wanted = next(iter(self._waiting.items()))
            del self._waiting[following]
            self._queued_bytes += wanted
            # Not at once: somebody is in the middle of a read.
            asyncio.get_running_loop().call_soon(following.on_room, wanted)
