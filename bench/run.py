"""The order of a comparison: both brokers up, warmed, and sampled in turns.

Both run at once, since an idle broker costs next to nothing, and a restart before each sample
would measure Apache Kafka's compiler. Start time and idle memory are measured apart, with one
broker alive at a time. A load that fails on one broker leaves a note in its cell and the rest
goes on.
"""

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from bench import generators, loads, transactions
from bench.brokers import BrokerProcess, Kind, Missing, start_fresh
from bench.generators import LoadFailed
from bench.loads import Effort, Load
from bench.table import Figure, Row, at_most, collect, turns

SETTLE_S = 3.0  # after the start, before idle memory is read
NOTE_CHARACTERS_MAX = 60
SETTLE_CHUNK = b"o" * (1 << 20)
SETTLE_SHARE = 1.5

Say = Callable[[str], None]

START_FIGURES = (
    Figure("start_s", "s", at_most(0.2)),
    Figure("start_cpu_s", "CPU s", at_most(0.2)),
    Figure("rss_mb", "idle RSS MB", at_most(0.25)),
    Figure("pss_mb", "idle PSS MB", at_most(0.25)),
    Figure("threads", "threads"),
    Figure("idle_cpu_percent", "idle CPU %"),
)


def settle_memory(folder: Path, bytes_to_come: int) -> None:
    """Give the next sample the same memory to write to, whoever it is.

    What earlier samples wrote goes to the disk first, or the kernel slows down whoever writes
    when its limit of dirty pages is reached. And in a virtual machine the first write to a page
    costs three times a later one, so as many pages as the sample needs are used and freed.
    """
    os.sync()
    if not bytes_to_come:
        return
    path = folder / "settle"
    with path.open("wb", buffering=0) as file:
        for _ in range(int(SETTLE_SHARE * bytes_to_come / len(SETTLE_CHUNK))):
            file.write(SETTLE_CHUNK)
    path.unlink()


def note(error: Exception) -> str:
    """What a cell says instead of a figure: one short line."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].replace("|", "/")[:NOTE_CHARACTERS_MAX]


def rows_of(load: Load) -> list[Row]:
    return [Row(load.name, figure) for figure in load.figures]


@contextlib.contextmanager
def running(
    kinds: Sequence[Kind], folder: Path, notes: dict[str, str], say: Say
) -> Iterator[dict[Kind, BrokerProcess]]:
    """Start every broker that starts; the others are noted."""
    with contextlib.ExitStack() as stack:
        brokers: dict[Kind, BrokerProcess] = {}
        for kind in kinds:
            say(f"starting {kind}")
            try:
                brokers[kind] = stack.enter_context(start_fresh(kind, folder / kind))
            except (Missing, RuntimeError) as error:
                say(f"  {error}")
                notes[kind] = note(error)
        yield brokers


def compare(
    kinds: Sequence[Kind], effort: Effort, groups: Sequence[str], say: Say
) -> dict[str, list[Row]]:
    """Every load of the chosen groups on every broker; rows by group."""
    by_group: dict[str, list[Row]] = {}
    if not set(groups) & loads.GROUPS:
        return by_group
    notes: dict[str, str] = {}
    with (
        tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder,
        running(kinds, Path(folder), notes, say) as brokers,
    ):
        if not brokers:
            return by_group
        consumes_by_group = all(generators.speaks_groups(broker) for broker in brokers.values())
        all_loads = (
            *loads.raw_loads(effort),
            *loads.client_loads(effort, by_group=consumes_by_group),
            *transactions.transaction_loads(effort),
        )
        _warm_up(brokers, effort, say)
        for load in all_loads:
            if load.group in groups:
                by_group.setdefault(load.group, []).extend(_sample(load, brokers, effort, say))
    for row in (row for rows in by_group.values() for row in rows):
        row.notes = {**notes, **row.notes}
    return by_group


def _warm_up(brokers: Mapping[Kind, BrokerProcess], effort: Effort, say: Say) -> None:
    """Let Apache Kafka compile its hot paths, and both fill their caches."""
    for kind, broker in brokers.items():
        count = effort.warmup_requests
        say(f"warming {kind} with {count:,} requests")
        with contextlib.suppress(Missing, LoadFailed):
            generators.rawload(broker, "warm", create=True, requests=count)
            flags = {"mode": "fetch", "offsets": 100, "maxbytes": 1_024}
            generators.rawload(broker, "warm", requests=count // 2, **flags)
            generators.rawload(broker, "warm", requests=count // 40, records=60, size=1_000)


def _sample(
    load: Load, brokers: Mapping[Kind, BrokerProcess], effort: Effort, say: Say
) -> list[Row]:
    rows = rows_of(load)
    rounds = effort.slow_rounds if load.is_slow else effort.rounds
    failed: set[str] = set()

    def attempt(kind: Kind, work: Callable[[BrokerProcess], None]) -> None:
        settle_memory(brokers[kind].directory, load.bytes_written)
        try:
            work(brokers[kind])
        except (Missing, LoadFailed, OSError, RuntimeError, ValueError) as error:
            failed.add(kind)
            ended = brokers[kind].exit_code()
            reason = error if ended is None else RuntimeError(f"the broker ended with {ended}")
            say(f"  {load.name}: {kind}: {reason}")
            for row in rows:
                row.notes[kind] = note(reason)

    def measure(broker: BrokerProcess) -> None:
        collect(rows, broker.kind, load.measure(broker))

    def discard(broker: BrokerProcess) -> None:
        load.measure(broker)

    if load.prepare is not None:
        for kind in brokers:
            attempt(kind, load.prepare)
    discarded = 0 if load.is_slow else effort.discarded_rounds
    for index, name in enumerate(turns(list(brokers), discarded + rounds)):
        if name not in failed:
            attempt(Kind(name), discard if index < discarded * len(brokers) else measure)
    first = rows[0]
    ratio = "" if first.ratio is None else f"{first.ratio:.2f}x"
    say(f"{load.name}: {' '.join(first.cells()[2:4])} {first.figure.unit} {ratio}")
    return rows


def compare_starts(kinds: Sequence[Kind], effort: Effort, say: Say) -> list[Row]:
    """Exec to first acknowledged record, then memory and CPU of a broker that nobody uses."""
    rows = [Row("start to first acknowledged record", figure) for figure in START_FIGURES[:2]]
    rows += [Row("idle broker", figure) for figure in START_FIGURES[2:]]
    failed: set[str] = set()
    for name in turns(list(kinds), effort.start_rounds):
        kind = Kind(name)
        if kind in failed:
            continue
        with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
            try:
                sample = _start_once(kind, Path(folder))
            except (Missing, RuntimeError) as error:
                failed.add(kind)
                say(f"  start of {kind}: {error}")
                for row in rows:
                    row.notes[kind] = note(error)
                continue
        collect(rows, kind, sample)
        say(f"start of {kind}: {sample['start_s']:.2f} s, {sample['rss_mb']:.0f} MB")
    return rows


def _start_once(kind: Kind, folder: Path) -> dict[str, float]:
    broker = BrokerProcess(kind, folder)
    broker.format()
    with broker:
        seconds = broker.start()
        started = broker.usage()
        time.sleep(SETTLE_S)
        settled = broker.usage()
        time.sleep(SETTLE_S)
        idle = broker.usage()
    return {
        "start_s": seconds,
        "start_cpu_s": started.cpu_s,
        "rss_mb": idle.rss_bytes / 1e6,
        "pss_mb": idle.pss_bytes / 1e6,
        "threads": idle.threads,
        "idle_cpu_percent": 100 * (idle.cpu_s - settled.cpu_s) / SETTLE_S,
    }
