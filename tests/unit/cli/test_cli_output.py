"""Tables that line up, and machine formats that keep everything."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.output import columns, display_width, human_bytes, print_rows

COLUMNS = columns("topic", "log_end_offset", wide=("topic_id",))
ROWS = [
    {"topic": "a", "log_end_offset": 9_223_372_036_854_775_807, "topic_id": "x", "extra": [1]},
    {"topic": "much-longer", "log_end_offset": None, "topic_id": "y", "extra": []},
]


def printed(capsys: pytest.CaptureFixture[str], output: str) -> str:
    print_rows(ROWS, COLUMNS, output)
    return capsys.readouterr().out


def test_a_table_lines_up_and_right_aligns_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "table").splitlines() == [
        "TOPIC             LOG-END-OFFSET",
        "a            9223372036854775807",
        "much-longer                    -",
    ]


def test_wide_adds_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "wide").splitlines()[0].endswith("TOPIC-ID")


def test_machine_formats_carry_fields_that_no_table_shows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert json.loads(printed(capsys, "json")) == ROWS
    assert yaml.safe_load(printed(capsys, "yaml")) == ROWS
    assert [json.loads(line) for line in printed(capsys, "jsonl").splitlines()] == ROWS


def test_no_rows_still_print_a_header_or_an_empty_document(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_rows([], COLUMNS, "table")
    assert capsys.readouterr().out == "TOPIC  LOG-END-OFFSET\n"
    print_rows([], COLUMNS, "json")
    assert capsys.readouterr().out == "[]\n"


@given(st.lists(st.text("aé日 ", min_size=1, max_size=6), min_size=1, max_size=5))
def test_the_second_column_starts_in_the_same_terminal_cell_on_every_line(
    names: list[str],
) -> None:
    from io import StringIO
    from unittest.mock import patch

    rows = [{"topic": name, "partition": "|"} for name in names]
    with patch("sys.stdout", new=StringIO()) as out:
        print_rows(rows, columns("topic", "partition"), "table")
        lines = out.getvalue().splitlines()
    starts = {display_width(line[: line.rindex("|")]) for line in lines[1:]}
    starts.add(lines[0].index("PARTITION"))
    assert len(starts) == 1


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (5 * 2**40, "5.0 TiB"),
        (2**60, "1048576.0 TiB"),
    ],
)
def test_sizes_read_in_binary_units(count: int, text: str) -> None:
    assert human_bytes(count) == text
