"""`python -m ottla.spark.pipelines.warm_up`: compile what reads and writes records, once.

The first task on a new machine would compile it, in every Python process at once, while records
wait. Done in a process of its own while the JVM starts, it is found in numba's cache afterwards.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from ottla.client.fetch_response import AbortedTransaction
from ottla.client.metadata import TopicPartition
from ottla.spark.decode import RecordDecoder
from ottla.spark.encode import BatchEncoder, EncodedBatch

_HEADERS = [{"key": "h", "value": b"v"}]


class _Fetched(NamedTuple):
    records: memoryview
    aborted_transactions: tuple[AbortedTransaction, ...] = ()


def warm_up() -> None:
    """Encode and decode one record, with every kind of column."""
    pa: Any = import_module("pyarrow")
    encoded: list[bytes] = []

    def keep(batch: EncodedBatch) -> None:
        encoded.append(bytes(batch.data))

    encoder = BatchEncoder(
        topic="t",
        partitions_of=lambda topic: 1,
        consume=keep,
        now_ms=lambda: 0,
        with_headers=True,
        batch_bytes_max=1000,
        record_bytes_max=1000,
    )
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    columns = {
        "key": pa.array(["k"]),
        "value": pa.array(["v"]),
        "headers": pa.array([_HEADERS], headers),
    }
    encoder.add(pa.record_batch(columns))
    encoder.finish()
    for include_headers in (False, True):
        decoder = RecordDecoder(
            TopicPartition("t", 0), start_offset=0, end_offset=1, include_headers=include_headers
        )
        list(decoder.decode(_Fetched(memoryview(bytearray(encoded[0])))))
        decoder.finish()


if __name__ == "__main__":
    warm_up()
