"""The task that looks at the cluster again and again, so that no page has to.

If each page asked the cluster, a list of two thousand topics would cost thousands of questions per
viewer. One task asks for everything in a handful of requests, keeps the newest view and a bounded
history of rates and lag, and pages read memory. What is seldom needed or expensive is asked less
often, and a cluster that is slow to answer is asked less often still.

Owned by the event loop of the console. Listeners are told after each look.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from math import nan

from ottla.console.events import EVENTS_MAX, Event, compare
from ottla.console.history import History, rate
from ottla.console.kafka.model import ClusterView, Metadata, TopicPartition
from ottla.console.kafka.questions import EARLIEST, LATEST, Questions
from ottla.protocol.errors import KafkaError

logger = logging.getLogger(__name__)

INTERVAL_S = 2.0
# Looking must not cost the cluster more than this share of the time, however large it is.
BUSY_SHARE_MAX = 0.4
# A view this old is shown with a warning.
STALE_S = 10.0
_GROUPS_EVERY = 1
_METADATA_EVERY = 2
_STARTS_EVERY = 5
_SIZES_EVERY = 3

CLUSTER_SERIES = ("produced", "consumed", "bytes", "lag", "under_replicated", "offline")


class Sampler:
    """The newest view, the history and the time line."""

    def __init__(self, questions: Questions, *, interval_s: float = INTERVAL_S) -> None:
        self.questions = questions
        self.view = ClusterView()
        self.cluster = History()
        self.topic_rates = History()
        self.group_lags = History()
        self.partition_rates: Mapping[TopicPartition, float] = {}
        self.group_rates: Mapping[str, float] = {}
        self.events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self.look_s = 0.0
        self.looks = 0  # done; one more has begun while one is under way
        self._begun = 0
        self._interval_s = interval_s
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
    def is_stale(self) -> bool:
        """Whether the view is older than a person may take for the present."""
        return self.view.trouble is not None or time.time() - self.view.offsets_at > STALE_S

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
            self.look_s = time.monotonic() - began
            self.looks += 1
            async with self._looked:
                self._looked.notify_all()
            pause_s = max(self._interval_s - self.look_s, self.look_s / BUSY_SHARE_MAX)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._wanted.wait()

    def _on_trouble(self, reason: str) -> None:
        if self.view.trouble is None:
            self.note("broker", "bad", f"The cluster does not answer: {reason}")
        self.view = replace(self.view, trouble=reason)

    async def _look(self, *, is_asked_for: bool) -> None:
        before = self.view
        turn = self.looks
        metadata = before.metadata
        metadata_at = before.metadata_at
        if before.trouble is not None or is_asked_for or turn % _METADATA_EVERY == 0:
            newest = await self.questions.metadata()
            # Keep the same object when nothing changed: comparing and caching go by identity.
            metadata = before.metadata if newest == before.metadata else newest
            metadata_at = time.time()
        if before.trouble is not None:
            self.note("broker", "good", "The cluster answers again")
        view = replace(before, metadata=metadata, metadata_at=metadata_at, trouble=None)
        view = await self._with_offsets(view, is_full=turn % _STARTS_EVERY == 0 or is_asked_for)
        if turn % _GROUPS_EVERY == 0 or is_asked_for:
            view = await self._with_groups(view)
        if turn % _SIZES_EVERY == 0 or is_asked_for:
            view = await self._with_sizes(view)
        now = time.time()
        for event in compare(before, view, now):
            self.events.appendleft(event)
        self.view = view
        self._record(before, view)

    async def _with_offsets(self, view: ClusterView, *, is_full: bool) -> ClusterView:
        partitions = view.topic_partitions()
        ends = await self.questions.offsets(
            view.metadata, dict.fromkeys(partitions, LATEST), is_committed=False
        )
        at = time.time()
        starts = view.start_offsets
        if is_full or len(starts) < len(partitions):
            found = await self.questions.offsets(
                view.metadata, dict.fromkeys(partitions, EARLIEST), is_committed=False
            )
            starts = _newest(partitions, found, starts)
        return replace(
            view,
            end_offsets=_newest(partitions, ends, view.end_offsets),
            start_offsets=starts,
            offsets_at=at,
        )

    async def _with_groups(self, view: ClusterView) -> ClusterView:
        found, silent = await self.questions.groups(view.metadata)
        # A coordinator that does not answer now has not lost its groups.
        kept = {
            group_id: group
            for group_id, group in view.groups.items()
            if group_id not in found and group.coordinator in silent
        }
        groups = dict(sorted({**found, **kept}.items())) if kept else found
        told = await self.questions.committed(found.values())
        known = view.committed
        committed = {group_id: told.get(group_id, known.get(group_id, {})) for group_id in groups}
        return replace(view, groups=groups, committed=committed, groups_at=time.time())

    async def _with_sizes(self, view: ClusterView) -> ClusterView:
        directories, sizes = await self.questions.log_directories(view.metadata)
        return replace(view, log_directories=directories, sizes=sizes, sizes_at=time.time())

    def _record(self, before: ClusterView, view: ClusterView) -> None:
        seconds = view.offsets_at - before.offsets_at if before.offsets_at else 0.0
        self.partition_rates = partition_rates(before, view, seconds)
        topics = topic_rates(view.metadata, self.partition_rates)
        self.topic_rates.sample(view.offsets_at, topics)
        lags = {group_id: view.lag_of(group_id) for group_id in view.groups}
        self.group_lags.sample(
            view.offsets_at,
            {group_id: float(lag) for group_id, lag in lags.items() if lag is not None},
        )
        group_seconds = view.groups_at - before.groups_at if before.groups_at else 0.0
        if view.groups_at != before.groups_at:
            self.group_rates = {
                group_id: rate(before.committed.get(group_id, {}), offsets, group_seconds)
                for group_id, offsets in view.committed.items()
            }
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
                "produced": sum(topics.values()) if seconds > 0 else nan,
                "consumed": sum(self.group_rates.values()) if group_seconds > 0 else nan,
                "bytes": bytes_rate,
                "lag": float(sum(lag or 0 for lag in lags.values())),
                "under_replicated": float(sum(under for under, _ in troubles)),
                "offline": float(sum(offline for _, offline in troubles)),
            },
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
