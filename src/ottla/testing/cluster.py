"""A broker for tests: in this process, on a free port, in a directory that goes away.

    with Cluster(config={"num.partitions": "3"}) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})

It is the production broker, not an imitation: what a test sees here, a client sees in production.
`stop`, `restart` and `kill` keep port and data, so that a client under test can live through them.
Any thread may call it, one at a time.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from ottla.testing.broker_thread import BrokerThread

# What a topic costs to create is milliseconds; a test should not wait longer than this to fail.
ADMIN_TIMEOUT_S = 30.0


class Cluster:
    """One broker, started by `with` or `start`."""

    def __init__(
        self,
        *,
        brokers: int = 1,
        config: Mapping[str, str] | None = None,
        directory: str | Path | None = None,
    ) -> None:
        """`config` are broker settings; `directory` is kept, a temporary one is removed."""
        if brokers != 1:
            raise ValueError(f"this version runs one broker, not {brokers}")
        self._config = dict(config or {})
        self._is_temporary = directory is None
        self._directory = None if directory is None else Path(directory)
        self._port = 0
        self._thread: BrokerThread | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        """What a client takes as `bootstrap.servers`; stays the same over restarts."""
        if not self._port:
            raise RuntimeError("the cluster was not started; use it in a `with` block")
        from ottla.server.single_node import HOST

        return f"{HOST}:{self._port}"

    @property
    def directory(self) -> Path:
        """Where the broker keeps its logs."""
        if self._directory is None:
            raise RuntimeError("the cluster was not started; use it in a `with` block")
        return self._directory

    @property
    def is_running(self) -> bool:
        """Whether the broker runs."""
        return self._thread is not None

    def start(self) -> Self:
        """Start the broker, if it does not run."""
        from ottla.config.broker import BrokerConfig
        from ottla.server.single_node import single_node_properties
        from ottla.testing.broker_thread import BrokerThread

        if self._thread is not None:
            return self
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="ottla-"))
        properties = single_node_properties(str(self._directory), self._port, self._config)
        thread = BrokerThread(BrokerConfig.from_properties(properties))
        try:
            addresses = thread.start()
        except BaseException:
            self._remove_directory()
            raise
        self._thread = thread
        _, self._port = addresses["PLAINTEXT"]
        return self

    def stop(self) -> None:
        """Stop the broker cleanly, if it runs; `start` brings it back on the same data."""
        if self._thread is not None:
            thread, self._thread = self._thread, None
            thread.stop()

    def kill(self) -> None:
        """End the broker as `kill -9` would, if it runs; `start` lets it recover."""
        if self._thread is not None:
            thread, self._thread = self._thread, None
            thread.kill()

    def restart(self) -> None:
        """Stop cleanly and start again."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop, and remove a temporary directory."""
        try:
            self.stop()
        finally:
            self._remove_directory()

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic, and return once it can be used."""
        from importlib import import_module

        module = import_module("confluent_kafka.admin")
        admin = module.AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        topic = module.NewTopic(
            name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            config=dict(config or {}),
        )
        futures = admin.create_topics(
            [topic], request_timeout=ADMIN_TIMEOUT_S, operation_timeout=ADMIN_TIMEOUT_S
        )
        futures[name].result(ADMIN_TIMEOUT_S)

    def _remove_directory(self) -> None:
        if self._is_temporary and self._directory is not None:
            directory, self._directory = self._directory, None
            shutil.rmtree(directory, ignore_errors=True)
            self._port = 0
