"""The pages that the menu lists, the palette finds and `g` and a letter open. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Section(NamedTuple):
    key: str
    label: str
    href: str
    letter: str  # after `g`


SECTIONS = (
    Section("overview", "Overview", "/", "o"),
    Section("topics", "Topics", "/topics", "t"),
    Section("groups", "Groups", "/groups", "g"),
    Section("brokers", "Brokers", "/brokers", "b"),
    Section("quorum", "Quorum", "/quorum", "q"),
    Section("transactions", "Transactions", "/transactions", "x"),
    Section("pipelines", "Pipelines", "/pipelines", "p"),
)
