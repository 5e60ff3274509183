"""Throws damaged requests at everything that reads what a client sent.

    python fuzz/fuzz_parser.py --count 10000 --seed 1

Inputs are valid requests of every API in every version, with record batches of every codec
inside, which are then damaged: bytes changed, cut, doubled and inserted, lengths replaced by huge
ones; and some that are only noise. Each goes through the header, the body, the batches, the
codecs and the records.

The oracle: every step returns or raises KafkaError. No input may take longer than SECONDS_MAX
of CPU (an alarm counts it, not a clock that a busy machine could upset), and on sampled inputs
no more than MEMORY_BYTES_MAX may be allocated. The same seed throws the same inputs.
"""

import argparse
import random
import signal
import struct
import sys
import tracemalloc
from types import FrameType
from typing import Any

from message_generator import random_fields, served_versions

from ottla.protocol.api import PRODUCE_VERSION_MIN, ApiKey
from ottla.protocol.batches import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    Record,
    build_batch,
    check_batch,
    count_records,
    iter_batches,
    iter_records,
    write_crc,
)
from ottla.protocol.codecs import Codec
from ottla.protocol.errors import KafkaError
from ottla.protocol.fetch import parse_fetch
from ottla.protocol.frames import parse_header, request_header
from ottla.protocol.messages import decode_request, encode_request
from ottla.protocol.produce import parse_produce

SECONDS_MAX = 5.0
DECOMPRESSED_BYTES_MAX = 200_000
MEMORY_BYTES_MAX = 8_000_000  # many times the largest input and what it may decompress to
MEMORY_SAMPLE = 50  # one input in so many is traced, as tracing is slow

_HUGE = (
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xfe",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\x0f",
    b"\xff" * 10,
    b"\x7f\xff",
    b"\x80\x80\x80\x80\x80\x00",
)
_SEEDS_KEPT = 4  # valid requests of each version, made once


class TooSlow(Exception):
    """An input took more CPU than any input may."""


class Fuzzer:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._versions = list(served_versions())
        self._valid: dict[tuple[int, int], list[bytes]] = {}
        self.refused = 0

    def run(self, count: int) -> None:
        """Try `count` inputs; raises whatever the oracle forbids, with the input in a note."""
        previous = signal.signal(signal.SIGVTALRM, _on_alarm)
        try:
            for index in range(count):
                data = self._input()
                signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS_MAX)
                try:
                    self._try(data, traced=index % MEMORY_SAMPLE == 0)
                except BaseException as error:
                    error.add_note(f"input {index}: {data.hex()}")
                    raise
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, previous)

    def _try(self, data: bytes, *, traced: bool) -> None:
        if not traced:
            self._read(data)
            return
        self._read(data)  # so that what is loaded once is not counted
        tracemalloc.start()
        try:
            self._read(data)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        if peak > MEMORY_BYTES_MAX:
            raise MemoryError(f"{peak} bytes for an input of {len(data)}")

    def _read(self, data: bytes) -> None:
        view = memoryview(bytearray(data))
        try:
            header = parse_header(view, 0, len(view))
            start, version = header.body_start, header.api_version
            if header.api_key == ApiKey.PRODUCE and version >= PRODUCE_VERSION_MIN:
                produce = parse_produce(version, view, start, len(view))
                for _, partitions in produce.topics:
                    for _, records in partitions:
                        if records is not None:
                            self._read_records(records)
            elif header.api_key == ApiKey.FETCH:
                parse_fetch(version, view, start, len(view))
            decode_request(header.api_key, version, view[start:])
        except KafkaError:
            self.refused += 1

    def _read_records(self, records: memoryview) -> None:
        try:
            for position, header in list(iter_batches(records)):
                batch = records[position : position + header.size_bytes]
                if self._random.random() < 0.9:
                    write_crc(batch, 0)  # damage must get past the CRC to be interesting
                self._read_batch(batch)
        except KafkaError:
            self.refused += 1

    def _read_batch(self, batch: memoryview) -> None:
        for step in (_check, _count, _iterate):
            try:
                step(batch)
            except KafkaError:
                self.refused += 1

    def _input(self) -> bytes:
        rng = self._random
        if rng.random() < 0.05:
            return rng.randbytes(rng.randint(0, 200))
        api_key, version = self._choose()
        if rng.random() < 0.05:
            return request_header(api_key, version, 1, "noise") + rng.randbytes(rng.randint(0, 80))
        return self._damaged(bytearray(rng.choice(self._requests(api_key, version))))

    def _choose(self) -> tuple[int, int]:
        if self._random.random() < 0.3:  # what carries records deserves more
            return ApiKey.PRODUCE, self._random.randint(PRODUCE_VERSION_MIN, 13)
        return self._random.choice(self._versions)

    def _requests(self, api_key: int, version: int) -> list[bytes]:
        requests = self._valid.get((api_key, version))
        if requests is None:
            requests = [self._valid_request(api_key, version) for _ in range(_SEEDS_KEPT)]
            self._valid[api_key, version] = requests
        return requests

    def _valid_request(self, api_key: int, version: int) -> bytes:
        from kio.index import load_request_schema

        fields = random_fields(self._random, load_request_schema(api_key, version))
        if api_key == ApiKey.PRODUCE:
            fields["topic_data"] = fields["topic_data"] or [{"partition_data": []}]
            for topic in fields["topic_data"]:
                topic["partition_data"] = [
                    {"index": index, "records": self._batch()} for index in range(2)
                ]
        return encode_request(api_key, version, 7, "fuzzer", fields)

    def _batch(self) -> bytes:
        rng = self._random
        records = [
            Record(
                index,
                1_700_000_000_000 + index,
                rng.choice((None, b"key")),
                rng.randbytes(rng.randint(0, 60)) * rng.choice((1, 1, 20)),
                ((b"h", b"v"),) * rng.randint(0, 2),
            )
            for index in range(rng.choice((1, 2, 30)))
        ]
        return bytes(build_batch(records, codec=rng.choice(list(Codec))))

    def _damaged(self, data: bytearray) -> bytes:
        rng = self._random
        for _ in range(rng.choice((0, 1, 1, 1, 2, 5))):
            if not data:
                break
            position = rng.randrange(len(data))
            kind = rng.randrange(7)
            if kind == 0:
                data[position] = rng.randrange(256)
            elif kind == 1:
                data[position] ^= 1 << rng.randrange(8)
            elif kind == 2:
                del data[position:]
            elif kind == 3:
                del data[position : position + rng.randint(1, 8)]
            elif kind == 4:
                data[position:position] = rng.randbytes(rng.randint(1, 8))
            elif kind == 5:
                huge = rng.choice(_HUGE)
                data[position : position + len(huge)] = huge
            else:
                stop = min(len(data), position + rng.randint(1, 100))
                data[position:position] = data[position:stop]
        return bytes(data)


def _check(batch: memoryview) -> Any:
    return check_batch(batch, 0, len(batch))


def _count(batch: memoryview) -> None:
    if not struct.unpack_from(">h", batch, ATTRIBUTES_AT)[0] & CODEC_MASK:
        count_records(batch)


def _iterate(batch: memoryview) -> None:
    for _ in iter_records(batch, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX):
        pass


def _on_alarm(_signal: int, _frame: FrameType | None) -> None:
    raise TooSlow(f"more than {SECONDS_MAX} s of CPU for one input")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    fuzzer = Fuzzer(options.seed)
    fuzzer.run(options.count)
    print(f"{options.count} inputs of seed {options.seed}: {fuzzer.refused} refusals, no surprise")
    return 0


if __name__ == "__main__":
    sys.exit(main())
