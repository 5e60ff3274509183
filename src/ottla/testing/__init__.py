"""Ottla as a fixture of other people's tests.

`Cluster` is loaded on first use: this package is imported by the pytest plugin in every test run
of every project that has Ottla installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.testing.cluster import Cluster

__all__ = ["Cluster"]


def __getattr__(name: str) -> object:
    if name == "Cluster":
        from ottla.testing.cluster import Cluster

        return Cluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
