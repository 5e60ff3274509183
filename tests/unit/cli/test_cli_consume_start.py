"""Where consume begins, and where it takes the end to be."""

from collections.abc import Mapping
from typing import Any

import pytest

from ottla.cli.client import Admin
from ottla.cli.consume import Places, Start, parse_start, printable


class FakeAdmin(Admin):
    """Partitions 0 (offsets 10 to 20), 1 (0 to 3) and 2 (empty at 7), and one timestamp."""

    def __init__(self) -> None:
        self.levels: set[bool] = set()

    def offsets(
        self, wanted: Mapping[tuple[str, int], Any], *, is_committed: bool = False
    ) -> dict[tuple[str, int], int]:
        self.levels.add(is_committed)
        ranges = {0: (10, 20), 1: (0, 3), 2: (7, 7)}
        at_time = {0: 15, 1: -1, 2: -1}
        found = {}
        for (topic, partition), spec in wanted.items():
            kind = type(spec).__name__
            first, end = ranges[partition]
            offset = {"EarliestSpec": first, "LatestSpec": end}.get(kind, at_time[partition])
            found[topic, partition] = offset
        return found


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("beginning", {0: 10, 1: 0, 2: 7}),
        ("end", {0: 20, 1: 3, 2: 7}),
        ("-2", {0: 18, 1: 1, 2: 7}),
        ("-100", {0: 10, 1: 0, 2: 7}),
        ("12", {0: 12, 1: 12, 2: 12}),
        ("5", {0: 10, 1: 5, 2: 7}),
        ("@1700000000000", {0: 15, 1: 3, 2: 7}),
    ],
)
def test_reading_begins_where_it_was_told_to(text: str, first: dict[int, int]) -> None:
    places = Places.find(FakeAdmin(), "t", [0, 1, 2], parse_start(text), is_committed=False)
    assert places.first == first
    assert places.end == {0: 20, 1: 3, 2: 7}


def test_the_end_is_the_last_stable_offset_for_a_committed_reader() -> None:
    admin = FakeAdmin()
    Places.find(admin, "t", [0], Start(edge="end"), is_committed=True)
    assert admin.levels == {True}


@pytest.mark.parametrize("text", ["", "middle", "--3", "1.5", "@", "@noon", "-", "+3"])
def test_a_place_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_start(text)


def test_control_characters_never_reach_the_terminal() -> None:
    assert printable(b"a\x1b[31m\n\xff\xc3\xa9") == "a\\x1b[31m\\n\\xffé"
    assert printable(None) == "-"
