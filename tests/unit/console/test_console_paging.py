"""Pages against an oracle that holds every record in one list."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.console.paging import Block, Page, Pager, Range
from ottla.console.records import Position, Record, format_position, parse_position

Logs = dict[int, list[Record]]


@st.composite
def logs(draw: st.DrawFn) -> Logs:
    """A few partitions with gaps between offsets and times that mostly rise."""
    made: Logs = {}
    for partition in range(draw(st.integers(1, 4))):
        offset, at, records = draw(st.integers(0, 3)), 100, []
        for _ in range(draw(st.integers(0, 12))):
            offset += draw(st.integers(1, 3))
            at += draw(st.integers(-2, 9))
            value = b"x" if draw(st.booleans()) else b"y"
            records.append(Record(partition, offset, at, False, None, value, ()))
        made[partition] = records
    return made


def read_page(
    made: Logs, position: Position, *, is_backward: bool, count: int, window: int, only_x: bool
) -> Page:
    ranges = {
        p: Range(0, (records[-1].offset + 1) if records else 0) for p, records in made.items()
    }
    pager = Pager(
        ranges,
        position,
        is_backward=is_backward,
        count=count,
        predicate=(lambda record: record.value == b"x") if only_x else None,
    )
    while wanted := pager.wanted():
        for partition, (offset, _) in wanted.items():
            if is_backward:
                low = max(0, offset - window)
                found = [r for r in made[partition] if low <= r.offset < offset][::-1]
                pager.add(partition, Block(found, len(found), low))
            else:
                found = [r for r in made[partition] if r.offset >= offset][:window]
                after = found[-1].offset + 1 if found else ranges[partition].end
                pager.add(partition, Block(found, len(found), after))
        pager.merge()
    return pager.finish()


@given(logs(), st.booleans(), st.integers(1, 6), st.integers(1, 5), st.booleans())
def test_pages_show_every_record_once_and_keep_the_order_of_partitions(
    made: Logs, is_backward: bool, count: int, window: int, only_x: bool
) -> None:
    position = {
        p: (records[-1].offset + 1 if records else 0) if is_backward else 0
        for p, records in made.items()
    }
    shown: list[Record] = []
    for _ in range(200):
        page = read_page(
            made, position, is_backward=is_backward, count=count, window=window, only_x=only_x
        )
        assert len(page.records) <= count
        shown += page.records
        position = parse_position(format_position(page.position))
        if not position:
            break
    wanted = [r for records in made.values() for r in records if not only_x or r.value == b"x"]
    assert sorted(shown) == sorted(wanted)
    for partition in made:
        offsets = [r.offset for r in shown if r.partition == partition]
        assert offsets == sorted(offsets, reverse=is_backward)


@given(logs(), st.booleans(), st.integers(1, 5))
def test_records_go_by_time_where_clocks_rise(made: Logs, is_backward: bool, window: int) -> None:
    rising = {
        p: [r._replace(timestamp_ms=100 + 7 * i + p) for i, r in enumerate(records)]
        for p, records in made.items()
    }
    position = {
        p: (records[-1].offset + 1 if records else 0) if is_backward else 0
        for p, records in rising.items()
    }
    page = read_page(
        rising, position, is_backward=is_backward, count=99, window=window, only_x=False
    )
    times = [record.timestamp_ms for record in page.records]
    assert times == sorted(times, reverse=is_backward)


def test_a_page_out_of_budget_says_where_to_go_on() -> None:
    pager = Pager({0: Range(0, 10)}, {0: 0}, is_backward=False, count=5, predicate=lambda r: False)
    pager.add(0, Block([Record(0, 0, 1, False, None, None, ())], 1, 1))
    page = pager.finish()
    assert (page.records, page.position, page.is_complete, page.scanned) == ([], {0: 1}, False, 1)
