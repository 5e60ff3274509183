"""Which fixtures does a project get from `pip install ottla`?

Pytest loads this module in every run of every project that has Ottla installed, used or not.
So it imports nothing of Ottla but inside the fixtures.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ottla.testing.cluster import Cluster


@pytest.fixture(scope="session")
def ottla_cluster() -> Iterator[Cluster]:
    """A broker of its own for the test session, on a free port and a temporary directory."""
    from ottla.testing.cluster import Cluster

    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def ottla_bootstrap(ottla_cluster: Cluster) -> str:
    """The `bootstrap.servers` of the session's broker."""
    return ottla_cluster.bootstrap_servers
