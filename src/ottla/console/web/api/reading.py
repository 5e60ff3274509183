"""The part of the API that only looks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ottla.console.errors import BadRequestError
from ottla.console.history import History
from ottla.console.kafka.questions import BROKER_RESOURCE, TOPIC_RESOURCE
from ottla.console.records import format_position
from ottla.console.sampler import CLUSTER_SERIES
from ottla.console.seeking import seek
from ottla.console.web.pages.groups import lag_rows
from ottla.console.web.pages.messages import ask_of
from ottla.console.web.pages.pipelines import known_pipelines
from ottla.console.web.record_view import json_object
from ottla.console.web.rendering import context_of, query
from ottla.protocol.errors import ErrorCode, KafkaError

RESULTS_MAX = 12
SERIES_MAX = 20
_PAGES = (
    ("Overview", "/"),
    ("Topics", "/topics"),
    ("Groups", "/groups"),
    ("Brokers", "/brokers"),
    ("Quorum", "/quorum"),
    ("Transactions", "/transactions"),
    ("Pipelines", "/pipelines"),
)


def known_topic(request: Request) -> str:
    topic = str(request.path_params["topic"])
    if topic not in context_of(request).sampler.view.metadata.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {topic}.")
    return topic


def known_group(request: Request) -> str:
    group_id = str(request.path_params["group"])
    if group_id not in context_of(request).sampler.view.groups:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"There is no group {group_id}.")
    return group_id


async def token(request: Request) -> Response:
    return JSONResponse({"token": context_of(request).csrf_token})


async def health(request: Request) -> Response:
    console = context_of(request)
    checks = [check._asdict() for check in console.digest.checks]
    is_reachable = bool(console.sampler.looks) and console.sampler.view.trouble is None
    return JSONResponse({"is_reachable": is_reachable, "checks": checks})


async def cluster(request: Request) -> Response:
    console = context_of(request)
    metadata = console.sampler.view.metadata
    newest = console.sampler.cluster.newest
    return JSONResponse(
        {
            "cluster_id": metadata.cluster_id,
            "controller_id": metadata.controller_id,
            "brokers": len(metadata.brokers),
            "topics": len(metadata.topics),
            "groups": len(console.sampler.view.groups),
            **{name: newest(name) for name in CLUSTER_SERIES},
        }
    )


async def topics(request: Request) -> Response:
    rows = context_of(request).digest.topics.values()
    return JSONResponse({"topics": [row._asdict() for row in rows]})


async def topic(request: Request) -> Response:
    console = context_of(request)
    name = known_topic(request)
    view = console.sampler.view
    partitions = [
        {
            **partition._asdict(),
            "start_offset": view.start_offsets.get((name, partition.number)),
            "high_watermark": view.end_offsets.get((name, partition.number)),
            "size_bytes": view.sizes.get((name, partition.number)),
            "rate": console.sampler.partition_rates.get((name, partition.number), 0.0),
        }
        for partition in view.metadata.topics[name].partitions
    ]
    groups = [row._asdict() for row in console.digest.groups_of_topic(name)]
    found = {**console.digest.topics[name]._asdict(), "partitions": partitions, "groups": groups}
    return JSONResponse(found)


async def messages(request: Request) -> Response:
    console = context_of(request)
    name = known_topic(request)
    found = await seek(console.questions, console.sampler.view.metadata, name, ask_of(request))
    page = await console.readers.page(found)
    return JSONResponse(
        {
            "messages": [json_object(name, record) for record in page.records],
            "scanned": page.scanned,
            "is_complete": page.is_complete,
            "next_cursor": format_position(page.position) or None,
        }
    )


async def topic_configs(request: Request) -> Response:
    entries = await context_of(request).questions.configs(TOPIC_RESOURCE, known_topic(request))
    return JSONResponse({"configs": [entry._asdict() for entry in entries]})


async def broker_configs(request: Request) -> Response:
    console = context_of(request)
    broker_id = str(request.path_params["broker_id"])
    if not broker_id.isdecimal() or int(broker_id) not in console.sampler.view.metadata.brokers:
        raise BadRequestError(f"There is no broker {broker_id}.")
    entries = await console.questions.configs(BROKER_RESOURCE, broker_id)
    return JSONResponse({"configs": [entry._asdict() for entry in entries]})


async def groups(request: Request) -> Response:
    rows = context_of(request).digest.groups.values()
    return JSONResponse({"groups": [row._asdict() for row in rows]})


async def group(request: Request) -> Response:
    console = context_of(request)
    group_id = known_group(request)
    description = await console.describe_group(group_id)
    members = [
        {
            **member._asdict(),
            "assignment": _partitions(member.assignment),
            "target": None if member.target is None else _partitions(member.target),
        }
        for member in description.members
    ]
    partitions = [row._asdict() for row in lag_rows(console, group_id, description)]
    found = console.digest.groups[group_id]._asdict()
    return JSONResponse({**found, "members": members, "partitions": partitions})


async def brokers(request: Request) -> Response:
    console = context_of(request)
    directories = console.sampler.view.log_directories
    return JSONResponse(
        {
            "brokers": [row._asdict() for row in console.digest.brokers],
            "log_directories": [one._asdict() for one in directories],
        }
    )


async def quorum(request: Request) -> Response:
    found = await context_of(request).questions.quorum()
    return JSONResponse(
        {
            **found._asdict(),
            "voters": [one._asdict() for one in found.voters],
            "observers": [one._asdict() for one in found.observers],
        }
    )


async def transactions(request: Request) -> Response:
    console = context_of(request)
    found = await console.questions.transactions(console.sampler.view.metadata)
    return JSONResponse(
        {
            "transactions": [
                {**one._asdict(), "partitions": _partitions(one.partitions)} for one in found
            ]
        }
    )


async def pipelines(request: Request) -> Response:
    rows = await known_pipelines(context_of(request))
    return JSONResponse(
        {
            "pipelines": [
                {**row._asdict(), "queries": [one._asdict() for one in row.queries]} for row in rows
            ]
        }
    )


async def events(request: Request) -> Response:
    return JSONResponse({"events": [one._asdict() for one in context_of(request).sampler.events]})


async def history(request: Request) -> Response:
    """What charts draw."""
    sampler = context_of(request).sampler
    given = request.query_params
    if given.get("group") is not None:
        return _series(sampler.group_lags, given.getlist("group"))
    if given.get("topic") is not None:
        return _series(sampler.topic_rates, given.getlist("topic"))
    names = given.getlist("series") or list(CLUSTER_SERIES)
    if unknown := [name for name in names if name not in CLUSTER_SERIES]:
        raise BadRequestError(f"'{unknown[0]}' is not one of {', '.join(CLUSTER_SERIES)}.")
    return _series(sampler.cluster, names)


def _series(kept: History, names: Sequence[str]) -> Response:
    names = names[:SERIES_MAX]
    times, columns = kept.series(names)
    series = [
        {"label": name, "values": values} for name, values in zip(names, columns, strict=True)
    ]
    return JSONResponse({"times": times, "series": series})


async def search(request: Request) -> Response:
    """Topics, groups and pages by a part of their name; those that begin with it first."""
    console = context_of(request)
    wanted = request.query_params.get("q", "").strip().casefold()
    view = console.sampler.view
    found: list[tuple[bool, int, dict[str, Any]]] = []

    def offer(name: str, kind: str, href: str, rank: int) -> None:
        folded = name.casefold()
        if wanted in folded:
            entry = {"name": name, "kind": kind, "href": href}
            found.append((not folded.startswith(wanted), rank, entry))

    for label, href in _PAGES:
        offer(label, "page", href, 0 if not wanted else 2)
    for name in view.metadata.topics:
        offer(name, "topic", f"/topics/{name}", 1)
    for group_id in view.groups:
        offer(group_id, "group", query("/groups/view", id=group_id), 1)
    found.sort(key=lambda entry: entry[:2])
    return JSONResponse({"results": [entry for _, _, entry in found[:RESULTS_MAX]]})


def _partitions(found: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partition": partition} for topic, partition in found]


async def json_body(request: Request) -> dict[str, Any]:
    """The object in the body."""
    from ottla.console.web.parameters import read_body

    try:
        document = json.loads(await read_body(request) or b"{}")
    except (ValueError, RecursionError):
        raise BadRequestError("The body is not JSON.") from None
    if not isinstance(document, dict):
        raise BadRequestError("The body is not a JSON object.")
    return document
