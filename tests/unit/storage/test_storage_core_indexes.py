"""The three indexes of a segment against plain lists, and against files of Apache Kafka 4.3.1."""

from struct import pack

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.protocol.errors import InvariantError
from ottla.protocol.ids import Offset, ProducerId
from ottla.storage.core.index_bytes import CorruptIndexError
from ottla.storage.core.offset_index import OffsetIndex, OffsetPosition
from ottla.storage.core.time_index import TimeIndex, TimestampOffset
from ottla.storage.core.transaction_index import AbortedTransaction, TransactionIndex

BASE = Offset(1000)
BYTES_MAX = 10 * 1024 * 1024


def offset_index(data: bytes = b"", base: Offset = BASE) -> OffsetIndex:
    return OffsetIndex(base, index_bytes_max=BYTES_MAX, data=data)


def time_index(data: bytes = b"", base: Offset = BASE) -> TimeIndex:
    return TimeIndex(base, index_bytes_max=BYTES_MAX, data=data)


increasing = st.lists(st.integers(0, 60), unique=True, max_size=30).map(sorted)


@given(increasing, st.integers(0, 60), st.booleans())
def test_offset_index_agrees_with_a_list(
    relatives: list[int], cut: int, is_read_from_file: bool
) -> None:
    index = offset_index()
    entries: list[OffsetPosition] = []
    content = b""
    for at, relative in enumerate(relatives, 1):
        content += index.append(Offset(BASE + relative), at * 70)
        entries.append(OffsetPosition(Offset(BASE + relative), at * 70))
    assert index.data == content
    if is_read_from_file:
        index = offset_index(content)
    index.check_order()
    for truncation in (None, cut):
        if truncation is not None:
            assert index.truncate_to(Offset(BASE + truncation)) is any(
                e.offset >= BASE + truncation for e in entries
            )
            entries = [e for e in entries if e.offset < BASE + truncation]
        assert [index.entry(slot) for slot in range(len(index))] == entries
        assert index.size_bytes == len(index.data) == 8 * len(entries)
        assert index.last_offset == (entries[-1].offset if entries else BASE)
        for offset in range(BASE - 2, BASE + 63):
            below = [e for e in entries if e.offset <= offset]
            expected = below[-1] if below else OffsetPosition(BASE, 0)
            assert index.lookup(Offset(offset)) == expected
        for position in range(0, 31 * 70, 35):
            above = [e for e in entries if e.position >= position]
            assert index.upper_bound(position) == (above[0] if above else None)
            below = [entry.position for entry in entries if entry.position <= position]
            assert index.floor_position(position) == (below[-1] if below else 0)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3)), max_size=30),
    st.integers(0, 60),
    st.booleans(),
)
def test_time_index_agrees_with_a_list(
    steps: list[tuple[int, int]], cut: int, is_read_from_file: bool
) -> None:
    index = time_index()
    entries: list[TimestampOffset] = []
    content, relative, largest = b"", 0, -1
    for timestamp, step in steps:
        relative += step
        largest = max(largest, timestamp)
        grew = largest > (entries[-1].timestamp_ms if entries else -1)
        written = index.maybe_append(largest, Offset(BASE + relative))
        assert bool(written) is grew
        content += written
        if grew:
            entries.append(TimestampOffset(largest, Offset(BASE + relative)))
    assert index.data == content
    if is_read_from_file:
        index = time_index(content)
    index.check_order()
    for truncation in (None, cut):
        if truncation is not None:
            assert index.truncate_to(Offset(BASE + truncation)) is any(
                e.offset >= BASE + truncation for e in entries
            )
            entries = [e for e in entries if e.offset < BASE + truncation]
        assert [index.entry(slot) for slot in range(len(index))] == entries
        assert index.size_bytes == len(index.data) == 12 * len(entries)
        assert index.last == (entries[-1] if entries else TimestampOffset(-1, BASE))
        for timestamp in range(-2, 43):
            before = [e for e in entries if e.timestamp_ms <= timestamp]
            expected = before[-1] if before else TimestampOffset(-1, BASE)
            assert index.lookup(timestamp) == expected


@given(increasing, st.integers(0, 12))
@example([], 1)
@example([0], 1)
def test_zeros_of_a_preallocated_index_are_cut(relatives: list[int], spare: int) -> None:
    offsets, times = offset_index(), time_index()
    for relative in relatives:
        offsets.append(Offset(BASE + relative), 256 * (relative + 1))
        times.maybe_append((relative + 1) * 256, Offset(BASE + relative))
    assert offset_index(offsets.data + bytes(8 * spare)).data == offsets.data
    if len(relatives) + spare != 1:
        assert time_index(times.data + bytes(12 * spare)).data == times.data


def test_a_crashed_index_of_full_size_is_empty() -> None:
    assert len(offset_index(bytes(BYTES_MAX))) == 0
    assert len(time_index(bytes(BYTES_MAX // 12 * 12))) == 0


def test_a_lone_entry_of_zeros_in_a_time_index_is_an_entry() -> None:
    index = time_index(bytes(12))
    assert index.last == TimestampOffset(0, BASE)


def test_appending_to_what_a_file_held_continues_it() -> None:
    content = pack(">iiii", 1, 70, 5, 140)
    index = offset_index(content)
    assert index.data == content
    index.append(Offset(BASE + 6), 210)
    assert content == pack(">iiii", 1, 70, 5, 140)
    assert index.data == content + pack(">ii", 6, 210)


def test_index_is_full_at_its_largest_size() -> None:
    offsets = OffsetIndex(BASE, index_bytes_max=17)
    times = TimeIndex(BASE, index_bytes_max=36)
    for relative in (1, 2):
        assert not offsets.is_full
        assert not times.is_full
        offsets.append(Offset(BASE + relative), relative)
        times.maybe_append(relative, Offset(BASE + relative))
    assert offsets.is_full
    assert times.is_full
    with pytest.raises(InvariantError, match="full"):
        offsets.append(Offset(BASE + 9), 9)
    with pytest.raises(InvariantError, match="full"):
        times.maybe_append(9, Offset(BASE + 9))
    times.maybe_append(9, Offset(BASE + 9), is_segment_closing=True)
    assert len(times) == 3
    with pytest.raises(InvariantError, match="full"):
        times.maybe_append(10, Offset(BASE + 10), is_segment_closing=True)


def test_entries_out_of_order_or_out_of_reach_are_refused() -> None:
    offsets, times = offset_index(), time_index()
    offsets.append(Offset(BASE + 5), 70)
    times.maybe_append(5, Offset(BASE + 5))
    for offset in (BASE + 5, BASE - 1, BASE + 2**31):
        with pytest.raises(InvariantError):
            offsets.append(Offset(offset), 140)
    for timestamp, offset in ((4, BASE + 6), (6, BASE + 4), (6, BASE + 2**31)):
        with pytest.raises(InvariantError):
            times.maybe_append(timestamp, Offset(offset))
    with pytest.raises(IndexError):
        offsets.entry(1)
    with pytest.raises(IndexError):
        times.entry(-1)
    with pytest.raises(IndexError):
        times.entry(1)


def test_a_segment_reaches_from_its_base_offset_over_31_bits() -> None:
    offsets, times = offset_index(), time_index()
    for at, offset in enumerate((BASE, Offset(BASE + 2**31 - 1)), 1):
        offsets.append(offset, at)
        times.maybe_append(at, offset)
        assert offsets.lookup(offset) == (offset, at)
        assert times.last == (at, offset)


@pytest.mark.parametrize("size", [1, 7, 9])
def test_a_size_that_is_no_multiple_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptIndexError, match="multiple"):
        offset_index(bytes(size))
    with pytest.raises(CorruptIndexError, match="multiple"):
        time_index(bytes(size))


def test_entries_before_the_base_offset_are_corrupt() -> None:
    with pytest.raises(CorruptIndexError, match="before"):
        offset_index(pack(">ii", -1, 70))
    with pytest.raises(CorruptIndexError, match="before"):
        time_index(pack(">qi", 5, -1))
    with pytest.raises(CorruptIndexError, match="less than the first"):
        time_index(pack(">qiqi", 5, 1, 4, 2))


def test_order_is_checked_entry_by_entry_on_demand() -> None:
    for entries in ((1, 70, 1, 140), (2, 70, 1, 80, 3, 90), (1, 70, 2, 70), (-1, 70, 2, 80)):
        index = offset_index(pack(f">{len(entries)}i", *entries))
        with pytest.raises(CorruptIndexError):
            index.check_order()
    for fields in ((1, 5, 3, 4, 5, 6), (1, -1, 2, 3, 4, 5), (1, 1, 3, 2, 2, 3, 4, 4)):
        content = pack(">" + "qi" * (len(fields) // 2), *fields)
        with pytest.raises(CorruptIndexError):
            time_index(content).check_order()


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 4), st.integers(0, 6)), max_size=12),
    st.integers(0, 60),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_transaction_index_agrees_with_a_scan(
    spans: list[tuple[int, int, int]], fetch_offset: int, length: int, cut: int
) -> None:
    index = TransactionIndex(Offset(0))
    aborted: list[AbortedTransaction] = []
    content, last, stable = b"", 0, 0
    for reach, step, lag in spans:
        last += step
        stable = max(stable, last + 1 - lag)
        entry = AbortedTransaction(
            ProducerId(7), Offset(max(0, last - reach)), Offset(last), Offset(stable)
        )
        content += index.append(entry)
        aborted.append(entry)
    assert index.data == content
    index = TransactionIndex(Offset(0), content)
    for truncation in (None, cut):
        if truncation is not None:
            assert index.truncate_to(Offset(truncation)) is any(
                a.last_offset >= truncation for a in aborted
            )
            aborted = [a for a in aborted if a.last_offset < truncation]
        assert index.transactions == aborted
        assert len(index) == len(aborted)
        end = fetch_offset + length
        expected, is_complete = [], False
        for entry in aborted:
            if entry.last_offset >= fetch_offset and entry.first_offset < end:
                expected.append(entry)
            if entry.last_stable_offset >= end:
                is_complete = True
                break
        got = index.collect(Offset(fetch_offset), Offset(end))
        # The scan stops early where it may; without consistent offsets the search sees more.
        assert got.transactions[: len(expected)] == expected
        assert got.is_complete is is_complete


def test_transaction_index_refuses_what_it_cannot_be() -> None:
    index = TransactionIndex(Offset(5))
    entry = AbortedTransaction(ProducerId(1), Offset(2), Offset(6), Offset(7))
    content = index.append(entry)
    with pytest.raises(InvariantError):
        index.append(entry)
    with pytest.raises(CorruptIndexError, match="before"):
        TransactionIndex(Offset(7), content)
    with pytest.raises(CorruptIndexError, match="version"):
        TransactionIndex(Offset(5), b"\0\1" + content[2:])
    assert TransactionIndex(Offset(5), content + content[:20]).transactions == [entry]


def test_the_search_for_aborted_transactions_ends_where_all_is_decided() -> None:
    index = TransactionIndex(Offset(0))
    for first, last, stable in ((0, 4, 5), (2, 9, 10)):
        index.append(AbortedTransaction(ProducerId(1), Offset(first), Offset(last), Offset(stable)))
    assert index.collect(Offset(0), Offset(5)) == (index.transactions[:1], True)
    assert index.collect(Offset(0), Offset(6)) == (index.transactions, True)
    assert index.collect(Offset(5), Offset(10)) == (index.transactions[1:], True)
    assert index.collect(Offset(5), Offset(11)) == (index.transactions[1:], False)
    assert index.collect(Offset(10), Offset(10)) == ([], True)
    for last in (4, 8, 9):
        with pytest.raises(InvariantError):
            index.append(
                AbortedTransaction(ProducerId(1), Offset(3), Offset(last), Offset(last + 1))
            )
    index.clear()
    assert (len(index), index.data, index.truncate_to(Offset(0))) == (0, b"", False)


# Written by Apache Kafka 4.3.1 with index.interval.bytes=0.
KAFKA_INDEX = "0000000100000046000000020000008c00000003000000d2"
KAFKA_TIME_INDEX = "000001a1e41c586e00000001000001a1e41c58ac00000003000001a1e41c58be00000005"
KAFKA_TRANSACTION_INDEX = (
    "00000000000000000001000000000000000000000000000000050000000000000006"
    "00000000000000000001000000000000000600000000000000070000000000000008"
    "0000000000000000000200000000000000080000000000000009000000000000000a"
)


def test_files_of_apache_kafka_are_read_and_written_alike() -> None:
    offsets = offset_index(bytes.fromhex(KAFKA_INDEX), Offset(0))
    assert [offsets.entry(slot) for slot in range(3)] == [(1, 70), (2, 140), (3, 210)]
    again = offset_index(base=Offset(0))
    for slot in range(3):
        again.append(*offsets.entry(slot))
    assert again.data.hex() == KAFKA_INDEX

    times = time_index(bytes.fromhex(KAFKA_TIME_INDEX), Offset(4))
    assert times.last == (1794828425406, 9)
    times_again = time_index(base=Offset(4))
    for slot in range(3):
        times_again.maybe_append(*times.entry(slot))
    assert times_again.data.hex() == KAFKA_TIME_INDEX

    aborted = TransactionIndex(Offset(4), bytes.fromhex(KAFKA_TRANSACTION_INDEX))
    assert aborted.transactions == [(1, 0, 5, 6), (1, 6, 7, 8), (2, 8, 9, 10)]
    aborted_again = TransactionIndex(Offset(4))
    for transaction in aborted.transactions:
        aborted_again.append(transaction)
    assert aborted_again.data.hex() == KAFKA_TRANSACTION_INDEX
