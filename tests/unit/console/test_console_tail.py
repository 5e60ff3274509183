"""A tail shows what can be watched, counts the rest, and follows whatever comes back."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from ottla.client import Unreachable
from ottla.console import tail
from ottla.console.kafka.reader import Chunk, Fetched
from ottla.console.records import Position, Record
from ottla.console.tail import (
    BEHIND_RECORDS_MAX,
    NEAR_RECORDS,
    SHOWN_PER_SECOND_MAX,
    STEPS_PER_SECOND,
    Follower,
    Tailed,
    in_turn,
    take,
)
from ottla.protocol.errors import ErrorCode, KafkaError


def chunk(partition: int, count: int, behind: int = 0) -> Chunk:
    records = [Record(partition, n, 1000 + n, False, None, b"%d" % n, ()) for n in range(count)]
    return Chunk(records, count, count + behind, behind == 0)


@given(
    st.lists(
        st.tuples(st.integers(0, 150), st.sampled_from([0, 10, 9000])), min_size=1, max_size=4
    ),
    st.integers(0, 300),
)
def test_shown_and_skipped_add_up_to_what_passed(
    counts: list[tuple[int, int]], shown_max: int
) -> None:
    chunks = {p: chunk(p, count, behind) for p, (count, behind) in enumerate(counts)}
    position = dict.fromkeys(chunks, 0)
    step = take(chunks, position, None, shown_max)
    assert len(step.records) <= shown_max
    assert len(step.records) + step.skipped == step.passed == sum(position.values())
    times = [record.timestamp_ms for record in step.records]
    assert times == sorted(times)


def test_far_behind_it_jumps_near_the_end() -> None:
    position = {0: 0}
    step = take({0: chunk(0, 10, BEHIND_RECORDS_MAX + 500)}, position, None, 100)
    assert position == {0: 10 + BEHIND_RECORDS_MAX + 500 - NEAR_RECORDS}
    assert step.skipped == BEHIND_RECORDS_MAX + 500 - NEAR_RECORDS


def test_what_a_filter_does_not_want_is_not_skipped() -> None:
    step = take({0: chunk(0, 50)}, {0: 0}, lambda record: record.offset % 10 == 0, 100)
    assert (len(step.records), step.passed, step.skipped) == (5, 50, 0)


def test_who_came_away_empty_handed_is_asked_first() -> None:
    starved = Chunk([], 0, 9, False, is_starved=True)
    chunks = {0: chunk(0, 3), 1: starved, 2: Chunk([], 5, 5, True)}
    assert list(in_turn({0: 3, 1: 0, 2: 5}, chunks)) == [1, 2, 0]


class Log:
    """One topic under the feet of a tail: it grows, goes away and comes back."""

    def __init__(self, partitions: int) -> None:
        self.records: dict[int, list[Record]] = {p: [] for p in range(partitions)}
        self.away: set[int] = set()
        self.now = 0.0

    def write(self, partition: int, count: int, size: int = 7) -> None:
        log = self.records[partition]
        for _ in range(count):
            at = int(self.now * 1000)
            log.append(Record(partition, len(log), at, False, None, bytes(size), ()))

    def ends(self, topic: str, partitions: Sequence[int], *, is_committed: bool) -> Position:
        return {p: len(self.records[p]) for p in partitions if p not in self.away}

    def fetch(
        self,
        topic: str,
        position: Position,
        *,
        partition_bytes: int,
        answer_bytes: int,
        wait_ms: int,
        records_max: int | None,
        is_committed: bool,
    ) -> Fetched:
        chunks, used, is_first = {}, 0, True
        for partition, offset in position.items():
            if partition in self.away:
                continue
            log, taken = self.records[partition], []
            for record in log[offset:][:records_max]:
                if used + record.size > min(partition_bytes, answer_bytes) and not is_first:
                    break
                is_first = False
                used += record.size
                taken.append(record)
            after = offset + len(taken)
            chunks[partition] = Chunk(
                taken, after, len(log), after >= len(log), after == offset < len(log)
            )
        away = {p: Unreachable(f"broker of {p} is gone") for p in position if p in self.away}
        return Fetched(chunks, away)

    def tail(self, position: Position | None = None) -> Follower:
        tailed = Tailed(
            "t",
            position or {},
            lambda: list(self.records),
            lambda records: " ".join(f"{r.partition}:{r.offset}" for r in records),
        )
        return Follower(self, tailed, clock=lambda: self.now)


def test_below_the_limit_nothing_is_skipped_whatever_the_size() -> None:
    for size in (7, 10_000):
        log = Log(1)
        follower = log.tail()
        follower.step()
        passed = shown = skipped = 0
        for _ in range(6 * STEPS_PER_SECOND):
            log.now += 1 / STEPS_PER_SECOND
            log.write(0, 900 // STEPS_PER_SECOND, size)
            step = follower.step()
            passed, shown = passed + step.passed, shown + step.shown
            skipped += step.skipped
        assert (passed, shown, skipped) == (5_400, 5_400, 0)


def test_above_the_limit_it_shows_the_limit_and_counts_the_rest() -> None:
    log = Log(2)
    follower = log.tail()
    follower.step()
    shown = skipped = 0
    for _ in range(5 * STEPS_PER_SECOND):
        log.now += 1 / STEPS_PER_SECOND
        log.write(0, 400)
        log.write(1, 400)
        step = follower.step()
        shown, skipped = shown + step.shown, skipped + step.skipped
    assert shown <= 6 * SHOWN_PER_SECOND_MAX
    assert shown + skipped == 20_000


def test_a_tail_begun_in_an_outage_says_so_and_follows_when_it_is_over() -> None:
    log = Log(2)
    log.write(0, 5)
    log.away = {0, 1}
    follower = log.tail()
    assert "Nobody leads" in (follower.step().trouble or "")
    log.away = set()
    log.now += tail._RETRY_S
    assert follower.step().trouble is None
    log.write(0, 1)
    log.write(1, 1)
    assert follower.step().drawn == "0:5 1:0"


def test_a_partition_without_a_leader_is_followed_once_it_has_one() -> None:
    log = Log(2)
    log.away = {1}
    follower = log.tail()
    log.write(0, 1)
    step = follower.step()
    assert "Partition 1" in (step.trouble or "")
    log.write(0, 1)
    assert follower.step().drawn == "0:1"
    log.away, log.now = set(), 5.0
    follower.step()
    log.write(1, 1)
    assert follower.step().drawn == "1:0"


def test_a_resumed_tail_keeps_its_own_offsets_through_an_outage() -> None:
    log = Log(1)
    log.write(0, 3)
    log.away = {0}
    follower = log.tail({0: 1})
    step = follower.step()
    assert ("is gone" in (step.trouble or ""), step.position) == (True, {0: 1})
    log.away = set()
    assert follower.step().drawn == "0:1 0:2"


def test_a_partition_that_was_added_is_followed_from_its_beginning() -> None:
    log = Log(1)
    follower = log.tail()
    follower.step()
    log.records[1] = []
    log.write(1, 2)
    assert follower.step().drawn == "1:0 1:1"


def test_large_batches_of_one_partition_do_not_silence_the_others() -> None:
    log = Log(3)
    follower = log.tail()
    follower.step()
    seen: set[str] = set()
    for _ in range(3):
        log.now += 1
        for partition in range(3):
            log.write(partition, 1, size=20_000_000)
        seen.update(one.split(":")[0] for one in follower.step().drawn.split())
    assert seen == {"0", "1", "2"}


def test_a_topic_that_is_gone_is_told() -> None:
    def gone() -> list[int]:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no topic t.")

    follower = Follower(Log(1), Tailed("t", {0: 4}, gone, lambda records: ""))
    assert follower.step().trouble == "There is no topic t."
