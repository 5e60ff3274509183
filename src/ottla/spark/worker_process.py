"""What a Python process of Spark keeps from task to task: connections to clusters.

Spark reuses its Python workers, so a worker's second task finds its connection open. Clients are
kept per thread, as a client belongs to one. Whatever is here is lost when Spark ends an idle
process, so nothing may depend on it but speed.
"""

from __future__ import annotations

import gc
import logging
import threading

from ottla.client import Client, ClientConfig

_CLIENTS_MAX = 64  # clusters and ways to reach them; beyond that the oldest connects anew

logger = logging.getLogger(__name__)

_local = threading.local()
_is_settled = threading.Event()
_told: set[str] = set()


def client_of(config: ClientConfig) -> Client:
    """This thread's client for a cluster."""
    clients: dict[ClientConfig, Client] | None = getattr(_local, "clients", None)
    if clients is None:
        clients = _local.clients = {}
    if config not in clients:
        if len(clients) >= _CLIENTS_MAX:
            clients.pop(next(iter(clients))).close()
        clients[config] = Client(config)
    return clients[config]


def settle() -> None:
    """Keep what is loaded by now out of the garbage collection that Spark does after each task."""
    if not _is_settled.is_set():
        _is_settled.set()
        gc.freeze()


def tell_unknown(config: ClientConfig) -> None:
    """Say which properties have no effect, each once: Spark asks for each micro-batch anew."""
    new = sorted(set(config.unused) - _told)
    if new:
        _told.update(new)
        logger.warning("Not known, without effect: %s", ", ".join(new))
