"""Walking from batch to batch through a segment file, by headers alone.

A batch says how long it is, so its neighbour is found without reading its records. Nothing
but the length is checked: these are batches that were checked when they were written.
"""

from collections.abc import Callable, Iterator

from ottla.protocol.batches import (
    HEADER,
    HEADER_BYTES,
    LENGTH_MIN,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.runtime.interfaces import File

# Several small batches come with one read; of a large one little is read in vain.
_BLOCK_BYTES = 65_536


class CorruptSegmentError(KafkaError):
    """Bytes below the known size of a segment are not batches."""

    def __init__(self, sentence: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, sentence)


def iter_headers(
    file: Callable[[], File], position: int, limit: int
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch in [position, limit), two batch boundaries.

    `file` is asked before each read, as the pool may have closed it meanwhile.
    """
    unpack, make = HEADER.unpack_from, BatchHeader._make
    while position < limit:
        block = file().pread(min(_BLOCK_BYTES, limit - position), position)
        at, block_end = 0, len(block) - HEADER_BYTES
        while at <= block_end:
            header = make(unpack(block, at))
            if header.batch_length < LENGTH_MIN:
                raise CorruptSegmentError(f"{file().path} has no batch at {position + at}")
            yield position + at, header
            at += header.batch_length + LOG_OVERHEAD_BYTES
        if at == 0:
            raise CorruptSegmentError(f"{file().path} ends inside the header at {position}")
        position += at
