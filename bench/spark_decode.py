"""Decoding record batches into Arrow on one core, without broker and Spark."""

import time
from typing import NamedTuple

from ottla.client import TopicPartition
from ottla.client.fetch_response import AbortedTransaction
from ottla.protocol.batches import Record, build_batch
from ottla.spark.decode import RecordDecoder

FETCH_BYTES = 1 << 20
BATCH_BYTES = 16_384
FETCHES = 200
ROUNDS = 5


class _Fetched(NamedTuple):
    records: memoryview
    aborted_transactions: tuple[AbortedTransaction, ...] = ()


def decode_rate(value_bytes: int) -> float:
    """Records a second of processor time: the best round, as others share the machine."""
    count = max(1, BATCH_BYTES // (value_bytes + 10))
    offset, data = 0, bytearray()
    while len(data) < FETCH_BYTES:
        records = [
            Record(offset + n, 1_700_000_000_000 + n, None, bytes([n % 256]) * value_bytes)
            for n in range(count)
        ]
        data += build_batch(records, base_offset=offset)
        offset += count
    fetched = _Fetched(memoryview(bytes(data)))
    _decode(fetched, 1)
    best_s = min(_decode(fetched, FETCHES) for _ in range(ROUNDS))
    return offset * FETCHES / best_s


def _decode(fetched: _Fetched, times: int) -> float:
    decoder = RecordDecoder(TopicPartition("bench", 0), start_offset=0, end_offset=1 << 62)
    began = time.process_time()
    for _ in range(times):
        for _ in decoder.decode(fetched):
            pass
    decoder.finish()
    return time.process_time() - began


if __name__ == "__main__":
    for size in (100, 1000):
        print(f"{size} B: {decode_rate(size) / 1e6:.1f} M records/s")
