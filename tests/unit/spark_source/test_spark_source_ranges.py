"""Rate limits and splitting: totals are kept, nothing is read twice, limits hold."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.client import TopicPartition
from ottla.spark.options import parse_source_options
from ottla.spark.source_initial import (
    INITIAL,
    InitialOffsetFile,
    end_json,
    initial_json,
    offsets_of,
    start_of,
)
from ottla.spark.source_ranges import (
    OffsetRange,
    from_json,
    rate_limited,
    split_ranges,
    to_json,
)

PARTITIONS = [TopicPartition(topic, n) for topic in ("a", "b") for n in range(3)]
SIZES = st.lists(st.integers(0, 50), min_size=1, max_size=6)


def ranges_of(sizes: list[int]) -> list[OffsetRange]:
    return [OffsetRange(PARTITIONS[n], 10, 10 + size) for n, size in enumerate(sizes)]


def covered(ranges: list[OffsetRange]) -> list[tuple[TopicPartition, int]]:
    return sorted(
        (item.topic_partition, offset)
        for item in ranges
        for offset in range(item.start_offset, item.end_offset)
    )


@given(SIZES, st.none() | st.integers(1, 20), st.none() | st.integers(1, 20))
def test_splitting_covers_every_offset_once(
    sizes: list[int], least: int | None, most: int | None
) -> None:
    whole = ranges_of(sizes)
    split = split_ranges(whole, min_partitions=least, max_records_per_partition=most)
    assert covered(split) == covered(whole)
    assert all(item.size > 0 for item in split)
    if most is not None:
        assert all(item.size <= most for item in split)
    if least is None and most is None:
        assert split == [item for item in whole if item.size]


def test_more_tasks_go_to_larger_partitions() -> None:
    split = split_ranges(ranges_of([100, 300]), min_partitions=4)
    assert [(item.start_offset, item.end_offset) for item in split] == [
        (10, 110),
        (10, 110),
        (110, 210),
        (210, 310),
    ]


def test_enough_partitions_are_not_split() -> None:
    whole = ranges_of([5, 500])
    assert split_ranges(whole, min_partitions=2) == whole


@given(SIZES, st.integers(1, 100))
def test_a_rate_limit_is_shared_out(sizes: list[int], limit: int) -> None:
    start = {PARTITIONS[n]: n for n in range(len(sizes))}
    end = {PARTITIONS[n]: n + size for n, size in enumerate(sizes)}
    limited = rate_limited(limit, start, end)
    taken = sum(limited[tp] - start[tp] for tp in end)
    assert all(start[tp] <= limited[tp] <= end[tp] for tp in end)
    assert taken <= limit + len(sizes)
    assert all(limited[tp] > start[tp] for tp in end if end[tp] > start[tp])
    if sum(sizes) <= limit:
        assert limited == end


@given(st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 1 << 62)))
def test_offsets_survive_json(offsets: dict[TopicPartition, int]) -> None:
    assert from_json(to_json(offsets)) == offsets
    assert offsets_of(initial_json(offsets)) == offsets


def test_a_first_batch_planned_again_starts_where_it_started() -> None:
    first, later = {PARTITIONS[0]: 100}, {PARTITIONS[0]: 500}
    end = end_json(initial_json(first), {PARTITIONS[0]: 200})
    assert offsets_of(end) == {PARTITIONS[0]: 200}
    assert start_of(initial_json(later), end) == first
    # The batch after it starts at its end.
    following = end_json(end, {PARTITIONS[0]: 300})
    assert start_of(end, following) == {PARTITIONS[0]: 200}
    assert following == to_json({PARTITIONS[0]: 300})
    assert INITIAL not in following


def test_an_empty_first_batch_planned_again_is_empty() -> None:
    first, later = {PARTITIONS[0]: 100}, {PARTITIONS[0]: 500}
    kept = initial_json(first)
    assert start_of(initial_json(later), kept) == first
    following = end_json(kept, later)
    assert start_of(kept, following) == first


def test_the_initial_offsets_are_kept_under_the_checkpoint(tmp_path: object) -> None:
    def file(topic: str, location: str) -> InitialOffsetFile:
        return InitialOffsetFile(
            parse_source_options(
                {"bootstrap.servers": "h", "subscribe": topic, "checkpointLocation": location}
            )
        )

    offsets = {PARTITIONS[0]: 100, PARTITIONS[3]: 7}
    assert file("a", str(tmp_path)).load() is None
    file("a", str(tmp_path)).save(offsets)
    for location in (f"{tmp_path}/", f"file:{tmp_path}", f"file://{tmp_path}"):
        assert file("a", location).load() == offsets
        assert file("b", location).load() is None
