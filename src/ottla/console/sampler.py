"""The task that looks at the cluster again and again, so that no page has to.

If each page asked the cluster, a list of two thousand topics would cost thousands of questions per
viewer. One task asks for everything in a handful of requests, keeps the newest view and a bounded
history of rates and lag, and pages read memory. What is seldom needed or expensive is asked less
often, and a cluster that is slow to answer is asked less often still. When nobody answers, the
history has a gap and the last view stays, marked as what it is.

Owned by the event loop of the console. Listeners are told after each look.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import nan
from typing import TypeVar

from ottla.client import Unreachable
from ottla.console.digest import NO_FIGURES, Figures
from ottla.console.events import EVENTS_MAX, Event, compare
from ottla.console.history import Ends, History, rate
from ottla.console.kafka.group_questions import GroupQuestions
from ottla.console.kafka.model import OPEN_STATES, ClusterView, Metadata, TopicPartition
from ottla.console.kafka.questions import EARLIEST, LATEST, Questions
from ottla.console.kafka.transaction_questions import TransactionQuestions
from ottla.console.pipelines import PipelineRow
from ottla.protocol.errors import KafkaError

T = TypeVar("T")
Commits = Mapping[str, Mapping[TopicPartition, int]]  # group -> partition -> offset

logger = logging.getLogger(__name__)

INTERVAL_S = 2.0
# Looking must not cost the cluster more than this share of the time, however large it is.
BUSY_SHARE_MAX = 0.4
# A view this old is shown with a warning, unless the console was told to look less often.
STALE_S = 10.0
# Consumers commit every few seconds: a rate between two looks would be nothing or far too much.
COMMITS_S = 15.0
# Groups whose members are asked for in each look.
DESCRIBED_GROUPS_MAX = 1_000
_METADATA_EVERY = 2
_STARTS_EVERY = 5
_SIZES_EVERY = 3
_TRANSACTIONS_EVERY = 5

CLUSTER_SERIES = ("produced", "consumed", "bytes", "lag", "under_replicated", "offline")


class Sampler:
    """The newest view, the history and the time line."""

    def __init__(
        self,
        questions: Questions,
        groups: GroupQuestions,
        transactions: TransactionQuestions,
        *,
        read_pipelines: Callable[[], list[PipelineRow]],
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._questions = questions
        self._groups = groups
        self._transactions = transactions
        self._read_pipelines = read_pipelines
        self.view = ClusterView()
        self.figures = NO_FIGURES
        self.pipelines: list[PipelineRow] = []
        self.cluster = History()
        self.topic_rates = History()
        self.group_lags = History()
        self.events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self.looks = 0  # done; one more has begun while one is under way
        self._begun = 0
        self._interval_s = interval_s
        self._commits: deque[tuple[float, Commits]] = deque()
        self._ends: Ends[TopicPartition] = Ends()
        self._task: asyncio.Task[None] | None = None
        self._wanted = asyncio.Event()
        self._looked = asyncio.Condition()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def look_soon(self) -> None:
        """Look again without waiting: something was changed by this console."""
        self._wanted.set()

    async def look_again(self) -> None:
        """Return after a look at the whole cluster that begins now; one under way is too old."""
        wanted = self._begun + 1
        self.look_soon()
        async with self._looked:
            await self._looked.wait_for(lambda: self.looks >= wanted)

    async def next_look(self) -> None:
        """Return after the next look at the cluster."""
        async with self._looked:
            await self._looked.wait()

    def note(self, kind: str, severity: str, text: str, link: str = "", subject: str = "") -> None:
        """Put something that the console did itself on the time line."""
        self.events.appendleft(Event(time.time(), kind, severity, text, link, subject))

    @property
    def stale_s(self) -> float | None:
        """The age of the view, if it is older than a person may take for the present."""
        if not self.view.offsets_at:
            return None
        age_s = time.time() - self.view.offsets_at
        return age_s if age_s > max(STALE_S, 3 * self._interval_s) else None

    async def _run(self) -> None:
        while True:
            began = time.monotonic()
            is_asked_for = self._wanted.is_set()
            self._wanted.clear()
            self._begun += 1
            try:
                await self._look(is_asked_for=is_asked_for)
            except KafkaError as error:
                self._on_trouble(str(error))
            except Exception:
                logger.exception("looking at the cluster failed")
                self._on_trouble("The console could not read the cluster's answer.")
            self.looks += 1
            async with self._looked:
                self._looked.notify_all()
            # Waiting for an answer that never came has cost the cluster nothing.
            busy_s = 0.0 if self.view.trouble is not None else time.monotonic() - began
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s(self._interval_s, busy_s)):
                    await self._wanted.wait()

    def _on_trouble(self, reason: str) -> None:
        if self.view.trouble is None:
            self.note("broker", "bad", f"The cluster does not answer: {reason}")
        self.view = replace(self.view, trouble=reason)
        # Nothing is known of now: a gap, rather than the last figures for ever.
        self.figures = NO_FIGURES
        self._commits.clear()
        for history in (self.cluster, self.topic_rates, self.group_lags):
            history.gap(time.time())

    async def _look(self, *, is_asked_for: bool) -> None:
        before = self.view
        turn = self.looks
        metadata = before.metadata
        metadata_at = before.metadata_at
        if before.trouble is not None or is_asked_for or turn % _METADATA_EVERY == 0:
            newest = await self._questions.metadata()
            # Keep the same object when nothing changed: comparing and caching go by identity.
            metadata = before.metadata if newest == before.metadata else newest
            metadata_at = time.time()
        view = replace(before, metadata=metadata, metadata_at=metadata_at, trouble=None)
        view = await self._with_offsets(view, is_full=turn % _STARTS_EVERY == 0 or is_asked_for)
        view = await self._with_groups(view)
        if turn % _SIZES_EVERY == 0 or is_asked_for:
            view = await self._with_sizes(view)
        if turn % _TRANSACTIONS_EVERY == 0:
            told = await self._transactions.transactions(view.metadata, states=OPEN_STATES)
            view = replace(view, open_transactions=tuple(told.found))
        self.pipelines = await asyncio.to_thread(self._read_pipelines)
        if before.trouble is not None:
            self.note("broker", "good", "The cluster answers again")
        for event in compare(before, view, time.time()):
            self.events.appendleft(event)
        self.view = view
        self._record(before, view)

    async def _with_offsets(self, view: ClusterView, *, is_full: bool) -> ClusterView:
        partitions = view.topic_partitions()
        ends = await self._questions.offsets(
            view.metadata, dict.fromkeys(partitions, LATEST), is_committed=False
        )
        if not ends.found:
            for error in ends.troubles.values():
                if isinstance(error, Unreachable):
                    raise error
        at = time.time()
        starts = view.start_offsets
        if is_full or len(starts) < len(partitions):
            found = await self._questions.offsets(
                view.metadata, dict.fromkeys(partitions, EARLIEST), is_committed=False
            )
            starts = _newest(partitions, found.found, starts)
        return replace(
            view,
            end_offsets=_newest(partitions, ends.found, view.end_offsets),
            start_offsets=starts,
            offsets_at=at,
        )

    async def _with_groups(self, view: ClusterView) -> ClusterView:
        told = await self._groups.groups(view.metadata)
        # A coordinator that does not answer now, or loads, has not lost its groups.
        kept = {
            group_id: group
            for group_id, group in view.groups.items()
            if group_id not in told.found and group.coordinator in told.troubles
        }
        groups = dict(sorted({**told.found, **kept}.items())) if kept else told.found
        committed = await self._groups.committed(told.found.values())
        peopled = [group for group in told.found.values() if group.state not in ("Empty", "Dead")]
        described = await self._groups.describe_all(peopled[:DESCRIBED_GROUPS_MAX])
        return replace(
            view,
            groups=groups,
            committed=_of_groups(groups, committed.offsets, view.committed),
            markers=_of_groups(groups, committed.markers, view.markers),
            descriptions=_of_groups(groups, described, view.descriptions),
            group_troubles={**told.troubles, **committed.troubles},
            groups_at=time.time(),
        )

    async def _with_sizes(self, view: ClusterView) -> ClusterView:
        told = await self._questions.log_directories(view.metadata)
        return replace(
            view,
            log_directories=told.found,
            directory_troubles=told.troubles,
            sizes=told.sizes,
            sizes_at=time.time(),
        )

    def _record(self, before: ClusterView, view: ClusterView) -> None:
        # After a gap, the growth since before it is no rate of now.
        is_after_gap = before.trouble is not None or not before.offsets_at
        seconds = 0.0 if is_after_gap else view.offsets_at - before.offsets_at
        rates = partition_rates(before, view, seconds)
        topics = topic_rates(view.metadata, rates) if seconds > 0 else {}
        consumed = self._consumed(view)
        read = {key for offsets in view.committed.values() for key in offsets}
        self._ends.note(view.offsets_at, view.end_offsets, read)
        self.figures = Figures(rates, topics, consumed, self._behind(view))
        self.topic_rates.sample(view.offsets_at, topics or dict.fromkeys(view.metadata.topics, nan))
        lags = {group_id: view.lag_of(group_id) for group_id in view.groups}
        known = {group_id: float(lag) for group_id, lag in lags.items() if lag is not None}
        self.group_lags.sample(view.offsets_at, known)
        troubles = [
            (partition.is_under_replicated, partition.leader < 0)
            for topic in view.metadata.topics.values()
            for partition in topic.partitions
        ]
        size_seconds = view.sizes_at - before.sizes_at if before.sizes_at else 0.0
        bytes_rate = (
            rate(before.sizes, view.sizes, size_seconds)
            if view.sizes_at != before.sizes_at
            else self.cluster.newest("bytes") or 0.0
        )
        self.cluster.sample(
            view.offsets_at,
            {
                "produced": sum(topics.values()) if topics else nan,
                "consumed": sum(consumed.values()) if consumed or not view.committed else nan,
                "bytes": bytes_rate,
                "lag": sum(known.values()),
                "under_replicated": float(sum(under for under, _ in troubles)),
                "offline": float(sum(offline for _, offline in troubles)),
            },
        )

    def _consumed(self, view: ClusterView) -> dict[tuple[str, str], float]:
        """Records a second that each group committed of each topic, over the last commits."""
        self._commits.append((view.groups_at, view.committed))
        while len(self._commits) > 2 and view.groups_at - self._commits[1][0] >= COMMITS_S:
            self._commits.popleft()
        return consumed_rates(self._commits)

    def _behind(self, view: ClusterView) -> dict[str, float]:
        """How old the oldest record is that each group has not read, where it is behind."""
        behind = {}
        for group_id, offsets in view.committed.items():
            ages = [
                self._ends.age_s(key, offset, end=end, now=view.offsets_at)
                for key, offset in offsets.items()
                if (end := view.end_offsets.get(key, 0)) > offset
            ]
            if ages:
                behind[group_id] = max(ages)
        return behind


def pause_s(interval_s: float, busy_s: float) -> float:
    """How long to wait after a look, so that looking takes its share of the time at most."""
    return max(interval_s - busy_s, busy_s * (1 / BUSY_SHARE_MAX - 1))


def _of_groups(
    groups: Iterable[str], told: Mapping[str, T], known: Mapping[str, T]
) -> dict[str, T]:
    """What was told now of each group, or what is known of those that nobody told of."""
    return {
        group_id: told[group_id] if group_id in told else known[group_id]
        for group_id in groups
        if group_id in told or group_id in known
    }


def consumed_rates(looks: Sequence[tuple[float, Commits]]) -> dict[tuple[str, str], float]:
    """Records a second by group and topic, from the first look that knows a partition to the last.

    A reset backwards counts as still.
    """
    rates: dict[tuple[str, str], float] = {}
    now, newest = looks[-1]
    for group_id, offsets in newest.items():
        for key, offset in offsets.items():
            began, earlier = _first_known(looks, group_id, key)
            if now > began:
                pair = (group_id, key[0])
                rates[pair] = rates.get(pair, 0.0) + max(0, offset - earlier) / (now - began)
    return rates


def _first_known(
    looks: Sequence[tuple[float, Commits]], group_id: str, key: TopicPartition
) -> tuple[float, int]:
    return next(
        (at, committed[group_id][key])
        for at, committed in looks
        if group_id in committed and key in committed[group_id]
    )


def _newest(
    partitions: Iterable[TopicPartition],
    found: Mapping[TopicPartition, tuple[int, int]],
    known: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """What was told now, and what is known of partitions whose leader kept silent."""
    newest = {}
    for partition in partitions:
        told = found.get(partition)
        if told is not None:
            newest[partition] = told[0]
        elif partition in known:
            newest[partition] = known[partition]
    return newest


def partition_rates(
    before: ClusterView, after: ClusterView, seconds: float
) -> dict[TopicPartition, float]:
    """Records a second by partition, between two views."""
    if seconds <= 0:
        return {}
    return {
        partition: max(0, end - before.end_offsets.get(partition, end)) / seconds
        for partition, end in after.end_offsets.items()
    }


def topic_rates(metadata: Metadata, rates: Mapping[TopicPartition, float]) -> dict[str, float]:
    """Records a second by topic."""
    totals = dict.fromkeys(metadata.topics, 0.0)
    for (name, _), value in rates.items():
        if name in totals:
            totals[name] += value
    return totals
