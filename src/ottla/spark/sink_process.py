"""What a Python process of Spark keeps of a sink between micro-batches: metadata, publishers.

Spark runs each part of a write in processes of its own and reuses them, one call at a time. What is
here is lost when Spark ends an idle process, so nothing may depend on it but speed: a publisher
that starts anew asks the broker what is true.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ottla.client.config import ClientConfig
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.spark.publish import QueryPublisher
from ottla.spark.sink_errors import SinkError, TopicMissing
from ottla.spark.sink_options import SinkOptions
from ottla.spark.worker_process import client_of

_CREATION_MS_MAX = 5_000  # a broker that creates topics does so in milliseconds
_KEPT_MAX = 64  # queries that share one process; beyond that the oldest connects anew

_publishers: dict[str, tuple[SinkOptions, QueryPublisher]] = {}
_tokens: dict[Path, str] = {}


def publisher(
    options: SinkOptions, transactional_id: str, *, has_marker: bool = True
) -> QueryPublisher:
    """The process's publisher for this transactional id."""
    known = _publishers.get(transactional_id)
    if known is not None and known[0] == options:
        return known[1]
    forget_publisher(transactional_id)
    if len(_publishers) >= _KEPT_MAX:
        forget_publisher(next(iter(_publishers)))
    made = QueryPublisher(options, transactional_id, has_marker=has_marker)
    _publishers[transactional_id] = (options, made)
    return made


def forget_publisher(transactional_id: str) -> None:
    """Close the publisher; the next one starts anew."""
    known = _publishers.pop(transactional_id, None)
    if known is not None:
        known[1].close()


def token_of(stage: Path, settle: Callable[[], str]) -> str:
    """The token of the stage directory, which is settled once."""
    if stage not in _tokens or not stage.exists():
        _tokens[stage] = settle()
    return _tokens[stage]


def partitions_of(config: ClientConfig, topic: str) -> int:
    """How many partitions a topic has; SinkError if there is no such topic."""
    found = client_of(config)
    try:
        return len(found.topic(topic).partitions)
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise _refused(topic, error) from error
    ensure_topic(config, topic)
    return len(found.topic(topic).partitions)


def ensure_topic(config: ClientConfig, topic: str) -> None:
    """Have the broker create a missing topic, if it does so by itself, as producers do."""
    asked = client_of(config)
    try:
        asked.topic(topic)
        return
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise _refused(topic, error) from error
    fields = {
        "topics": [{"topic_id": None, "name": topic}],
        "allow_auto_topic_creation": True,
    }
    try:
        asked.retrying(lambda: asked.ask(ApiKey.METADATA, fields))
        asked.retrying(lambda: asked.topic(topic), timeout_ms=_CREATION_MS_MAX)
    except KafkaError as error:
        raise TopicMissing(
            f"Topic '{topic}' does not exist, and the broker does not create topics by itself: "
            f"create it first, by 'ottla topic create {topic}'."
        ) from error


def _refused(topic: str, error: KafkaError) -> SinkError:
    if error.code is ErrorCode.INVALID_TOPIC_EXCEPTION:
        return TopicMissing(f"There can be no topic of the name '{topic}'.")
    return SinkError(f"{error}.")
