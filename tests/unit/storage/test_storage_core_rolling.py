"""When the active segment ends, and that a log obeys."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.config.topic import TopicConfig
from ottla.protocol.batches import Record, build_batch
from ottla.protocol.ids import TopicPartition
from ottla.runtime.simulated import Simulation
from ottla.storage.core.rolling import (
    NEVER_MS,
    AgeLimits,
    RollReason,
    age_limits,
    jitter_bound_ms,
    segment_ms_max,
    should_roll,
)
from ottla.storage.file_pool import FilePool
from ottla.storage.recovery import OpenOptions, open_log

FITTING: dict[str, Any] = {
    "size_bytes": 500,
    "size_bytes_max": 1000,
    "limits": AgeLimits(11_000, 50_000),
    "is_index_full": False,
    "base_offset": 100,
    "append_bytes": 100,
    "append_timestamp_ms": 10_500,
    "append_last_offset": 200,
    "now_ms": 20_000,
}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"size_bytes": 900}, None),
        ({"size_bytes": 901}, RollReason.SIZE),
        # As in Kafka; the caller refuses such batches before, by RECORD_LIST_TOO_LARGE.
        ({"size_bytes": 0, "append_bytes": 1001}, RollReason.SIZE),
        ({"append_timestamp_ms": 11_000}, None),
        ({"append_timestamp_ms": 11_001}, RollReason.AGE),
        ({"now_ms": 50_000}, None),
        ({"now_ms": 50_001}, RollReason.AGE),
        ({"is_index_full": True}, RollReason.INDEX_FULL),
        ({"append_last_offset": 100 + 2**31 - 1}, None),
        ({"append_last_offset": 100 + 2**31}, RollReason.OFFSET_OVERFLOW),
        ({"append_last_offset": 99}, RollReason.OFFSET_OVERFLOW),
        ({"append_last_offset": 100}, None),
    ],
)
def test_a_segment_ends_by_size_age_index_or_offset(
    changes: dict[str, Any], reason: RollReason | None
) -> None:
    assert should_roll(**{**FITTING, **changes}) is reason


@pytest.mark.parametrize(
    ("size_bytes", "first_batch_timestamp_ms", "expected"),
    [
        (0, 10_000, AgeLimits(NEVER_MS, NEVER_MS)),
        (1, 10_000, AgeLimits(11_000, NEVER_MS)),
        (1, 0, AgeLimits(1_000, NEVER_MS)),
        (1, -1, AgeLimits(NEVER_MS, 8_000)),
    ],
)
def test_age_counts_from_the_first_batch_and_by_the_clock_if_it_has_no_time(
    size_bytes: int, first_batch_timestamp_ms: int, expected: AgeLimits
) -> None:
    found = age_limits(
        size_bytes=size_bytes,
        first_batch_timestamp_ms=first_batch_timestamp_ms,
        created_ms=7_000,
        age_ms_max=1_000,
    )
    assert found == expected


@given(
    st.lists(
        st.tuples(st.integers(0, 300), st.just(-1) | st.integers(0, 3_000), st.integers(0, 900)),
        max_size=25,
    ),
    st.integers(4, 60),
)
def test_a_log_rolls_exactly_when_the_rule_says_so(
    appends: list[tuple[int, int, int]], index_bytes: int
) -> None:
    config = TopicConfig(
        segment_bytes=700,
        segment_ms=1_000,
        segment_index_bytes=index_bytes,
        index_interval_bytes=100,
    )
    with Simulation(seed=1) as simulation:
        runtime = simulation.runtime("a")
        runtime.disk.mkdir("/t-0")
        log = open_log(
            runtime, FilePool(runtime.disk), TopicPartition("t", 0), None, "/t-0",
            OpenOptions(config, True),
        )  # fmt: skip
        for size, timestamp_ms, pause_ms in appends:
            simulation.clock("a").jump(pause_ms)
            batch = build_batch([Record(0, timestamp_ms, None, bytes(size))])
            active = log.segments[-1]
            expected = should_roll(
                size_bytes=active.size,
                size_bytes_max=700,
                limits=age_limits(
                    size_bytes=active.size,
                    first_batch_timestamp_ms=active.first_timestamp_ms,
                    created_ms=active.created_ms,
                    age_ms_max=1_000,
                ),
                is_index_full=active.is_index_full,
                base_offset=active.base_offset,
                append_bytes=len(batch),
                append_timestamp_ms=timestamp_ms,
                append_last_offset=log.log_end_offset,
                now_ms=runtime.clock.wall_ms(),
            )
            is_fresh = active.size == 0  # as good as a new one
            log.append_as_leader(batch, leader_epoch=0)
            has_rolled = log.segments[-1] is not active
            assert has_rolled == (expected is not None and not is_fresh)


def test_a_promise_of_compaction_shortens_the_life_of_segments() -> None:
    assert segment_ms_max(segment_ms=10, is_compacted=False, compaction_lag_ms_max=5) == 10
    assert segment_ms_max(segment_ms=10, is_compacted=True, compaction_lag_ms_max=5) == 5
    assert segment_ms_max(segment_ms=10, is_compacted=True, compaction_lag_ms_max=0) == 10
    assert jitter_bound_ms(segment_ms=10, segment_jitter_ms=50) == 10
    assert jitter_bound_ms(segment_ms=10, segment_jitter_ms=3) == 3
