"""Metadata: brokers, topics, and who leads each partition.

Versions 0 to 13. No list of topics means all of them (in version 0 an empty list does). A named
topic that does not exist is created first where the client and `auto.create.topics.enable` allow
it. Raw: clients repeat the same question, so the encoded answer is kept for as long as the image
lives, and only its correlation id is written anew.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Any, NamedTuple
from uuid import UUID

from ottla.metadata.image import TopicImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.frames import RequestHeader
from ottla.protocol.internal_topics import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS
from ottla.protocol.messages import decode_request, encode_response, given
from ottla.server.connection import Answer, Connection, Deferred
from ottla.server.operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from ottla.server.services import Services
from ottla.server.topic_creation import create_missing_topics
from ottla.server.topology import (
    broker_fields,
    controller_id,
    error_of_unknown,
    partition_fields,
)

_CORRELATION_ID = Struct(">i")
NULL_ID = UUID(int=0)
BY_ID_FROM = 12
NO_CONTROLLER = -1
# Different questions whose answers are kept at a time; the cache is emptied when it is full.
ANSWERS_MAX = 256


class Question(NamedTuple):
    version: int
    listener: str
    topics: tuple[tuple[str | None, UUID], ...] | None  # None for all
    topic_operations: bool
    cluster_operations: bool


def handle(
    services: Services, connection: Connection, header: RequestHeader, buffer: memoryview, end: int
) -> Answer | Deferred:
    request = decode_request(header.api_key, header.api_version, buffer[header.body_start : end])
    if header.api_version < BY_ID_FROM and _asks_by_id(request):
        return _refusal(header, request)
    question = _question(header.api_version, connection.owner.name, request)
    missing = _missing(services, question)
    may_create: bool = given(request, "allow_auto_topic_creation", True)
    if missing and may_create and services.config.auto_create_topics_enable:
        return Deferred(_create_and_answer(services, header, question, missing))
    return _answer(services, header, question, {})


def _asks_by_id(request: Any) -> bool:
    return any(
        topic.name is None or given(topic, "topic_id", None) for topic in request.topics or ()
    )


def _refusal(header: RequestHeader, request: Any) -> bytes:
    """Versions 10 and 11 have a field for ids, but nobody may use it (KAFKA-12701)."""
    topics = [
        {
            "error_code": ErrorCode.INVALID_REQUEST,
            "name": topic.name or "",
            "topic_id": given(topic, "topic_id", None),
            "topic_authorized_operations": NOT_ASKED,
        }
        for topic in request.topics
    ]
    fields = {
        "controller_id": NO_CONTROLLER,
        "topics": topics,
        "cluster_authorized_operations": NOT_ASKED,
    }
    return encode_response(header.api_key, header.api_version, header.correlation_id, fields)


async def _create_and_answer(
    services: Services, header: RequestHeader, question: Question, missing: list[str]
) -> Answer:
    errors = await create_missing_topics(services, missing)
    return _answer(services, header, question, errors)


def _question(version: int, listener: str, request: Any) -> Question:
    asked: Sequence[Any] | None = request.topics
    is_all = asked is None or (version == 0 and not asked)
    return Question(
        version,
        listener,
        None if is_all else _asked_topics(asked or ()),
        given(request, "include_topic_authorized_operations", False),
        given(request, "include_cluster_authorized_operations", False),
    )


def _asked_topics(asked: Sequence[Any]) -> tuple[tuple[str | None, UUID], ...]:
    """Each topic once; where one is given by id, those given by name do not count."""
    topics = dict.fromkeys(
        (topic.name, given(topic, "topic_id", None) or NULL_ID) for topic in asked
    )
    if any(topic_id != NULL_ID for _, topic_id in topics):
        return tuple(dict.fromkeys((None, one) for _, one in topics if one != NULL_ID))
    return tuple(topics)


def _missing(services: Services, question: Question) -> list[str]:
    known = services.image.topics
    return [
        name
        for name, topic_id in question.topics or ()
        if name is not None
        and topic_id == NULL_ID
        and name not in known
        and name != CLUSTER_METADATA_TOPIC
    ]


def _answer(
    services: Services, header: RequestHeader, question: Question, errors: dict[str, KafkaError]
) -> bytes:
    answers = services.metadata_answers
    image = services.image
    if answers.image is not image or len(answers.encoded) >= ANSWERS_MAX:
        answers.image = image
        answers.encoded = {}
    encoded = None if errors else answers.encoded.get(question)
    if encoded is None:
        encoded = encode_response(
            header.api_key,
            header.api_version,
            header.correlation_id,
            _fields(services, question, errors),
        )
        if not errors:
            answers.encoded[question] = encoded
    return _CORRELATION_ID.pack(header.correlation_id) + encoded[_CORRELATION_ID.size :]


def _fields(
    services: Services, question: Question, errors: dict[str, KafkaError]
) -> dict[str, Any]:
    image = services.image
    if question.topics is None:
        topics = [_topic(services, question, topic) for topic in image.topics.values()]
    else:
        topics = [
            _asked_topic(services, question, name, topic_id, errors)
            for name, topic_id in question.topics
        ]
    return {
        "brokers": broker_fields(image, question.listener),
        "cluster_id": services.cluster_id,
        "controller_id": controller_id(image),
        "topics": topics,
        "cluster_authorized_operations": CLUSTER_OPERATIONS
        if question.cluster_operations
        else NOT_ASKED,
    }


def _asked_topic(
    services: Services,
    question: Question,
    name: str | None,
    topic_id: UUID,
    errors: dict[str, KafkaError],
) -> dict[str, Any]:
    image = services.image
    if topic_id != NULL_ID:
        topic = image.topic_with_id(topic_id)
        error = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        topic = image.topics.get(name or "")
        error = error_of_unknown(name or "")
    if topic is not None:
        return _topic(services, question, topic)
    if name in errors:
        error = errors[name].code
    return {
        "error_code": error,
        "name": name if topic_id == NULL_ID else None,
        "topic_id": topic_id,
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": [],
        "topic_authorized_operations": _operations(question) if topic_id == NULL_ID else NOT_ASKED,
    }


def _operations(question: Question) -> int:
    return TOPIC_OPERATIONS if question.topic_operations else NOT_ASKED


def _topic(services: Services, question: Question, topic: TopicImage) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.NONE,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.name in INTERNAL_TOPICS,
        "partitions": [
            partition_fields(services.image, question.listener, index, partition)
            for index, partition in topic.partitions.items()
        ],
        "topic_authorized_operations": _operations(question),
    }
