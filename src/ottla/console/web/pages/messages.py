"""The messages of a topic: pages of them, one of them, a live tail, exports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ottla.console.browse import Query
from ottla.console.errors import BadRequestError
from ottla.console.filters import FilterError
from ottla.console.records import format_position
from ottla.console.seeking import BEGINNINGS, Ask, bounds, partitions_of, seek
from ottla.console.tail import TooManyTailsError
from ottla.console.web.pages.topic import topic_page
from ottla.console.web.parameters import PAGE_SIZES, integer
from ottla.console.web.record_view import csv_header, csv_line, json_line, payload_view, row_of
from ottla.console.web.rendering import context_of, environment, fragment, query
from ottla.protocol.errors import KafkaError

# What one export gives at most: minutes of download, not days.
EXPORT_RECORDS_MAX = 100_000
_EXPORT_PAGE = 1_000
# Proxies and browsers give up a stream that is silent for longer.
KEEP_ALIVE_S = 15.0


def ask_of(request: Request) -> Ask:
    """What the address asks for."""
    given = request.query_params
    begin = given.get("from", "newest")
    if begin not in BEGINNINGS:
        raise BadRequestError(f"'from' is one of {', '.join(BEGINNINGS)}.")
    return Ask(
        begin,
        given.get("partition", ""),
        given.get("offset", ""),
        given.get("time", ""),
        given.get("q", ""),
        given.get("filter", ""),
        given.get("cursor", ""),
        given.get("isolation") == "committed",
        integer(given.get("size"), "The page size", default=PAGE_SIZES[0], least=1, most=500),
    )


def ask_address(path: str, ask: Ask, **changes: object) -> str:
    """The address that asks this, with some of it changed."""
    parameters: dict[str, object] = {
        "from": None if ask.begin == "newest" else ask.begin,
        "partition": ask.partition,
        "offset": ask.offset if ask.begin == "offset" else None,
        "time": ask.time if ask.begin == "time" else None,
        "q": ask.search,
        "filter": ask.expression,
        "isolation": "committed" if ask.is_committed else None,
        "size": None if ask.size == PAGE_SIZES[0] else ask.size,
    }
    return query(path, **{**parameters, **changes})


async def messages(request: Request) -> Response:
    """One page of messages."""
    console = context_of(request)
    topic = request.path_params["topic"]
    ask, problem, page = Ask(), "", None
    try:
        ask = ask_of(request)
        found = await seek(console.questions, console.sampler.view.metadata, topic, ask)
        page = await console.readers.page(found)
    except (BadRequestError, FilterError, KafkaError) as error:
        problem = str(error)
    path = f"/topics/{topic}"
    values = {
        "ask": ask,
        "problem": problem,
        "rows": [row_of(record) for record in page.records] if page else [],
        "scanned": page.scanned if page else 0,
        "is_complete": page.is_complete if page else True,
        "older_href": ask_address(path, ask, cursor=format_position(page.position))
        if page and page.position
        else None,
        "first_href": ask_address(path, ask) if ask.cursor else None,
        "tail_href": query(
            f"{path}/tail",
            partition=ask.partition,
            q=ask.search,
            filter=ask.expression,
            isolation="committed" if ask.is_committed else None,
        ),
        "csv_href": ask_address(f"{path}/export", ask, format="csv", cursor=ask.cursor),
        "jsonl_href": ask_address(f"{path}/export", ask, format="jsonl", cursor=ask.cursor),
        "page_sizes": PAGE_SIZES,
    }
    return topic_page(
        request, "messages.html", values, tab="messages", status=400 if problem else 200
    )


async def record(request: Request) -> Response:
    """One message in full."""
    console = context_of(request)
    topic = request.path_params["topic"]
    try:
        partition = integer(request.query_params.get("partition"), "The partition", most=2**31 - 1)
        offset = integer(request.query_params.get("offset"), "The offset")
        found = await console.readers.record(topic, partition, offset)
    except (BadRequestError, KafkaError) as error:
        return fragment("_problem.html", {"problem": str(error)}, status=400)
    if found is None:
        gone = "There is no message at that offset any more."
        return fragment("_problem.html", {"problem": gone}, status=404)
    part = request.query_params.get("download")
    if part in ("key", "value"):
        data = (found.key if part == "key" else found.value) or b""
        name = f"{topic}-{partition}-{offset}.{part}"
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(data, media_type="application/octet-stream", headers=headers)
    values = {
        "topic": topic,
        "record": found,
        "key": payload_view(found.key),
        "value": payload_view(found.value),
        "headers": [(name, payload_view(value)) for name, value in found.headers],
        "is_read_only": console.settings.is_read_only,
    }
    return fragment("_record.html", values)


async def export(request: Request) -> Response:
    """What the page shows and all that follows it, as a file."""
    console = context_of(request)
    topic = request.path_params["topic"]
    file_format = request.query_params.get("format", "jsonl")
    if file_format not in ("csv", "jsonl"):
        raise BadRequestError("'format' is csv or jsonl.")
    ask = ask_of(request)._replace(size=_EXPORT_PAGE)
    limit = integer(
        request.query_params.get("limit"),
        "The limit",
        default=EXPORT_RECORDS_MAX,
        least=1,
        most=EXPORT_RECORDS_MAX,
    )
    found = await seek(console.questions, console.sampler.view.metadata, topic, ask)

    async def lines() -> AsyncIterator[str]:
        remaining, current = limit, found
        if file_format == "csv":
            yield csv_header()
        while remaining > 0 and current.position:
            page = await console.readers.page(
                current._replace(page_size=min(_EXPORT_PAGE, remaining))
            )
            remaining -= len(page.records)
            if page.records:
                yield "".join(
                    csv_line(one) if file_format == "csv" else json_line(topic, one)
                    for one in page.records
                )
            current = current._replace(position=page.position)

    media_type = "text/csv" if file_format == "csv" else "application/jsonl"
    headers = {"content-disposition": f'attachment; filename="{topic}.{file_format}"'}
    return StreamingResponse(lines(), media_type=f"{media_type}; charset=utf-8", headers=headers)


async def tail(request: Request) -> Response:
    """Messages as they are written, as server-sent events."""
    console = context_of(request)
    topic = request.path_params["topic"]
    metadata = console.sampler.view.metadata
    ask = ask_of(request)
    if ask.cursor:
        start = await seek(console.questions, metadata, topic, ask._replace(begin="oldest"))
    else:
        partitions = partitions_of(metadata, topic, ask.partition)
        ranges = await bounds(
            console.questions, metadata, topic, partitions, is_committed=ask.is_committed
        )
        ends = {partition: found.end for partition, found in ranges.items()}
        start = Query(topic, ranges, ends, False, 1, ask.predicate(), ask.is_committed)
    headers = {"x-accel-buffering": "no"}
    return StreamingResponse(
        _tail_events(request, start), media_type="text/event-stream", headers=headers
    )


async def _tail_events(request: Request, start: Query) -> AsyncIterator[str]:
    console = context_of(request)
    template = environment().get_template("_record_rows.html")
    loop = asyncio.get_running_loop()
    spoken_at = loop.time()
    yield "retry: 1000\n\n"
    try:
        async for step in console.tails.follow(
            start.topic,
            start.position,
            predicate=start.predicate,
            is_committed=start.is_committed,
        ):
            if step.trouble is not None:
                yield event("trouble", step.trouble)
            elif step.passed:
                rows = [row_of(one) for one in step.records]
                html = template.render(rows=reversed(rows), topic=start.topic)
                cursor = format_position(step.position)
                head = f"{step.passed} {len(rows)} {step.skipped} {cursor}"
                yield event("records", f"{head}\n{html}")
            elif loop.time() - spoken_at > KEEP_ALIVE_S:
                yield ": still here\n\n"
            else:
                continue
            spoken_at = loop.time()
    except TooManyTailsError as error:
        yield event("trouble", str(error))


def event(name: str, data: str) -> str:
    """One server-sent event; every line of the data is a field of its own."""
    lines = data.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return f"event: {name}\n" + "".join(f"data: {line}\n" for line in lines) + "\n"
