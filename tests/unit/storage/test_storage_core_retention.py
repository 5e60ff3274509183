"""Retention against a model that deletes one segment at a time and looks again."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.ids import Offset
from ottla.storage.core.retention import (
    DeletionReason,
    Retention,
    SegmentFacts,
    decide_retention,
)

NOW_MS = 1000


class Stamped(NamedTuple):
    """A segment and its largest timestamp."""

    base_offset: Offset
    size_bytes: int
    largest_timestamp_ms: int


def segments_of(*facts: tuple[int, int, int]) -> list[Stamped]:
    return [Stamped(Offset(base), size, timestamp) for base, size, timestamp in facts]


def decide(
    segments: list[Stamped],
    *,
    policy_delete: bool = True,
    retention_bytes: int = -1,
    retention_ms: int = -1,
    high_watermark: int = 30,
    log_start: int = 0,
    log_end: int = 30,
) -> Retention:
    timestamps = {one.base_offset: one.largest_timestamp_ms for one in segments}
    return decide_retention(
        [SegmentFacts(one.base_offset, one.size_bytes) for one in segments],
        largest_timestamp_of=timestamps.__getitem__,
        is_delete_policy=policy_delete,
        retention_bytes=retention_bytes,
        retention_ms=retention_ms,
        now_ms=NOW_MS,
        high_watermark=Offset(high_watermark),
        log_start_offset=Offset(log_start),
        log_end_offset=Offset(log_end),
    )


def bases(retention: Retention) -> list[int]:
    return [base for base, _ in retention.deletions]


THREE = segments_of((0, 100, 100), (10, 100, 200), (20, 100, 300))


def test_nothing_goes_without_a_limit() -> None:
    assert decide(THREE) == Retention([], False, Offset(0))


def test_time_takes_segments_older_than_the_limit_and_not_those_of_its_age() -> None:
    assert bases(decide(THREE, retention_ms=900)) == []
    assert bases(decide(THREE, retention_ms=899)) == [0]
    assert decide(THREE, retention_ms=799).log_start_offset == 20


def test_a_young_segment_keeps_all_after_it() -> None:
    mixed = segments_of((0, 100, 900), (10, 100, 0), (20, 100, 900))
    assert bases(decide(mixed, retention_ms=500)) == []


def test_size_keeps_at_least_the_limit() -> None:
    assert bases(decide(THREE, retention_bytes=201)) == []
    assert bases(decide(THREE, retention_bytes=200)) == [0]
    assert bases(decide(THREE, retention_bytes=100)) == [0, 10]


def test_the_log_rolls_before_its_active_segment_goes() -> None:
    assert decide(THREE, retention_bytes=0) == Retention(
        [(Offset(base), DeletionReason.SIZE) for base in (0, 10, 20)], True, Offset(30)
    )
    assert decide(THREE, retention_ms=0).must_roll


def test_an_empty_active_segment_stays() -> None:
    empty = segments_of((0, 100, 100), (30, 0, 0))
    assert decide(empty, retention_ms=0) == Retention(
        [(Offset(0), DeletionReason.TIME)], False, Offset(30)
    )


def test_nothing_at_or_above_the_high_watermark_goes() -> None:
    assert bases(decide(THREE, retention_ms=0, high_watermark=19)) == [0]
    assert bases(decide(THREE, retention_ms=0, high_watermark=20)) == [0, 10]
    assert bases(decide(THREE, retention_ms=0, high_watermark=29)) == [0, 10]


def test_segments_below_the_log_start_offset_go_whatever_the_policy() -> None:
    retention = decide(THREE, policy_delete=False, retention_ms=0, retention_bytes=0, log_start=20)
    assert retention == Retention(
        [
            (Offset(0), DeletionReason.LOG_START_OFFSET),
            (Offset(10), DeletionReason.LOG_START_OFFSET),
        ],
        False,
        Offset(20),
    )
    assert bases(decide(THREE, log_start=19)) == [0]
    assert decide(THREE, log_start=19).log_start_offset == 19


def test_each_limit_counts_what_the_one_before_it_left() -> None:
    retention = decide(THREE, log_start=10, retention_bytes=100, retention_ms=0)
    assert [reason.name for _, reason in retention.deletions] == [
        "LOG_START_OFFSET",
        "SIZE",
        "TIME",
    ]


def one_at_a_time(
    segments: list[Stamped],
    *,
    retention_bytes: int,
    retention_ms: int,
    high_watermark: int,
    log_start: int,
    log_end: int,
) -> tuple[list[int], bool, int]:
    """Delete the oldest segment as long as any rule wants it, rule after rule."""
    left, gone, rolled, start = list(segments), [], False, log_start
    for rule in ("start", "size", "time"):
        while True:
            oldest = left[0]
            end = left[1].base_offset if len(left) > 1 else log_end
            if len(left) == 1 and oldest.size_bytes == 0:
                break
            rest = sum(s.size_bytes for s in left[1:])
            wanted = {
                "start": len(left) > 1 and end <= start,
                "size": 0 <= retention_bytes <= rest,
                "time": 0 <= retention_ms < NOW_MS - oldest.largest_timestamp_ms,
            }[rule]
            if not wanted or end > high_watermark:
                break
            if len(left) == 1:
                rolled = True
                left.append(Stamped(Offset(log_end), 0, -1))
            gone.append(int(left.pop(0).base_offset))
            if rule != "start":
                start = max(start, left[0].base_offset)
    return gone, rolled, start


@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.integers(1, 9), st.integers(0, 1010)),
        min_size=1,
        max_size=8,
    ),
    st.integers(-1, 40),
    st.integers(-1, 1010),
    st.integers(0, 40),
    st.integers(0, 40),
    st.booleans(),
)
def test_decisions_agree_with_deleting_one_at_a_time(
    facts: list[tuple[int, int, int]],
    retention_bytes: int,
    retention_ms: int,
    high_watermark: int,
    log_start: int,
    has_empty_active: bool,
) -> None:
    base, segments = 0, []
    for count, size, timestamp in facts:
        segments.append(Stamped(Offset(base), size, timestamp))
        base += count
    if has_empty_active:
        segments.append(Stamped(Offset(base), 0, 0))
    limits = {
        "retention_bytes": retention_bytes,
        "retention_ms": retention_ms,
        "high_watermark": min(high_watermark, base),
        "log_start": min(log_start, high_watermark, base),
        "log_end": base,
    }
    retention = decide(segments, **limits)  # type: ignore[arg-type]
    gone, rolled, start = one_at_a_time(segments, **limits)
    assert (bases(retention), retention.must_roll, retention.log_start_offset) == (
        gone,
        rolled,
        start,
    )
