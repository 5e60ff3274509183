"""Whether a pipeline's topics are there; those that it may create are created. No Spark yet."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.client.client import Client
from ottla.client.config import ClientConfig
from ottla.client.errors import code_of
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.spark.option_values import GivenOptions, OptionError, client_config
from ottla.spark.pipelines.check import Problem
from ottla.spark.pipelines.definition import (
    Definition,
    NewTopic,
    Sink,
    SinkKind,
    Source,
    SourceKind,
)

_CREATE_TIMEOUT_MS = 30_000


def prepare_topics(definition: Definition) -> list[Problem]:
    """Create the topics that sinks may create; what is missing or cannot be reached."""
    clients: dict[str, Client] = {}
    try:
        return list(_prepare(definition, clients))
    finally:
        for client in clients.values():
            client.close()


def _prepare(definition: Definition, clients: dict[str, Client]) -> Iterator[Problem]:
    unreachable: set[str] = set()
    for sink in definition.sinks:
        if sink.kind is SinkKind.TOPIC and sink.topic is not None and sink.create is not None:
            at = ("sinks", sink.name, "create")
            yield from _attempt(definition, sink, clients, unreachable, at)
    for source in definition.sources:
        if source.kind is not SourceKind.FILES and source.topic is not None:
            at = ("sources", source.name, "topic")
            yield from _attempt(definition, source, clients, unreachable, at)


def _attempt(
    definition: Definition,
    part: Source | Sink,
    clients: dict[str, Client],
    unreachable: set[str],
    at: tuple[str, ...],
) -> Iterator[Problem]:
    bootstrap = definition.bootstrap_of(part) or ""
    if bootstrap in unreachable:
        return
    try:
        if bootstrap not in clients:
            clients[bootstrap] = Client(_config(part, bootstrap))
        client = clients[bootstrap]
        if isinstance(part, Source):
            _require(client, part.topic or "")
        elif part.create is not None:
            create_topic(client, part.topic or "", part.create)
    except (KafkaError, OptionError) as error:
        is_network = isinstance(error, KafkaError) and error.code is ErrorCode.NETWORK_EXCEPTION
        if is_network:
            unreachable.add(bootstrap)
        yield Problem(("pipeline", "bootstrap") if is_network else at, str(error).rstrip("."))


def _config(part: Source | Sink, bootstrap: str) -> ClientConfig:
    given = GivenOptions({**part.options, "kafka.bootstrap.servers": bootstrap})
    return client_config(given.kafka_properties({}))


def _require(client: Client, topics: str) -> None:
    for topic in topics.split(","):
        try:
            client.topic(topic.strip())
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            raise KafkaError(
                error.code,
                f"there is no topic '{topic.strip()}': create it, by 'ottla topic create "
                f"{topic.strip()}'",
            ) from error


def create_topic(client: Client, topic: str, how: NewTopic) -> bool:
    """Create a topic unless it is there; whether it was created."""
    fields = {
        "topics": [
            {
                "name": topic,
                "num_partitions": how.partitions,
                "replication_factor": how.replication_factor,
                "assignments": [],
                "configs": [{"name": n, "value": v} for n, v in how.config.items()],
            }
        ],
        "timeout": _CREATE_TIMEOUT_MS,
        "validate_only": False,
    }

    def attempt() -> bool:
        response = client.ask(ApiKey.CREATE_TOPICS, fields, node_id=client.controller())
        answer = response.topics[0]
        code = code_of(int(answer.error_code))
        if code is ErrorCode.TOPIC_ALREADY_EXISTS:
            return False
        if code is not ErrorCode.NONE:
            raise KafkaError(
                code, f"topic '{topic}' cannot be created: {answer.error_message or code.name}"
            )
        return True

    created = client.retrying(attempt)
    client.retrying(lambda: client.topic(topic, is_fresh=True))
    return created
