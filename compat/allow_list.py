"""What Ottla must pass: the allow-list, which only grows.

The suite asks more than Ottla can do at first. A test that is listed must pass; one that is
not may fail, and is then reported as an expected failure with what went wrong. Apache Kafka,
against which the suite itself is proven, must pass all of it. Running with OTTLA_COMPAT_GROW=1
adds what passed; nothing ever removes a line.
"""

import os
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bench.brokers import Kind

PATH = Path(__file__).with_name("allow_list.toml")
FAILURE_CHARACTERS_MAX = 1500
HEADER = """\
# What must pass against Ottla, by client or tool. This file only grows: a line is never removed.
# `OTTLA_COMPAT_GROW=1 make compat` adds what passes now.
"""


def broker_kind() -> Kind:
    """Which broker is under test."""
    return Kind(os.environ.get("OTTLA_COMPAT_BROKER", Kind.OTTLA))


def load() -> dict[str, list[str]]:
    with PATH.open("rb") as file:
        listed: dict[str, list[str]] = tomllib.load(file)
    return listed


def dump(listed: dict[str, list[str]]) -> str:
    """The file's text: one array per client or tool, one entry per line, all sorted."""
    sections = []
    for section in sorted(listed):
        lines = "".join(f'    "{name}",\n' for name in sorted(set(listed[section])))
        sections.append(f"{section} = [\n{lines}]\n")
    return HEADER + "\n" + "\n".join(sections)


class Judge:
    """Turns failures of what is not required into expected ones, and remembers what passed."""

    def __init__(self, kind: Kind, listed: dict[str, list[str]]) -> None:
        self._kind = kind
        self._listed = listed
        self.unlisted_passes: list[tuple[str, str]] = []
        self._expected_failures: list[str] = []

    def is_required(self, section: str, name: str) -> bool:
        return self._kind is Kind.KAFKA or name in self._listed.get(section, ())

    @contextmanager
    def judging(self, section: str, name: str) -> Iterator[None]:
        """Let a required check fail; put another's failure aside, so that the test goes on."""
        try:
            yield
        except Exception as error:
            if self.is_required(section, name):
                raise
            what = f"{section}: {name}: {type(error).__name__}: {error}"
            self._expected_failures.append(what[:FAILURE_CHARACTERS_MAX])
        else:
            if not self.is_required(section, name):
                self.unlisted_passes.append((section, name))

    def end_of_test(self) -> None:
        """End the test as an expected failure when a check that is not required failed in it."""
        failures, self._expected_failures = self._expected_failures, []
        if failures:
            pytest.xfail("not required yet: " + "\n".join(failures))

    def grown(self) -> dict[str, list[str]]:
        listed = {section: list(names) for section, names in self._listed.items()}
        for section, name in self.unlisted_passes:
            listed.setdefault(section, []).append(name)
        return listed
