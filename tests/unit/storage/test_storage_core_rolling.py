"""When the active segment ends."""

from typing import Any

import pytest

from ottla.storage.core.rolling import RollReason, jitter_bound_ms, segment_ms_max, should_roll

FITTING: dict[str, Any] = {
    "segment_base_offset": 100,
    "segment_size_bytes": 500,
    "first_batch_timestamp_ms": 10_000,
    "created_ms": 0,
    "jitter_ms": 0,
    "is_index_full": False,
    "append_size_bytes": 100,
    "append_max_timestamp_ms": 10_500,
    "append_last_offset": 200,
    "segment_bytes_max": 1000,
    "segment_ms_max": 1000,
    "now_ms": 999_999,
}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"segment_size_bytes": 900}, None),
        ({"segment_size_bytes": 901}, RollReason.SIZE),
        ({"append_max_timestamp_ms": 11_000}, None),
        ({"append_max_timestamp_ms": 11_001}, RollReason.AGE),
        ({"append_max_timestamp_ms": 11_000, "jitter_ms": 1}, RollReason.AGE),
        ({"append_max_timestamp_ms": 99_999, "segment_size_bytes": 0}, None),
        ({"first_batch_timestamp_ms": -1, "now_ms": 1000}, None),
        ({"first_batch_timestamp_ms": -1, "now_ms": 1001}, RollReason.AGE),
        ({"first_batch_timestamp_ms": None, "now_ms": 1001}, RollReason.AGE),
        ({"first_batch_timestamp_ms": 0, "append_max_timestamp_ms": 1000}, None),
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


def test_a_batch_larger_than_a_segment_still_finds_one() -> None:
    # Kafka rolls an empty segment too when the batch does not fit; the caller refuses such
    # batches before, by RECORD_LIST_TOO_LARGE.
    changes = {"segment_size_bytes": 0, "append_size_bytes": 1001}
    assert should_roll(**{**FITTING, **changes}) is RollReason.SIZE


def test_a_promise_of_compaction_shortens_the_life_of_segments() -> None:
    assert segment_ms_max(segment_ms=10, is_compacted=False, compaction_lag_ms_max=5) == 10
    assert segment_ms_max(segment_ms=10, is_compacted=True, compaction_lag_ms_max=5) == 5
    assert segment_ms_max(segment_ms=10, is_compacted=True, compaction_lag_ms_max=0) == 10
    assert jitter_bound_ms(segment_ms=10, segment_jitter_ms=50) == 10
    assert jitter_bound_ms(segment_ms=10, segment_jitter_ms=3) == 3
