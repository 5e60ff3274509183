"""What the long tests did, at the end of the run: also when it went well, and by any worker."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from bench.brokers import CACHE

FOLDER = CACHE / "exactly_once"
Report = Callable[[str, str], None]

_began = time.time()


@pytest.fixture
def report() -> Report:
    """Leave a few lines under a name; they are shown when all tests are done."""

    def leave(name: str, text: str) -> None:
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / f"{name}.txt").write_text(text)

    return leave


@pytest.fixture
def kept() -> Path:
    """Where histories are kept that somebody should look at."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    return FOLDER


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for path in sorted(FOLDER.glob("*.txt")):
        if path.stat().st_mtime >= _began:
            terminalreporter.section(path.stem)
            terminalreporter.write_line(path.read_text())
