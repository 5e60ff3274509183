"""The one door to Kafka's client: librdkafka through confluent-kafka, imported on first use.

Two things make librdkafka awkward in a command line. It retries for ever where a person wants to
hear "connection refused" at once, so `Admin` listens to its error callback and gives up when all
brokers stayed down for `GRACE_S`. And it logs to stderr by itself, so its log level is set below
everything unless the user asks for `-X debug=...`.

Blocking shell; every error leaves here as a `CliError`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.cli.errors import CliError, ExitCode, exit_code_of, sentence, transport_reason
from ottla.cli.settings import Connection

if TYPE_CHECKING:
    import confluent_kafka

T = TypeVar("T")
K = TypeVar("K")

# `localhost` may resolve to an IPv6 address that refuses before the IPv4 one is tried, which
# librdkafka already reports as all brokers down; its next attempt comes within this time.
GRACE_S = 1.0
_POLL_S = 0.05


def kafka_admin() -> Any:
    """confluent-kafka's admin module; untyped, as it does not declare what it exports."""
    return import_module("confluent_kafka.admin")


class Troubles:
    """What librdkafka's error callback said: the cause behind a later timeout."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.reason: str | None = None
        self.auth_reason: str | None = None
        self.down_since: datetime | None = None

    def on_error(self, error: confluent_kafka.KafkaError) -> None:
        """Remember why a broker cannot be reached."""
        name = error.name()
        if exit_code_of(name) is ExitCode.AUTH:
            self.auth_reason = transport_reason(error.str())
        elif name == "_ALL_BROKERS_DOWN":
            self.down_since = self.down_since or datetime.now()
        else:
            self.reason = transport_reason(error.str())

    def raise_if_hopeless(self) -> None:
        """Give up when the credentials are refused, or all brokers stayed down."""
        if self.auth_reason is not None:
            raise self.unreachable()
        patience = timedelta(seconds=min(GRACE_S, self.connection.timeout_s))
        if self.down_since is not None and datetime.now() - self.down_since >= patience:
            raise self.unreachable()

    def forget_if_back(self) -> None:
        """After brokers were down for the whole timeout: look again, and raise if they still are.

        librdkafka says when all brokers went down, but not when one is back.
        """
        patience = timedelta(seconds=self.connection.timeout_s)
        if self.down_since is not None and datetime.now() - self.down_since >= patience:
            Admin(self.connection).metadata()
            self.down_since = None

    def unreachable(self) -> CliError:
        """The sentence for a cluster that does not answer."""
        brokers = self.connection.brokers
        if self.auth_reason is not None:
            return CliError(
                f"{brokers} refused the credentials ({self.auth_reason}); check the sasl.* and "
                "ssl.* settings given with -X or in the context.",
                ExitCode.AUTH,
            )
        reason = self.reason or f"no answer within {self.connection.timeout_s:g} s"
        return CliError(
            f"Cannot reach {brokers} ({reason}); start a broker with 'ottla up' or name a "
            "running one with -b.",
            ExitCode.UNREACHABLE,
        )


def client_settings(connection: Connection, troubles: Troubles) -> dict[str, Any]:
    """librdkafka's settings for one client that never writes to stderr itself."""
    quiet = {} if "debug" in connection.client else {"log_level": 0}
    return {
        "client.id": "ottla-cli",
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 500,
        **quiet,
        **connection.client,
        "error_cb": troubles.on_error,
    }


@contextmanager
def translated_errors(troubles: Troubles, subject: str | None = None) -> Iterator[None]:
    """Turn the client's exceptions into sentences."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as exception:
        raise error_of(exception.args[0], troubles, subject) from exception


def error_of(
    error: confluent_kafka.KafkaError | str, troubles: Troubles, subject: str | None = None
) -> CliError:
    """The sentence for an error of the client or the broker."""
    if isinstance(error, str):
        return CliError(sentence(error))
    if error.name() in ("_INVALID_ARG", "_CONFLICT"):
        return CliError(sentence(error.str()), ExitCode.USAGE)
    code = exit_code_of(error.name())
    if code is ExitCode.UNREACHABLE and error.code() < 0:
        return troubles.unreachable()
    if code is ExitCode.NOT_FOUND and subject:
        return CliError(
            f"{subject[0].upper()}{subject[1:]} does not exist; "
            "'ottla topic list' shows those that do.",
            code,
        )
    prefix = f"{subject[0].upper()}{subject[1:]}: " if subject else ""
    return CliError(prefix + sentence(error.str()), code, error_name=error.name())


class Admin:
    """The admin client, with answers or a `CliError` within the connection's timeout."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.troubles = Troubles(connection)
        with translated_errors(self.troubles):
            self.raw = kafka_admin().AdminClient(client_settings(connection, self.troubles))

    @property
    def options(self) -> dict[str, float]:
        """Keyword arguments that bound every admin request."""
        timeout_s = self.connection.timeout_s
        return {"request_timeout": timeout_s, "operation_timeout": timeout_s}

    @property
    def request_timeout(self) -> dict[str, float]:
        """The same for requests that know no operation timeout."""
        return {"request_timeout": self.connection.timeout_s}

    def result(self, future: Future[T], subject: str | None = None) -> T:
        """Wait for one answer, listening for signs that it will not come."""
        while not future.done():
            self.raw.poll(_POLL_S / 10)
            self.troubles.raise_if_hopeless()
            _wait(future, _POLL_S)
        with translated_errors(self.troubles, subject):
            return future.result()

    def outcomes(self, futures: Mapping[K, Future[T]]) -> dict[K, T | CliError]:
        """Every answer, or the error that came instead."""
        found: dict[K, T | CliError] = {}
        for key, future in futures.items():
            try:
                found[key] = self.result(future)
            except CliError as error:
                found[key] = error
        return found

    def metadata(self, *, is_patient: bool = False) -> Any:
        """Brokers and topics. A patient caller waits for a cluster that is down to come up."""
        from confluent_kafka import KafkaException

        deadline = datetime.now() + timedelta(seconds=self.connection.timeout_s)
        # The call blocks without listening to Ctrl-C or to the error callback, so it is made in
        # short pieces which grow, in case the cluster is merely slow. It asks for all topics, for
        # asking for one that is missing would create it.
        piece_s = 0.25
        while True:
            left_s = (deadline - datetime.now()).total_seconds()
            try:
                return self.raw.list_topics(timeout=max(0.01, min(piece_s, left_s)))
            except KafkaException as exception:
                error = exception.args[0]
                self.raw.poll(0)
                if not is_patient:
                    self.troubles.raise_if_hopeless()
                if exit_code_of(error.name()) is not ExitCode.UNREACHABLE or left_s <= 0:
                    raise error_of(error, self.troubles) from exception
            piece_s = 0.25 if self.troubles.down_since else min(piece_s * 2, 2.0)

    def partitions_of(self, topic: str) -> list[int]:
        """The partitions of a topic, or NOT_FOUND."""
        found = self.metadata().topics.get(topic)
        if found is None:
            raise topic_not_found(topic)
        return sorted(found.partitions)

    def describe_topics(self, names: list[str]) -> dict[str, Any]:
        """Ids, leaders, replicas and in-sync replicas of each topic."""
        from confluent_kafka import TopicCollection

        if not names:
            return {}
        futures = self.raw.describe_topics(TopicCollection(names), **self.request_timeout)
        return {name: self.result(future, f"topic '{name}'") for name, future in futures.items()}

    def offsets(
        self, wanted: Mapping[tuple[str, int], Any], *, is_committed: bool = False
    ) -> dict[tuple[str, int], int]:
        """The offset of each partition at the wanted place; -1 where there is none."""
        from confluent_kafka import IsolationLevel, TopicPartition

        if not wanted:
            return {}
        request = {TopicPartition(topic, p): spec for (topic, p), spec in wanted.items()}
        level = IsolationLevel.READ_COMMITTED if is_committed else IsolationLevel.READ_UNCOMMITTED
        futures = self.raw.list_offsets(request, isolation_level=level, **self.request_timeout)
        return {
            (tp.topic, tp.partition): self.result(
                future, f"partition {tp.topic}-{tp.partition}"
            ).offset
            for tp, future in futures.items()
        }

    def topic_configs(self, names: list[str]) -> dict[str, dict[str, Any]]:
        """Every config entry of each topic."""
        if not names:
            return {}
        module = kafka_admin()
        resources = [module.ConfigResource(module.ResourceType.TOPIC, name) for name in names]
        futures = self.raw.describe_configs(resources, **self.request_timeout)
        return {
            resource.name: self.result(future, f"topic '{resource.name}'")
            for resource, future in futures.items()
        }


def uuid_text(uuid: object) -> str:
    """An id as Kafka writes it; the client prints the Base64 that is not safe in names."""
    return str(uuid).replace("+", "-").replace("/", "_")


def topic_not_found(name: str) -> CliError:
    """The sentence for a topic that is not there."""
    return CliError(
        f"Topic '{name}' does not exist; 'ottla topic list' shows those that do.",
        ExitCode.NOT_FOUND,
    )


def _wait(future: Future[Any], timeout_s: float) -> None:
    from concurrent.futures import wait

    wait([future], timeout=timeout_s)
