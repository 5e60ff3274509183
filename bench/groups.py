"""What a rebalance and an offset commit cost: groups of simulated members on the wire.

The members are one asyncio process (group_members.py). Both brokers are up and asked in turns, with
the same settings: their defaults, save for a heartbeat interval of a second, which makes a round
shorter for both alike. The first round warms Apache Kafka's compiler and is thrown away.
"""

import asyncio
import contextlib
import struct
import tempfile
import time
import uuid
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from bench import group_frames as frames
from bench.brokers import BrokerProcess, Kind, Missing, start_fresh
from bench.classic_members import rebalance_classic
from bench.group_members import Group, GroupFailed, Member
from bench.loads import Effort
from bench.run import Say, note
from bench.scale import raise_file_limit
from bench.table import Figure, Row, at_least, at_most, collect, turns
from bench.wire import WireError

T = TypeVar("T")

SIZES = (100, 1_000)
CLASSIC_MEMBERS = 100
PARTITIONS_PER_MEMBER = 2
COMMITTING_MEMBERS = 16
COMMITS_IN_FLIGHT = 4  # of each member: Kafka's clients pipeline up to five requests
OVERRIDES = {
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    # A classic group waits so long for members to come; without it the first one makes a group of
    # its own, and the others find out a heartbeat later, or not, by chance.
    "group.initial.rebalance.delay.ms": "500",
}

REBALANCE_FIGURES = (
    Figure("join_s", "s until all who joined at once have settled", at_most(1.0)),
    Figure("change_s", "s until settled after one left and one joined", at_most(1.0)),
    Figure("rebalance_cpu_s", "broker CPU s of both", at_most(1.0)),
)
STEADY_FIGURE = Figure("steady_cpu_percent", "broker CPU % of a settled group", at_most(1.0))
CLASSIC_FIGURES = (
    Figure("join_s", "s until all who joined at once have settled", at_most(1.0)),
    Figure("rebalance_cpu_s", "broker CPU s", at_most(1.0)),
)
COMMIT_FIGURES = (
    Figure("commits_per_s", "commits/s", at_least(1.0)),
    Figure("cpu_us_per_commit", "broker CPU us/commit", at_most(1.0)),
)
STEADY_S = 5.0
FIND_COORDINATOR = 10
COORDINATOR_S_MAX = 30.0


def run_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run on uvloop where it is installed: the generator must not be the slow part."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


def await_coordinator(broker: BrokerProcess) -> None:
    """Have `__consumer_offsets` made: a broker does so when it is first asked for a coordinator."""
    name = b"bench"
    deadline = time.monotonic() + COORDINATOR_S_MAX
    with broker.connect() as connection:
        while True:
            answer = connection.ask(FIND_COORDINATOR, 0, struct.pack(">h", len(name)) + name)
            if answer.int16() == 0:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"no coordinator in {COORDINATOR_S_MAX:.0f} s")
            time.sleep(0.1)


def make_topic(broker: BrokerProcess, partitions: int) -> str:
    name = f"group-bench-{uuid.uuid4().hex[:12]}"
    with broker.connect() as connection:
        connection.create_topic(name, partitions=partitions)
    return name


def delete_topic(broker: BrokerProcess, name: str) -> None:
    with broker.connect() as connection:
        connection.delete_topic(name)


async def rebalance(broker: BrokerProcess, topic: str, count: int) -> dict[str, float]:
    """`count` members join at once; one leaves; one joins; then nothing happens for a while."""
    group = Group(broker.address, topic, PARTITIONS_PER_MEMBER * count)
    try:
        newcomers = await group.connect(count)
        (late,) = await group.connect(1)
        cpu_before, began = broker.usage().cpu_s, time.monotonic()
        group.join(newcomers)
        await group.settled()
        joined = time.monotonic()
        group.leave(newcomers[0])
        await group.settled()
        group.join([late])
        await group.settled()
        changed = time.monotonic()
        cpu_after = broker.usage().cpu_s
        await asyncio.sleep(STEADY_S)
        steady_cpu_s = broker.usage().cpu_s - cpu_after
    finally:
        group.close()
    return {
        "join_s": joined - began,
        "change_s": changed - joined,
        "rebalance_cpu_s": cpu_after - cpu_before,
        "steady_cpu_percent": 100 * steady_cpu_s / STEADY_S,
    }


class Committer:
    """A member that commits one partition's offset again and again."""

    def __init__(self, member: Member, topic: str, partition: int) -> None:
        self.done = 0
        self.failure: GroupFailed | None = None
        self._channel = member.channel
        self._is_begun = self._is_ending = False
        group, epoch = member.group.name, member.epoch
        self._frame = frames.offset_commit(group, member.member_id, epoch, topic, partition, 42)
        member.close_timer()
        member.channel.on_answer = self._on_answer

    def begin(self) -> None:
        self._is_begun = True
        self._channel.send(self._frame * COMMITS_IN_FLIGHT)

    def end(self) -> None:
        self._is_ending = True

    def _on_answer(self, data: bytes) -> None:
        if not self._is_begun:
            return  # to a heartbeat that was under way
        code = frames.commit_error(data)
        if code:
            self.failure = GroupFailed(f"a commit was answered with error {code}")
            return
        self.done += 1
        if not self._is_ending:
            self._channel.send(self._frame)


async def commit(broker: BrokerProcess, topic: str, seconds: float) -> dict[str, float]:
    """Members of a settled group commit as fast as the broker answers."""
    count = COMMITTING_MEMBERS
    group = Group(broker.address, topic, PARTITIONS_PER_MEMBER * count)
    try:
        members = await group.connect(count)
        group.join(members)
        await group.settled()
        committers = [
            Committer(member, topic, min(partition for _, partition in member.owned))
            for member in members
        ]
        await asyncio.sleep(0.5)  # heartbeats under way are answered
        cpu_before, began = broker.usage().cpu_s, time.monotonic()
        for committer in committers:
            committer.begin()
        await asyncio.sleep(seconds)
        done = sum(committer.done for committer in committers)
        elapsed = time.monotonic() - began
        cpu_s = broker.usage().cpu_s - cpu_before
        for committer in committers:
            committer.end()
            if committer.failure is not None:
                raise committer.failure
    finally:
        group.close()
    return {"commits_per_s": done / elapsed, "cpu_us_per_commit": 1e6 * cpu_s / max(1, done)}


def compare_groups(kinds: Sequence[Kind], effort: Effort, say: Say) -> list[Row]:
    """All rows of consumer groups."""
    raise_file_limit()
    scenarios = _scenarios(effort)
    notes: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder, contextlib.ExitStack() as up:
        brokers: dict[Kind, BrokerProcess] = {}
        for kind in kinds:
            say(f"starting {kind}")
            try:
                started = start_fresh(kind, Path(folder) / kind, overrides=OVERRIDES)
            except (Missing, RuntimeError) as error:
                notes[kind] = note(error)
                continue
            brokers[kind] = up.enter_context(started)
            await_coordinator(started)
        for scenario in scenarios:
            _sample(scenario, brokers, effort, say)
    rows = [row for scenario in scenarios for row in scenario.rows]
    for row in rows:
        row.notes = {**notes, **row.notes}
    return rows


class Scenario:
    """One load: its rows, how many partitions its topic has, and what is done with it."""

    def __init__(
        self, name: str, figures: Sequence[Figure], members: int, measure: Any, *, rounds: int
    ) -> None:
        self.rows = [Row(name, figure) for figure in figures]
        self.partitions = PARTITIONS_PER_MEMBER * members
        self.measure = measure
        self.rounds = rounds


def _scenarios(effort: Effort) -> list[Scenario]:
    scenarios = [
        Scenario(
            f"KIP-848 group of {size:,} members",
            (*REBALANCE_FIGURES, STEADY_FIGURE),
            size,
            lambda broker, topic, size=size: rebalance(broker, topic, size),
            rounds=effort.slow_rounds,
        )
        for size in SIZES
    ]
    scenarios.append(
        Scenario(
            f"classic group of {CLASSIC_MEMBERS} members",
            CLASSIC_FIGURES,
            CLASSIC_MEMBERS,
            lambda broker, topic: rebalance_classic(broker, topic, CLASSIC_MEMBERS),
            rounds=effort.slow_rounds,
        )
    )
    scenarios.append(
        Scenario(
            f"offset commits, {COMMITTING_MEMBERS} members, {COMMITS_IN_FLIGHT} in flight each",
            COMMIT_FIGURES,
            COMMITTING_MEMBERS,
            lambda broker, topic: commit(broker, topic, effort.seconds),
            rounds=effort.rounds,
        )
    )
    return scenarios


def _sample(
    scenario: Scenario, brokers: dict[Kind, BrokerProcess], effort: Effort, say: Say
) -> None:
    load = scenario.rows[0].load
    failed: set[str] = set()
    discarded = max(1, effort.discarded_rounds) * len(brokers)
    for index, name in enumerate(turns(list(brokers), scenario.rounds + discarded // len(brokers))):
        kind = Kind(name)
        if kind in failed:
            continue
        broker = brokers[kind]
        try:
            topic = make_topic(broker, scenario.partitions)
            sample = run_loop(scenario.measure(broker, topic))
            delete_topic(broker, topic)
        except (GroupFailed, OSError, RuntimeError, WireError) as error:
            failed.add(kind)
            say(f"  {load}: {kind}: {error}")
            for row in scenario.rows:
                row.notes[kind] = note(error)
            continue
        figures = ", ".join(f"{key} {value:.4g}" for key, value in sample.items())
        say(f"{load}: {kind}: {figures}{' (thrown away)' if index < discarded else ''}")
        if index >= discarded:
            collect(scenario.rows, kind, sample)
