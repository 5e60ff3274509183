"""What one append, one read and the recovery of a gigabyte cost.

    python bench/storage_append.py [--directory DIR] [--recover-mb 512]

Prints microseconds for each append of one small batch (the CRC and the bare pwrite beside
it, as both are in the figure), for tail reads, and seconds for recovering each gigabyte.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from uuid import UUID

from crc32c import crc32c

from ottla.config.topic import TopicConfig
from ottla.protocol.batches import Record, build_batch
from ottla.protocol.ids import TopicPartition
from ottla.runtime.real import real_runtime
from ottla.storage.file_pool import FilePool
from ottla.storage.log import PartitionLog
from ottla.storage.recovery import OpenOptions, open_log

APPENDS = 50_000
ROUNDS = 5
VALUE_BYTES = 100
RECOVERED_BATCH_BYTES = 16_384


def microseconds_each(count: int, work: Callable[[], None]) -> float:
    """CPU time, the best of a few rounds: what others do on the machine only adds."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best / count * 1e6


def open_in(directory: str, *, clean: bool) -> PartitionLog:
    runtime = real_runtime()
    runtime.disk.mkdir(directory)
    return open_log(
        runtime,
        FilePool(runtime.disk),
        TopicPartition("bench", 0),
        UUID(int=1),
        directory,
        OpenOptions(TopicConfig(), clean),
    )


def measure_appends(directory: str, *, producer_id: int) -> float:
    log = open_in(directory, clean=True)
    now_ms = int(time.time() * 1000)
    sequence = 0
    batches: list[bytearray] = []

    def prepare() -> None:
        nonlocal sequence
        batches.clear()
        for _ in range(APPENDS):
            batches.append(
                build_batch(
                    [Record(0, now_ms, None, bytes(VALUE_BYTES))],
                    producer_id=producer_id,
                    producer_epoch=0 if producer_id >= 0 else -1,
                    base_sequence=sequence if producer_id >= 0 else -1,
                )
            )
            sequence += 1

    best = float("inf")
    for _ in range(ROUNDS):
        prepare()
        append = log.append_as_leader
        start = time.process_time()
        for batch in batches:
            append(batch, leader_epoch=0)
        best = min(best, time.process_time() - start)
    log.close()
    return best / APPENDS * 1e6


def measure_parts(directory: str) -> tuple[float, float]:
    batch = build_batch([Record(0, 0, None, bytes(VALUE_BYTES))])
    disk = real_runtime().disk
    file = disk.open(f"{directory}.raw", create=True)

    def write() -> None:
        for at in range(APPENDS):
            file.pwrite(batch, at * len(batch))

    def check() -> None:
        for _ in range(APPENDS):
            crc32c(memoryview(batch)[21:])

    figures = microseconds_each(APPENDS, check), microseconds_each(APPENDS, write)
    file.close()
    return figures


def measure_tail_reads(directory: str) -> float:
    log = open_in(directory, clean=True)
    end = log.log_end_offset
    log.append_as_leader(build_batch([Record(0, 0, None, b"x")]), leader_epoch=0)

    def read() -> None:
        for _ in range(APPENDS):
            log.read(end, 1 << 20, end_offset=end + 1, at_least_one=True).release()

    figure = microseconds_each(APPENDS, read)
    log.close()
    return figure


def measure_recovery(directory: str, megabytes: int, batch_bytes: int) -> float:
    log = open_in(directory, clean=True)
    value = bytes(batch_bytes - 80)
    for _ in range(megabytes * (1 << 20) // batch_bytes):
        log.append_as_leader(build_batch([Record(0, 1_000, None, value)]), leader_epoch=0)
    size = log.size_bytes()
    log.close()
    start = time.process_time()
    log = open_in(directory, clean=False)
    seconds = time.process_time() - start
    log.abandon()
    return seconds / size * (1 << 30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--directory", help="where to write; a temporary directory by default")
    parser.add_argument("--recover-mb", type=int, default=512)
    options = parser.parse_args()
    base = tempfile.mkdtemp(prefix="ottla-bench-", dir=options.directory)
    try:
        crc_us, write_us = measure_parts(f"{base}/raw")
        print(f"crc {crc_us:.2f} us, pwrite {write_us:.2f} us")
        print(f"append, no producer id: {measure_appends(f'{base}/a', producer_id=-1):.2f} us")
        print(f"append, idempotent: {measure_appends(f'{base}/b', producer_id=5):.2f} us")
        print(f"read at the tail: {measure_tail_reads(f'{base}/a'):.2f} us")
        for batch_bytes in (RECOVERED_BATCH_BYTES, 1_024):
            name = f"{base}/r{batch_bytes}"
            seconds = measure_recovery(name, options.recover_mb, batch_bytes)
            print(f"recovery, batches of {batch_bytes} bytes: {seconds:.2f} s/GB")
    finally:
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
