"""The page of figures: what is measured anew replaces its own section and no other."""

import pytest
from bench import __main__ as command
from bench import loads, report
from bench.loads import QUICK, client_loads, raw_loads
from bench.table import KAFKA, OTTLA, Figure, Row
from bench.transactions import transaction_loads

FACTS = {
    "date": "then",
    "Ottla": "1 (abc)",
    "command": "python -m bench",
    "load average before": "1",
    "load average after": "2",
}


def row(load: str, value: float) -> Row:
    return Row(load, Figure("x", "requests/s"), {OTTLA: [value], KAFKA: [1.0]})


def test_a_run_of_some_leaves_the_sections_of_others_as_they_are() -> None:
    page = report.markdown(
        FACTS, {"Fetches": [row("fetch 1 MB", 7.0)], "Batches": [row("produce 60 x 1 KB", 8.0)]}
    )
    again = report.with_sections(page, FACTS, {"Batches": [row("produce 60 x 1 KB", 9.0)]})
    assert "| 7.00 | 1.00 | 7.00x |" in again
    assert "8.00" not in again
    assert "| 9.00 | 1.00 | 9.00x |" in again


@pytest.mark.parametrize("by_group", [True, False])
def test_every_load_has_a_section(by_group: bool) -> None:
    everything = [
        *raw_loads(QUICK),
        *client_loads(QUICK, by_group=by_group),
        *transaction_loads(QUICK),
    ]
    assert {load.group for load in everything} == loads.GROUPS
    assert command.TITLES.keys() >= loads.GROUPS
