"""Whether a pipeline's topics are there; those that it may create are created. No Spark yet.

A sink's topic may also appear when it is first written to, if the brokers do that.
"""

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
_BROKER_RESOURCE = 4


def prepare_topics(definition: Definition, *, creates: bool = True) -> list[Problem]:
    """What is missing or cannot be reached; unless `creates`, nothing is changed by asking."""
    clients: dict[str, Client] = {}
    try:
        return list(_prepare(definition, clients, creates))
    finally:
        for client in clients.values():
            client.close()


def _prepare(
    definition: Definition, clients: dict[str, Client], creates: bool
) -> Iterator[Problem]:
    unreachable: set[str] = set()
    parts: list[tuple[Source | Sink, tuple[str, ...]]] = [
        (sink, ("sinks", sink.name, "topic" if sink.create is None else "create"))
        for sink in definition.sinks
        if sink.kind is SinkKind.TOPIC and sink.topic is not None
    ]
    parts += [
        (source, ("sources", source.name, "topic"))
        for source in definition.sources
        if source.kind is not SourceKind.FILES and source.topic is not None
    ]
    for part, at in parts:
        bootstrap = definition.bootstrap_of(part) or ""
        if bootstrap in unreachable:
            continue
        try:
            if bootstrap not in clients:
                clients[bootstrap] = Client(_config(part, bootstrap))
            _attempt(clients[bootstrap], part, creates)
        except (KafkaError, OptionError) as error:
            is_network = isinstance(error, KafkaError) and error.code is ErrorCode.NETWORK_EXCEPTION
            if is_network:
                unreachable.add(bootstrap)
            yield Problem(("pipeline", "bootstrap") if is_network else at, str(error).rstrip("."))


def _attempt(client: Client, part: Source | Sink, creates: bool) -> None:
    if isinstance(part, Sink) and part.create is not None:
        if creates:
            create_topic(client, part.topic or "", part.create)
        return
    for topic in (part.topic or "").split(","):
        _require(client, topic.strip(), may_appear=isinstance(part, Sink))


def _config(part: Source | Sink, bootstrap: str) -> ClientConfig:
    given = GivenOptions({**part.options, "kafka.bootstrap.servers": bootstrap})
    return client_config(given.kafka_properties({}))


def _require(client: Client, topic: str, *, may_appear: bool) -> None:
    """Refuse a topic that is missing, unless it appears when it is written to."""
    try:
        client.topic(topic)
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        if may_appear and _creates_topics(client):
            return
        advice = ", or let the sink 'create' it" if may_appear else ""
        raise KafkaError(
            error.code,
            f"there is no topic '{topic}': create it, by 'ottla topic create {topic}'{advice}",
        ) from error


def _creates_topics(client: Client) -> bool:
    """Whether brokers create a topic that is asked for; true if they do not say."""
    node_id = client.controller()
    name = "auto.create.topics.enable"
    fields = {
        "resources": [
            {
                "resource_type": _BROKER_RESOURCE,
                "resource_name": str(node_id),
                "configuration_keys": [name],
            }
        ],
        "include_synonyms": False,
        "include_documentation": False,
    }
    response = client.retrying(lambda: client.ask(ApiKey.DESCRIBE_CONFIGS, fields, node_id=node_id))
    found = {
        entry.name: entry.value for result in response.results for entry in result.configs or ()
    }
    return found.get(name) != "false"


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
