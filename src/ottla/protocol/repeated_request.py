"""The request that a client sends again and again word for word, recognised unparsed. Pure.

From one to the next only the correlation id changes; all else is kept as bytes.
"""

from struct import Struct

_HEAD_BYTES = 8  # API key, version and correlation id


class RepeatedRequest:
    __slots__ = ("_frame", "_kept")

    def __init__(self, frame: memoryview) -> None:
        """The request in `frame`, from its API key on, as one to expect again."""
        self._kept = bytes(frame[_HEAD_BYTES:])
        self._frame = Struct(f">4xi{len(self._kept)}s")

    def correlation_id_in(self, buffer: memoryview, start: int, end: int) -> int | None:
        """Of the request in [start, end); None if it is another.

        API key and version have to be the same; they are not looked at.
        """
        if end - start != self._frame.size:
            return None
        correlation_id, rest = self._frame.unpack_from(buffer, start)
        return correlation_id if rest == self._kept else None
