"""What a console was told when it started. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DEFAULT_PORT = 9680
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """`client` are client properties, `bootstrap.servers` among them."""

    client: Mapping[str, str]
    host: str = LOOPBACK
    port: int = DEFAULT_PORT
    is_read_only: bool = False
    allowed_hosts: tuple[str, ...] = ()
    pipelines_directory: str | None = None
    sample_interval_s: float = 2.0

    @property
    def bootstrap_servers(self) -> str:
        return self.client["bootstrap.servers"]
