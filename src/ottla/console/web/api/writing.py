"""The part of the API that changes something; every request carries the token."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ottla.console.errors import BadRequestError
from ottla.console.kafka.questions import BROKER_RESOURCE, TOPIC_RESOURCE
from ottla.console.numbers import PARTITION_MAX
from ottla.console.resetting import plan_reset
from ottla.console.web.api.reading import json_body, known_broker, known_group, known_topic
from ottla.console.web.api.spec import as_json, partitions_as_json
from ottla.console.web.rendering import context_of


async def create_topic(request: Request) -> Response:
    console = context_of(request)
    body = await json_body(request)
    configs = body.get("configs") or {}
    if not isinstance(configs, dict):
        raise BadRequestError("'configs' is an object of settings.")
    is_dry_run = body.get("dry_run") is True
    await console.changes.create_topic(
        _text(body, "name"),
        _number(body, "partitions", -1, 100_000),
        _number(body, "replication_factor", -1, 1_000),
        {str(name): str(value) for name, value in configs.items()},
        is_dry_run=is_dry_run,
    )
    if not is_dry_run:
        await console.changed()
    return JSONResponse({"name": body["name"], "is_dry_run": is_dry_run})


async def delete_topic(request: Request) -> Response:
    console = context_of(request)
    topic = known_topic(request)
    await console.changes.delete_topic(topic)
    await console.changed()
    return JSONResponse({"name": topic})


async def produce(request: Request) -> Response:
    console = context_of(request)
    topic = known_topic(request)
    body = await json_body(request)
    headers = body.get("headers") or []
    if not isinstance(headers, list) or not all(isinstance(one, dict) for one in headers):
        raise BadRequestError("'headers' is a list of {key, value}.")
    partition = body.get("partition")
    delivered = await console.producer.produce(
        topic,
        partition=None if partition is None else _number(body, "partition", 0, PARTITION_MAX),
        key=_bytes(body, "key"),
        value=_bytes(body, "value"),
        headers=[(_text(one, "key"), _bytes(one, "value")) for one in headers],
    )
    console.sampler.look_soon()
    return JSONResponse(delivered._asdict())


async def add_partitions(request: Request) -> Response:
    console = context_of(request)
    topic = known_topic(request)
    body = await json_body(request)
    count = _number(body, "count", 1, 100_000)
    is_dry_run = body.get("dry_run") is True
    await console.changes.add_partitions(topic, count, is_dry_run=is_dry_run)
    if not is_dry_run:
        await console.changed()
    return JSONResponse({"name": topic, "partitions": count, "is_dry_run": is_dry_run})


async def alter_topic_config(request: Request) -> Response:
    return await _alter_config(request, TOPIC_RESOURCE, known_topic(request))


async def alter_broker_config(request: Request) -> Response:
    return await _alter_config(request, BROKER_RESOURCE, known_broker(request))


async def _alter_config(request: Request, resource_type: int, resource: str) -> Response:
    body = await json_body(request)
    value = body.get("value")
    is_dry_run = body.get("dry_run") is True
    await context_of(request).changes.alter_config(
        resource_type,
        resource,
        _text(body, "name"),
        None if value is None else str(value),
        is_dry_run=is_dry_run,
    )
    return JSONResponse({"name": body["name"], "value": value, "is_dry_run": is_dry_run})


async def reset_offsets(request: Request) -> Response:
    """A dry run unless the body says `"dry_run": false`."""
    console = context_of(request)
    group_id = known_group(request)
    body = await json_body(request)
    planned = await plan_reset(
        console.questions,
        console.sampler.view,
        group_id,
        strategy=_text(body, "strategy"),
        amount=str(body.get("amount", "")),
        time=str(body.get("time", "")),
        topic=str(body.get("topic", "")),
    )
    is_dry_run = body.get("dry_run") is not False
    if not is_dry_run:
        await console.changes.commit_offsets(
            group_id, {(move.topic, move.partition): move.after for move in planned.moves}
        )
        console.sampler.note(
            "console", "warn", f"Group {group_id}: offsets were reset", group_id, "group"
        )
        await console.changed()
    return JSONResponse(
        {
            "is_dry_run": is_dry_run,
            "moves": as_json(planned.moves),
            "untold": partitions_as_json(planned.untold),
        }
    )


async def delete_group(request: Request) -> Response:
    console = context_of(request)
    group_id = known_group(request)
    await console.changes.delete_group(group_id)
    await console.changed()
    return JSONResponse({"group_id": group_id})


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise BadRequestError(f"'{name}' is missing.")
    return value


def _number(body: dict[str, Any], name: str, least: int, most: int) -> int:
    value = body.get(name, least)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadRequestError(f"'{name}' is a whole number from {least} to {most}.")
    return value


def _bytes(body: dict[str, Any], name: str) -> bytes | None:
    encoded = body.get(f"{name}_base64")
    if encoded is not None:
        try:
            return base64.b64decode(str(encoded), validate=True)
        except binascii.Error:
            raise BadRequestError(f"'{name}_base64' is not Base64.") from None
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise BadRequestError(f"'{name}' is a string, or null.")
    return None if value is None else value.encode()
