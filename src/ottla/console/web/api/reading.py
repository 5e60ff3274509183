"""The part of the API that only looks."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ottla.console.errors import BadRequestError
from ottla.console.hanging import OLDER_DEFAULT, find_hanging
from ottla.console.history import History
from ottla.console.kafka.questions import BROKER_RESOURCE, TOPIC_RESOURCE
from ottla.console.numbers import PARTITION_MAX, integer
from ottla.console.partitions import PartitionRow, partition_rows
from ottla.console.records import format_position
from ottla.console.sampler import CLUSTER_SERIES
from ottla.console.seeking import Ask, parse_duration_ms, seek
from ottla.console.web.api.spec import as_json, partitions_as_json
from ottla.console.web.navigation import SECTIONS
from ottla.console.web.parameters import read_body
from ottla.console.web.record_view import json_object
from ottla.console.web.rendering import context_of, query
from ottla.protocol.errors import ErrorCode, KafkaError

RESULTS_MAX = 12
SERIES_MAX = 20


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


def known_broker(request: Request) -> str:
    broker_id = integer(str(request.path_params["broker_id"]), "The broker", most=PARTITION_MAX)
    if broker_id not in context_of(request).sampler.view.metadata.brokers:
        raise HTTPException(404, f"There is no broker {broker_id}.")
    return str(broker_id)


async def token(request: Request) -> Response:
    return JSONResponse({"token": context_of(request).csrf_token})


async def health(request: Request) -> Response:
    console = context_of(request)
    sampler = console.sampler
    return JSONResponse(
        {
            "is_reachable": bool(sampler.looks) and sampler.view.trouble is None,
            "trouble": sampler.view.trouble,
            "stale_s": sampler.stale_s,
            "checks": as_json(console.digest.checks),
        }
    )


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
    return JSONResponse({"topics": as_json(list(context_of(request).digest.topics.values()))})


async def topic(request: Request) -> Response:
    console = context_of(request)
    name = known_topic(request)
    rows = await partition_rows(console.questions, console.sampler, name)
    return JSONResponse(
        {
            **as_json(console.digest.topics[name]),
            "partitions": [_partition(row) for row in rows],
            "groups": as_json(console.digest.groups_of_topic(name)),
        }
    )


def _partition(row: PartitionRow) -> dict[str, Any]:
    fields = as_json(row)
    return {**fields.pop("partition"), **fields}


async def messages(request: Request) -> Response:
    console = context_of(request)
    name = known_topic(request)
    ask = Ask.of(request.query_params)
    found = await seek(console.questions, console.sampler.view.metadata, name, ask)
    page = await console.readers.page(found)
    return JSONResponse(
        {
            "messages": [json_object(name, record) for record in page.records],
            "scanned": page.scanned,
            "is_complete": page.is_complete,
            "next_cursor": format_position(page.position) or None,
            "unread": [
                {"partition": partition, "reason": reason}
                for partition, reason in sorted(page.troubles.items())
            ],
        }
    )


async def message(request: Request) -> Response:
    console = context_of(request)
    name = known_topic(request)
    partition = integer(request.path_params["partition"], "The partition", most=PARTITION_MAX)
    offset = integer(request.path_params["offset"], "The offset")
    found = await console.readers.record(name, partition, offset)
    if found is None:
        raise HTTPException(404, "There is no message at that offset.")
    return JSONResponse(json_object(name, found))


async def topic_configs(request: Request) -> Response:
    entries = await context_of(request).questions.configs(TOPIC_RESOURCE, known_topic(request))
    return JSONResponse({"configs": as_json(entries)})


async def broker_configs(request: Request) -> Response:
    console = context_of(request)
    entries = await console.questions.configs(BROKER_RESOURCE, known_broker(request))
    return JSONResponse({"configs": as_json(entries)})


async def groups(request: Request) -> Response:
    return JSONResponse({"groups": as_json(list(context_of(request).digest.groups.values()))})


async def group(request: Request) -> Response:
    console = context_of(request)
    group_id = known_group(request)
    description = await console.describe_group(group_id)
    members = [
        {
            **as_json(member),
            "assignment": partitions_as_json(member.assignment),
            "target": None if member.target is None else partitions_as_json(member.target),
        }
        for member in description.members
    ]
    return JSONResponse(
        {
            **as_json(console.digest.groups[group_id]),
            "assignor": description.assignor,
            "epoch": description.epoch,
            "members": members,
            "partitions": as_json(console.digest.partitions_of_group(group_id, description)),
        }
    )


async def brokers(request: Request) -> Response:
    console = context_of(request)
    return JSONResponse(
        {
            "brokers": as_json(console.digest.brokers),
            "log_directories": as_json(console.sampler.view.log_directories),
        }
    )


async def quorum(request: Request) -> Response:
    return JSONResponse(as_json(await context_of(request).questions.quorum()))


async def transactions(request: Request) -> Response:
    console = context_of(request)
    told = await console.transactions.transactions(console.sampler.view.metadata)
    found = [
        {**as_json(one), "partitions": partitions_as_json(one.partitions)} for one in told.found
    ]
    return JSONResponse({"transactions": found, "silent_brokers": _silent(told.troubles)})


async def hanging_transactions(request: Request) -> Response:
    console = context_of(request)
    found = await find_hanging(
        console.transactions,
        console.sampler.view.metadata,
        now_ms=int(time.time() * 1000),
        age_ms_min=parse_duration_ms(request.query_params.get("older", OLDER_DEFAULT)),
    )
    return JSONResponse(
        {
            "hanging": as_json(found.found),
            "partition_count": found.partition_count,
            "untold_count": found.untold_count,
            "silent_brokers": _silent(found.troubles),
        }
    )


def _silent(troubles: Mapping[int, str]) -> list[dict[str, Any]]:
    return [{"broker_id": broker, "reason": why} for broker, why in sorted(troubles.items())]


async def pipelines(request: Request) -> Response:
    return JSONResponse({"pipelines": as_json(context_of(request).digest.pipelines)})


async def events(request: Request) -> Response:
    return JSONResponse({"events": as_json(list(context_of(request).sampler.events))})


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

    for section in SECTIONS:
        offer(section.label, "page", section.href, 0 if not wanted else 2)
    for name in view.metadata.topics:
        offer(name, "topic", f"/topics/{name}", 1)
    for group_id in view.groups:
        offer(group_id, "group", query("/groups/view", id=group_id), 1)
    found.sort(key=lambda entry: entry[:2])
    return JSONResponse({"results": [entry for _, _, entry in found[:RESULTS_MAX]]})


async def json_body(request: Request) -> dict[str, Any]:
    """The object in the body."""
    try:
        document = json.loads(await read_body(request) or b"{}")
    except (ValueError, RecursionError):
        raise BadRequestError("The body is not JSON.") from None
    if not isinstance(document, dict):
        raise BadRequestError("The body is not a JSON object.")
    return document
