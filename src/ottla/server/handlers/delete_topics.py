"""DeleteTopics: by name, and from version 6 on by id as well.

Versions 1 to 6. `delete.topic.enable=false` refuses with TOPIC_DELETION_DISABLED.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from ottla.metadata.topics import decide_delete_topics
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import given
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services

NULL_ID = UUID(int=0)
BY_ID_FROM = 6


async def handle(services: Services, call: Call, request: Any) -> Fields:
    names: list[str] = list(given(request, "topic_names", ()))
    ids: list[UUID] = []
    ambiguous: list[Fields] = []
    topics: Sequence[Any] = given(request, "topics", ())
    for topic in topics:
        topic_id = topic.topic_id or NULL_ID
        if (topic.name is None) == (topic_id == NULL_ID):
            ambiguous.append(
                {
                    "name": topic.name,
                    "topic_id": topic_id,
                    "error_code": ErrorCode.INVALID_REQUEST,
                    "error_message": "A topic is given either by name or by id",
                }
            )
        elif topic.name is not None:
            names.append(topic.name)
        else:
            ids.append(topic_id)
    if not services.config.delete_topic_enable:
        return {"responses": [*ambiguous, *_refused(call.version, names, ids)]}
    deleted = await services.metadata.submit(
        lambda image: decide_delete_topics(image, names=names, topic_ids=ids)
    )
    return {
        "responses": [
            *ambiguous,
            *(
                {
                    "name": result.name,
                    "topic_id": result.topic_id,
                    "error_code": result.error_code,
                    "error_message": result.error_message,
                }
                for result in deleted
            ),
        ]
    }


def _refused(version: int, names: list[str], ids: list[UUID]) -> list[Fields]:
    error = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
    message = "Topics cannot be deleted here: delete.topic.enable is false"
    return [
        {"name": name, "topic_id": topic_id, "error_code": error, "error_message": message}
        for name, topic_id in [*((n, NULL_ID) for n in names), *((None, i) for i in ids)]
    ]
