"""When the cluster is looked at, and what is kept of coordinators and leaders that keep silent."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from ottla.client import Unreachable
from ottla.console.kafka.group_questions import Committed, Groups, is_marker
from ottla.console.kafka.model import (
    BrokerView,
    ClusterView,
    GroupView,
    Metadata,
    PartitionView,
    TopicPartition,
    TopicView,
)
from ottla.console.kafka.questions import LogDirectories, Offsets
from ottla.console.kafka.transaction_questions import Transactions
from ottla.console.sampler import BUSY_SHARE_MAX, Sampler, pause_s


class SlowCluster(Sampler):
    """Looks that end when the test says so."""

    def __init__(self) -> None:
        nobody: Any = None
        super().__init__(nobody, nobody, nobody, read_pipelines=list, interval_s=3_600)
        self.ending = asyncio.Semaphore(0)
        self.began: asyncio.Queue[bool] = asyncio.Queue()

    async def _look(self, *, is_asked_for: bool) -> None:
        self.began.put_nowait(is_asked_for)
        await self.ending.acquire()


def test_a_look_under_way_is_too_old_for_who_asks_now() -> None:
    async def scenario() -> None:
        sampler = SlowCluster()
        sampler.start()
        assert await sampler.began.get() is False
        asked = asyncio.create_task(sampler.look_again())
        await asyncio.sleep(0)
        sampler.ending.release()
        assert await sampler.began.get() is True
        assert not asked.done()
        sampler.ending.release()
        await asked
        assert sampler.looks == 2
        await sampler.stop()

    asyncio.run(scenario())


METADATA = Metadata(
    "c",
    1,
    {1: BrokerView(1, "h", 1, None)},
    {"t": TopicView("t", "1", False, (PartitionView(0, 1, 0, (1,), (1,), ()),))},
)
GROUP = GroupView("g", "Stable", "classic", "consumer", 1)


class Cluster:
    """What a cluster answers, as a test sets it."""

    def __init__(self) -> None:
        self.end = 100
        self.is_away = False
        self.groups_told = Groups({"g": GROUP}, {})
        self.committed_told = Committed({"g": {("t", 0): 40}}, {}, {})

    async def metadata(self) -> Metadata:
        if self.is_away:
            raise Unreachable("nobody answers")
        return METADATA

    async def offsets(self, _metadata: Metadata, wanted: Any, *, is_committed: bool) -> Offsets:
        if self.is_away:
            return Offsets({}, dict.fromkeys(wanted, Unreachable("nobody answers")))
        return Offsets({key: (self.end if at == -1 else 0, -1) for key, at in wanted.items()}, {})

    async def log_directories(self, _metadata: Metadata) -> LogDirectories:
        return LogDirectories((), {}, {})

    async def groups(self, _metadata: Metadata) -> Groups:
        return self.groups_told

    async def committed(self, _groups: Any) -> Committed:
        return self.committed_told

    async def describe_all(self, _groups: Any) -> dict[str, Any]:
        return {}

    async def transactions(self, _metadata: Metadata, **_more: Any) -> Transactions:
        return Transactions([], {})


def sampled(cluster: Cluster) -> Sampler:
    stub: Any = cluster
    return Sampler(stub, stub, stub, read_pipelines=list, interval_s=3_600)


async def look(sampler: Sampler) -> None:
    """One look and all that follows from it, as the task does it."""
    sampler.start()
    await sampler.look_again()
    await sampler.stop()


def test_a_coordinator_that_loads_has_not_lost_its_groups() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        sampler = sampled(cluster)
        await look(sampler)
        cluster.groups_told = Groups({}, {1: "COORDINATOR_LOAD_IN_PROGRESS"})
        cluster.committed_told = Committed({}, {}, {})
        await look(sampler)
        assert sampler.view.lag_of("g") == 60
        assert sampler.group_lags.newest("g") == 60
        cluster.groups_told = Groups({"g": GROUP}, {})
        await look(sampler)
        assert [event.text for event in sampler.events if "Group" in event.text] == []

    asyncio.run(scenario())


def test_an_outage_is_a_gap_and_told_once() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        sampler = sampled(cluster)
        await look(sampler)
        cluster.end += 50
        await look(sampler)
        assert sampler.cluster.newest("produced") is not None
        cluster.is_away = True
        for _ in range(3):
            await look(sampler)
        assert sampler.view.trouble == "nobody answers"
        assert sampler.view.end_offsets == {("t", 0): 150}  # what was last known stays
        assert sampler.cluster.newest("produced") is None
        assert (sampler.figures.topic_rates, sampler.group_lags.newest("g")) == ({}, None)
        cluster.is_away, cluster.end = False, 10_000_000
        await look(sampler)
        assert sampler.view.trouble is None
        assert sampler.cluster.newest("produced") is None  # growth during the gap is no rate of now
        assert [event.text.split(":")[0] for event in sampler.events] == [
            "The cluster answers again",
            "The cluster does not answer",
        ]

    asyncio.run(scenario())


def test_leaders_that_are_all_away_are_an_outage_even_if_metadata_was_not_asked_for() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        sampler = sampled(cluster)
        sampler.view = ClusterView(METADATA, 1.0)
        sampler.looks = sampler._begun = 1  # a turn that does not ask for metadata
        cluster.is_away = True
        with pytest.raises(Unreachable):
            await sampler._look(is_asked_for=False)

    asyncio.run(scenario())


def test_looking_takes_its_share_of_the_time_at_most() -> None:
    assert pause_s(2.0, 0.5) == 1.5
    for busy_s in (2.0, 4.0, 60.0):
        assert busy_s / (busy_s + pause_s(2.0, busy_s)) == pytest.approx(BUSY_SHARE_MAX)


def test_consumption_is_averaged_over_several_commits() -> None:
    sampler = sampled(Cluster())
    rates = []
    for second in range(0, 60, 2):
        offset = second // 5 * 500  # a commit every five seconds, 100 records a second
        committed: dict[str, dict[TopicPartition, int]] = {"g": {("t", 0): offset}}
        view = replace(ClusterView(METADATA, 1.0), committed=committed, groups_at=float(second))
        rates.append(sampler._consumed(view).get(("g", "t"), 0.0))
    assert all(60 <= one <= 140 for one in rates[10:]), rates


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ('{"next_batch":7,"records":3}', True),
        ("", False),
        (None, False),
        ("next_batch", False),
        ('{"next_batch":"x"}', False),
        ('["next_batch"]', False),
        ('{"next_batch":' + "[" * 5000, False),
    ],
)
def test_the_marker_of_a_sink_is_told_by_its_metadata(metadata: str | None, expected: bool) -> None:
    assert is_marker(metadata) is expected
