"""A cluster as one object: which broker to ask, how often to try, when to give up.

librdkafka hides the wire: it decodes every record into an object and offers only the APIs that it
needs itself. This client sends any API in any version and hands out raw record batches, for those
who decode them natively or must place every request of a transaction themselves.

`Client` belongs to one thread at a time; make one per thread from the same `ClientConfig`, which
can be pickled. Connections open on first use and are reused; one that fails is dropped, and the
next call opens another.

Every call ends: a request by request.timeout.ms, all attempts together by default.api.timeout.ms.
Only errors that may pass by themselves are tried again, with a pause that doubles.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Self, TypeVar

from ottla.client.config import Address, ClientConfig
from ottla.client.connection import Connection
from ottla.client.errors import (
    STALE_COORDINATOR,
    STALE_METADATA,
    Unreachable,
    is_retriable,
    raise_for,
)
from ottla.client.metadata import (
    NO_LEADER,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
    TopicPartition,
    read_metadata,
)
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages import given

T = TypeVar("T")

_METADATA_VERSION_MIN = 4  # the first that can ask without creating the topic
_TOPICS_CACHED_MAX = 10_000  # a pattern may match many; beyond this, what is known is dropped


class CoordinatorType(IntEnum):
    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class Client:
    """Asks the brokers of one cluster."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self._connections: dict[Address, Connection] = {}
        self._brokers: dict[int, Address] = {}
        self._controller_id = -1
        self._topics: dict[str, tuple[float, TopicMetadata]] = {}
        self._coordinators: dict[tuple[CoordinatorType, str], int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; the client may be used again, and then opens new ones."""
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.close()

    def any_connection(self) -> Connection:
        """A connection to any broker, an open one if there is one."""
        for connection in self._connections.values():
            if connection.is_open and not connection.pending_count:
                return connection
        reasons: list[str] = []
        addresses = dict.fromkeys((*self._brokers.values(), *self.config.bootstrap_servers))
        for address in addresses:
            try:
                return self.connection_to(address)
            except Unreachable as error:
                reasons.append(str(error))
        raise Unreachable("No broker of the cluster can be reached: " + "; ".join(reasons))

    def connection_to(self, address: Address) -> Connection:
        """The connection to this address, opened if need be."""
        connection = self._connections.get(address)
        if connection is None or not connection.is_open:
            connection = self._connections[address] = Connection(address, self.config)
        return connection

    def broker(self, node_id: int) -> Connection:
        """The connection to a broker of the cluster by its id."""
        if node_id not in self._brokers:
            self.metadata([])
        if node_id not in self._brokers:
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"Broker {node_id} is not in the cluster now"
            )
        return self.connection_to(self._brokers[node_id])

    def ask(
        self,
        api_key: ApiKey,
        fields: Mapping[str, Any],
        *,
        node_id: int | None = None,
        version: int | None = None,
    ) -> Any:
        """One attempt at one request to one broker, or to any; the decoded answer."""
        connection = self.any_connection() if node_id is None else self.broker(node_id)
        return connection.ask(api_key, fields, version=version)

    def retrying(self, attempt: Callable[[], T], *, timeout_ms: int | None = None) -> T:
        """Call `attempt` until it succeeds, fails for good, or the time is up."""
        limit_ms = self.config.api_timeout_ms if timeout_ms is None else timeout_ms
        deadline = monotonic() + limit_ms / 1000
        pause_ms = float(self.config.retry_backoff_ms)
        while True:
            try:
                return attempt()
            except KafkaError as error:
                if not is_retriable(error) or monotonic() + pause_ms / 1000 >= deadline:
                    raise
                self._forget_what_failed(error.code)
            sleep(pause_ms / 1000)
            pause_ms = min(pause_ms * 2, float(self.config.retry_backoff_ms_max))

    def metadata(self, topics: Iterable[str] | None) -> ClusterMetadata:
        """Brokers and the named topics (None: all of them), asked for now, in one attempt.

        A topic that does not exist is in the answer with its error; asking does not create it.
        """
        connection = self.any_connection()
        version = connection.version_of(ApiKey.METADATA, lowest=_METADATA_VERSION_MIN)
        wanted = None if topics is None else [{"topic_id": None, "name": name} for name in topics]
        fields = {"topics": wanted, "allow_auto_topic_creation": False}
        found = read_metadata(connection.ask(ApiKey.METADATA, fields, version=version))
        if found.brokers:
            self._brokers = found.brokers
        self._controller_id = found.controller_id
        if len(self._topics) + len(found.topics) > _TOPICS_CACHED_MAX:
            self._topics.clear()
        now = monotonic()
        for name, topic in found.topics.items():
            if topic.error is ErrorCode.NONE:
                self._topics[name] = (now, topic)
            else:
                self._topics.pop(name, None)
        return found

    def topic_names(self, *, with_internal: bool = False) -> list[str]:
        """Every topic of the cluster, sorted."""
        found = self.retrying(lambda: self.metadata(None)).topics.values()
        return sorted(topic.name for topic in found if with_internal or not topic.is_internal)

    def topic(self, name: str, *, is_fresh: bool = False) -> TopicMetadata:
        """What is known of a topic; asked for when unknown, too old or `is_fresh`.

        UNKNOWN_TOPIC_OR_PARTITION at once if there is none: who expects it to appear retries.
        """
        known = self._topics.get(name)
        age_max_s = self.config.metadata_age_ms_max / 1000
        if not is_fresh and known is not None and monotonic() - known[0] < age_max_s:
            return known[1]
        found = self.metadata([name]).topics.get(name)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist")
        if found.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise KafkaError(found.error, f"Topic '{name}' does not exist")
        raise_for(found.error, f"Topic '{name}' cannot be described")
        return found

    def partition(self, name: str, partition: int) -> PartitionMetadata:
        """Leader and epoch of one partition, from what is known."""
        found = self.topic(name).partitions.get(partition)
        if found is None:
            found = self.topic(name, is_fresh=True).partitions.get(partition)
        if found is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"Topic '{name}' has no partition {partition}",
            )
        return found

    def leader(self, name: str, partition: int) -> int:
        """The broker that leads a partition, from what is known; LEADER_NOT_AVAILABLE if none."""
        found = self.partition(name, partition)
        if found.leader == NO_LEADER:
            self.forget_topic(name)
            raise KafkaError(
                ErrorCode.LEADER_NOT_AVAILABLE, f"Partition {name}-{partition} has no leader now"
            )
        return found.leader

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Partitions grouped by the broker that leads them; unknown topics asked for together."""
        wanted = list(partitions)
        missing = [name for name in dict.fromkeys(tp.topic for tp in wanted) if self._is_old(name)]
        if missing:
            self.metadata(missing)
        grouped: dict[int, list[TopicPartition]] = {}
        for topic_partition in wanted:
            grouped.setdefault(self.leader(*topic_partition), []).append(topic_partition)
        return grouped

    def controller(self) -> int:
        """The broker that takes changes of metadata."""
        if self._controller_id < 0:
            self.metadata([])
        return self._controller_id

    def coordinator(self, kind: CoordinatorType, key: str) -> int:
        """The broker that coordinates a group or a transactional id; one attempt if unknown."""
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        connection = self.any_connection()
        version = connection.version_of(ApiKey.FIND_COORDINATOR, lowest=0 if kind == 0 else 1)
        fields = {"key": key, "key_type": int(kind), "coordinator_keys": [key]}
        response = connection.ask(ApiKey.FIND_COORDINATOR, fields, version=version)
        found = response.coordinators[0] if version >= 4 else response
        message = given(found, "error_message", None)
        raise_for(found.error_code, f"The coordinator of '{key}' cannot be found", message)
        node_id = int(found.node_id)
        self._brokers[node_id] = Address(found.host, int(found.port))
        self._coordinators[kind, key] = node_id
        return node_id

    def forget_topic(self, name: str) -> None:
        """Ask anew for this topic when it is next needed."""
        self._topics.pop(name, None)

    def forget_topics(self) -> None:
        """Ask anew for every topic when it is next needed."""
        self._topics.clear()

    def forget_coordinators(self) -> None:
        """Look coordinators up anew when they are next needed."""
        self._coordinators.clear()

    def _is_old(self, name: str) -> bool:
        known = self._topics.get(name)
        age_max_s = self.config.metadata_age_ms_max / 1000
        return known is None or monotonic() - known[0] >= age_max_s

    def _forget_what_failed(self, code: ErrorCode) -> None:
        if code in STALE_METADATA:
            self._topics.clear()
        if code in STALE_COORDINATOR:
            self._coordinators.clear()
        if code is ErrorCode.NOT_CONTROLLER:
            self._controller_id = -1
        # A broker that moved is known by a new address only to the others.
        if code is ErrorCode.NETWORK_EXCEPTION:
            self._brokers.clear()
