"""What many connections and many partitions cost: memory, files, time and CPU.

One broker is alive at a time. Connections are opened by this process, which needs as many
files as the broker: the soft limit is raised to the hard one, and where that is too low the
row says how many were opened.
"""

import contextlib
import resource
import socket
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median

from bench import generators
from bench.brokers import BrokerProcess, Kind, Missing, start_fresh
from bench.generators import LoadFailed
from bench.run import Say, note
from bench.table import Figure, Row, at_most, collect, value_at_most
from bench.wire import ALL_TOPICS, METADATA, METADATA_VERSION, WireError

IDLE_CONNECTIONS = 10_000
ANNOUNCING_CONNECTIONS = 500
ANNOUNCED_BYTES = 50_000_000
SPARE_FILES = 200
WATCH_S = 5.0
PARTITIONS = 10_000
TOPICS = 10
LEADERS_S_MAX = 300.0
RESTART_S_MAX = 400.0
POLL_S = 0.25  # Metadata of 10,000 partitions costs the broker some milliseconds each time
# An ApiVersions request of version 0: what a client sends first and then falls silent.
HELLO = struct.pack(">ihhih", 10, 18, 0, 1, -1)

CONNECTION_FIGURES = (
    Figure("idle_connections_mb", "MB above idle", value_at_most(200)),
    Figure("idle_connections", "connections held"),
)
ANNOUNCE_FIGURES = (
    Figure("announced_mb", "MB above idle at peak", value_at_most(64)),
    Figure("still_answers", "still answers (1 = yes)"),
)
PARTITION_FIGURES = (
    ("create until all have leaders", Figure("create_s", "s", at_most(0.25))),
    ("create until all have leaders", Figure("create_cpu_s", "CPU s", at_most(0.25))),
    ("list all", Figure("list_ms", "ms", at_most(0.25))),
    ("memory and files then", Figure("rss_mb", "RSS MB")),
    ("memory and files then", Figure("open_files", "open files")),
    ("clean restart to first record", Figure("restart_s", "s", at_most(0.25))),
    ("clean restart to first record", Figure("restart_cpu_s", "CPU s", at_most(0.25))),
    ("restart after kill -9", Figure("recover_s", "s", at_most(0.25))),
    ("restart after kill -9", Figure("recover_cpu_s", "CPU s", at_most(0.25))),
)
RECOVERY_FIGURES = (Figure("recovery_s_per_gb", "s/GB above a clean start", value_at_most(2)),)
RECOVERED_BYTES = 1_000_000_000
RECOVERED_BATCH_BYTES = (1_000, 16_000)


def raise_file_limit() -> int:
    """Let this process and the brokers it starts open as many files as they may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


@contextlib.contextmanager
def _connected(
    broker: BrokerProcess, count: int, first_bytes: bytes, *, is_answered: bool
) -> Iterator[int]:
    """Open connections that say something once; yields how many the broker took.

    Waiting for each answer keeps the queue of unaccepted connections short: where it overflows,
    the kernel drops the attempt and repeats it a second later.
    """
    with contextlib.ExitStack() as stack:
        held = 0
        for _ in range(count):
            try:
                peer = stack.enter_context(socket.create_connection(broker.address, timeout=10))
                peer.sendall(first_bytes)
                if is_answered:
                    peer.recv(4096)
            except OSError:
                break
            held += 1
        yield held


def _peak_rss(broker: BrokerProcess, seconds: float) -> int:
    deadline = time.monotonic() + seconds
    peak = 0
    while time.monotonic() < deadline:
        peak = max(peak, broker.usage().rss_bytes)
        time.sleep(0.2)
    return peak


def _idle_connections(broker: BrokerProcess) -> dict[str, float]:
    wanted = min(IDLE_CONNECTIONS, raise_file_limit() - SPARE_FILES)
    before = broker.usage().rss_bytes
    with _connected(broker, wanted, HELLO, is_answered=True) as held:
        peak = _peak_rss(broker, WATCH_S)
    return {"idle_connections_mb": (peak - before) / 1e6, "idle_connections": held}


def _announced_frames(broker: BrokerProcess) -> dict[str, float]:
    before = broker.usage().rss_bytes
    frame_head = struct.pack(">ihhih", ANNOUNCED_BYTES, 0, 9, 1, -1)
    with _connected(broker, ANNOUNCING_CONNECTIONS, frame_head, is_answered=False):
        peak = _peak_rss(broker, WATCH_S)
        try:
            with broker.connect() as connection:
                connection.fill("first-record", [b"still there"])
            answers = 1.0
        except (OSError, WireError):
            answers = 0.0
    return {"announced_mb": (peak - before) / 1e6, "still_answers": answers}


def _partitions(broker: BrokerProcess, count: int, topics: int) -> dict[str, float]:
    sample: dict[str, float] = {}
    before = broker.usage().cpu_s
    began = time.monotonic()
    with broker.connect() as connection:
        for index in range(topics):
            connection.create_topic(f"scale-{index}", partitions=count // topics)
        names = [f"scale-{index}" for index in range(topics)]
        while not _all_led(connection.topics(names), count):
            if time.monotonic() - began > LEADERS_S_MAX:
                raise RuntimeError(f"no leaders for {count} partitions in {LEADERS_S_MAX:g} s")
            time.sleep(POLL_S)
        sample["create_s"] = time.monotonic() - began
        sample["create_cpu_s"] = broker.usage().cpu_s - before
        listed = []
        for _ in range(5):
            asked = time.monotonic()
            connection.ask(METADATA, METADATA_VERSION, ALL_TOPICS)  # unread: reading costs more
            listed.append(time.monotonic() - asked)
        sample["list_ms"] = median(listed) * 1e3
    usage = broker.usage()
    sample["rss_mb"], sample["open_files"] = usage.rss_bytes / 1e6, usage.open_files
    broker.stop(timeout_s=RESTART_S_MAX)
    sample["restart_s"] = broker.start(timeout_s=RESTART_S_MAX)
    sample["restart_cpu_s"] = broker.usage().cpu_s
    time.sleep(WATCH_S)
    broker.kill()
    sample["recover_s"] = broker.start(timeout_s=RESTART_S_MAX)
    sample["recover_cpu_s"] = broker.usage().cpu_s
    return sample


def _recovery(batch_bytes: int) -> Callable[[BrokerProcess], dict[str, float]]:
    """What kill -9 costs whoever has a gigabyte of records that were never flushed."""

    def measure(broker: BrokerProcess) -> dict[str, float]:
        flags = {"create": True, "conns": 2, "records": 1, "size": batch_bytes}
        count = RECOVERED_BYTES // batch_bytes
        generators.rawload(broker, "recovered", requests=count, **flags)
        broker.kill()
        crashed_s = _until_end_offset(broker, count)
        broker.stop(timeout_s=RESTART_S_MAX)
        clean_s = _until_end_offset(broker, count)
        size_gb = count * batch_bytes / 1e9
        return {"recovery_s_per_gb": max(crashed_s - clean_s, 0.0) / size_gb}

    return measure


def _until_end_offset(broker: BrokerProcess, count: int) -> float:
    """Seconds from exec until the log says how far it reaches."""
    began = time.monotonic()
    broker.start(timeout_s=RESTART_S_MAX)
    with broker.connect() as connection:
        found = connection.end_offset("recovered")
    if found < count:
        raise RuntimeError(f"{found} records of {count} are left")
    return time.monotonic() - began


def _all_led(topics: Sequence[object], count: int) -> bool:
    leaders = [leader for topic in topics for leader in getattr(topic, "leaders", ())]
    return len(leaders) == count and min(leaders) >= 0


def compare_scale(
    kinds: Sequence[Kind], say: Say, *, partitions: int = PARTITIONS, rounds: int = 1
) -> list[Row]:
    """All rows of scale; each scenario gets a fresh broker, the brokers take turns."""
    raise_file_limit()
    connection_load = f"{IDLE_CONNECTIONS:,} idle connections"
    announce_load = f"{ANNOUNCING_CONNECTIONS} connections announce 50 MB frames and stop"
    scenarios: list[tuple[list[Row], Callable[[BrokerProcess], dict[str, float]]]] = [
        ([Row(connection_load, figure) for figure in CONNECTION_FIGURES], _idle_connections),
        ([Row(announce_load, figure) for figure in ANNOUNCE_FIGURES], _announced_frames),
        (
            [
                Row(f"{partitions:,} partitions: {what}", figure)
                for what, figure in PARTITION_FIGURES
            ],
            lambda broker: _partitions(broker, partitions, min(TOPICS, partitions)),
        ),
    ]
    for batch_bytes in RECOVERED_BATCH_BYTES:
        load = f"kill -9 with 1 GB unflushed in batches of {batch_bytes // 1000} KB"
        rows = [Row(load, figure) for figure in RECOVERY_FIGURES]
        scenarios.append((rows, _recovery(batch_bytes)))
    for rows, measure in scenarios:
        for _ in range(rounds):
            for kind in kinds:
                _measure_alone(kind, rows, measure, say)
    return [row for rows, _ in scenarios for row in rows]


def _measure_alone(
    kind: Kind, rows: list[Row], measure: Callable[[BrokerProcess], dict[str, float]], say: Say
) -> None:
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
        try:
            with start_fresh(kind, Path(folder)) as broker:
                sample = measure(broker)
        except (Missing, LoadFailed, RuntimeError, OSError, WireError) as error:
            say(f"  {rows[0].load}: {kind}: {error}")
            for row in rows:
                row.notes[kind] = note(error)
            return
    collect(rows, kind, sample)
    figures = ", ".join(f"{key} {value:.4g}" for key, value in sample.items())
    say(f"{rows[0].load}: {kind}: {figures}")
