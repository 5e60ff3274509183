"""Pages read from a cluster that answers as Kafka does: what does not fit is left out.

The model holds every record in one list and answers a fetch by Kafka's rules: the first partition
with data may exceed its limit, the others get whole batches within theirs, and all together within
the limit of the answer.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client import Unreachable
from ottla.console import browse
from ottla.console.browse import Query, read_page, read_record
from ottla.console.kafka.reader import FETCH_BYTES_MAX, Chunk, Fetched
from ottla.console.paging import Page, Range
from ottla.console.records import Position, Record
from ottla.protocol.errors import KafkaError

KB = 1024


class Cluster:
    """Batches of one record each, on one leader."""

    def __init__(self, sizes: dict[int, list[int]]) -> None:
        self.logs = {
            partition: [
                Record(partition, offset, 1000 + offset, False, None, bytes(size), ())
                for offset, size in enumerate(found)
            ]
            for partition, found in sizes.items()
        }
        self.away: set[int] = set()
        self.mute: set[int] = set()  # give nothing, though they have more
        self.now = 0.0
        self.fetch_s = 0.0
        self.fetches = 0

    def fetch(
        self,
        topic: str,
        position: Position,
        *,
        partition_bytes: int,
        records_max: int | None = None,
        is_committed: bool = False,
    ) -> Fetched:
        self.now += self.fetch_s
        self.fetches += 1
        chunks: dict[int, Chunk] = {}
        total, is_first = 0, True
        for partition, offset in position.items():
            if partition in self.away:
                continue
            log, taken, used = self.logs[partition], [], 0
            for record in log[offset:] if partition not in self.mute else ():
                fits = used + record.size <= partition_bytes
                if not (fits and total + used + record.size <= FETCH_BYTES_MAX) and not is_first:
                    break
                is_first = False
                taken.append(record)
                used += record.size
                if used >= partition_bytes:
                    break
            total += used
            taken = taken[:records_max]
            after = taken[-1].offset + 1 if taken else offset
            is_at_end = after >= len(log)
            chunks[partition] = Chunk(taken, after, len(log), is_at_end, after == offset < len(log))
        troubles = {p: Unreachable(f"{p} is away") for p in position if p in self.away}
        return Fetched(chunks, troubles)

    def clock(self) -> float:
        return self.now

    def query(self, *, is_backward: bool, size: int = 50, **more: object) -> Query:
        ranges = {partition: Range(0, len(log)) for partition, log in self.logs.items()}
        position = {p: found.end if is_backward else 0 for p, found in ranges.items()}
        return Query("t", ranges, position, is_backward, size, **more)  # type: ignore[arg-type]

    def page(self, query: Query) -> Page:
        return read_page(self, query, clock=self.clock)


def counts(page: Page) -> dict[int, int]:
    found: dict[int, int] = {}
    for record in page.records:
        found[record.partition] = found.get(record.partition, 0) + 1
    return found


@pytest.mark.parametrize("is_backward", [True, False])
def test_batches_larger_than_the_limit_hide_no_partition(is_backward: bool) -> None:
    cluster = Cluster({p: [150 * KB] * 10 for p in range(3)})
    page = cluster.page(cluster.query(is_backward=is_backward))
    assert counts(page) == {0: 10, 1: 10, 2: 10}
    assert (page.is_complete, page.position) == (True, {})


@pytest.mark.parametrize("is_backward", [True, False])
def test_a_search_over_more_than_one_answer_finds_it_in_every_partition(is_backward: bool) -> None:
    cluster = Cluster({p: [1500 * KB] for p in range(24)})
    page = cluster.page(cluster.query(is_backward=is_backward, predicate=lambda record: True))
    assert counts(page) == dict.fromkeys(range(24), 1)
    assert page.is_complete


@given(
    st.lists(
        st.lists(st.sampled_from([10, 90 * KB, 200 * KB, 3000 * KB]), max_size=8),
        min_size=1,
        max_size=5,
    ),
    st.booleans(),
    st.integers(1, 7),
    st.booleans(),
    st.sampled_from([0.0, 0.3, 3.0]),
)
def test_pages_show_every_record_once_whatever_its_size_and_however_slow(
    sizes: list[list[int]], is_backward: bool, count: int, is_search: bool, fetch_s: float
) -> None:
    cluster = Cluster(dict(enumerate(sizes)))
    cluster.fetch_s = fetch_s
    query = cluster.query(is_backward=is_backward, size=count)
    if is_search:
        query = query._replace(predicate=lambda record: record.offset % 2 == 0)
    shown: list[tuple[int, int]] = []
    for _ in range(500):
        page = cluster.page(query)
        shown += [(record.partition, record.offset) for record in page.records]
        if not page.position:
            assert page.is_complete
            break
        query = query._replace(position=dict(page.position))
    step = 2 if is_search else 1
    wanted = [(p, offset) for p, log in enumerate(sizes) for offset in range(0, len(log), step)]
    assert sorted(shown) == wanted


@pytest.mark.parametrize("is_backward", [True, False])
def test_a_partition_that_is_away_is_named_and_keeps_its_place(is_backward: bool) -> None:
    cluster = Cluster({0: [10] * 5, 1: [10] * 5})
    cluster.away = {1}
    page = cluster.page(cluster.query(is_backward=is_backward))
    assert counts(page) == {0: 5}
    assert (page.is_complete, page.troubles) == (False, {1: "1 is away"})
    assert page.position == {1: 5 if is_backward else 0}
    cluster.away = set()
    rest = cluster.page(
        cluster.query(is_backward=is_backward)._replace(position=dict(page.position))
    )
    assert (counts(rest), rest.is_complete) == ({1: 5}, True)


@pytest.mark.parametrize("is_backward", [True, False])
def test_nothing_that_can_be_read_is_an_error_and_not_an_empty_page(is_backward: bool) -> None:
    cluster = Cluster({0: [10], 1: [10]})
    cluster.away = {0, 1}
    with pytest.raises(KafkaError, match="is away"):
        cluster.page(cluster.query(is_backward=is_backward))


@pytest.mark.parametrize("is_backward", [True, False])
@pytest.mark.parametrize("fetch_s", [0.0, 9.0])
def test_a_partition_that_gives_nothing_ends_the_page_incomplete(
    is_backward: bool, fetch_s: float
) -> None:
    cluster = Cluster({0: [10] * 3, 1: [10] * 3, 2: [10] * 3})
    cluster.mute, cluster.fetch_s = {1, 2}, fetch_s
    page = cluster.page(cluster.query(is_backward=is_backward))
    assert counts(page) == {0: 3}
    assert not page.is_complete
    assert page.position.keys() == {1, 2}


def test_a_search_back_ends_when_its_time_is_up_and_goes_on_from_there() -> None:
    cluster = Cluster({0: [10] * 50_000})
    cluster.fetch_s = browse.SCAN_S_MAX / 3
    query = cluster.query(is_backward=True, predicate=lambda record: False)
    first = cluster.page(query)
    assert not first.is_complete
    assert 0 < first.scanned < 5_000
    assert cluster.now < browse.SCAN_S_MAX * 2
    second = cluster.page(query._replace(position=dict(first.position)))
    assert second.position[0] < first.position[0]


def test_a_search_back_reads_no_more_records_than_its_budget() -> None:
    cluster = Cluster({p: [1] * 30_000 for p in range(8)})
    page = cluster.page(cluster.query(is_backward=True, predicate=lambda record: False))
    assert page.scanned <= browse.SCANNED_RECORDS_MAX + 8 * browse._SEARCH_RECORDS_FIRST


def test_a_slice_of_large_records_holds_no_more_than_it_may() -> None:
    bounds = Range(0, 10)
    piece = browse._Slice(bounds, bytes_max=250)
    piece.add([Record(0, n, n, False, None, bytes(100), ()) for n in range(12)])
    block = piece.block()
    assert ([record.offset for record in block.records], block.position) == ([9, 8], 8)


def test_a_slice_that_is_not_done_in_time_is_left_to_the_next_page() -> None:
    cluster = Cluster({0: [40 * KB] * 1_000})
    cluster.fetch_s = browse.SCAN_S_MAX / 4.5
    query = cluster.query(is_backward=True, predicate=lambda record: False)
    page = cluster.page(query)
    # The first slice took four answers; time was up within the second, which is not begun anew.
    assert (page.scanned, cluster.fetches) == (browse._SEARCH_RECORDS_FIRST, 5)
    assert page.position == {0: 1_000 - browse._SEARCH_RECORDS_FIRST}


class Forgetful(Cluster):
    """A leader whose connection was lost while nobody used it."""

    def fetch(self, topic: str, position: Position, **more: Any) -> Fetched:  # type: ignore[override]
        self.away = {0} if self.fetches == 0 else set()
        return super().fetch(topic, position, **more)


def test_one_record_is_read_again_after_a_connection_was_lost() -> None:
    found = read_record(Forgetful({0: [10, 10]}), "t", 0, 1)
    assert found is not None
    assert found.offset == 1
    assert read_record(Forgetful({0: [10]}), "t", 0, 1) is None
    cluster = Cluster({0: [10]})
    cluster.away = {0}
    with pytest.raises(KafkaError, match="is away"):
        read_record(cluster, "t", 0, 0)
