"""The messages of a topic: pages of them, one of them, a live tail, exports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response

from ottla.console.errors import BadRequestError
from ottla.console.filters import FilterError
from ottla.console.numbers import PARTITION_MAX, integer
from ottla.console.records import Record, format_position, tell_troubles
from ottla.console.seeking import PAGE_SIZES, Ask, partitions_of, seek
from ottla.console.tail import Tailed, Tails, TooManyTailsError
from ottla.console.web.pages.topic import topic_page
from ottla.console.web.record_view import payload_view, row_of
from ottla.console.web.rendering import context_of, environment, fragment, query
from ottla.console.web.streams import KEEP_ALIVE_S, STILL_HERE, event, event_stream
from ottla.protocol.errors import KafkaError


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
    ask, problem, status, page = Ask(), "", 200, None
    try:
        ask = Ask.of(request.query_params)
        found = await seek(console.questions, console.sampler.view.metadata, topic, ask)
        page = await console.readers.page(found)
    except (BadRequestError, FilterError) as error:
        problem, status = str(error), 400
    except KafkaError as error:
        problem, status = str(error), 502
    path = f"/topics/{topic}"
    values = {
        "ask": ask,
        "problem": problem,
        "is_bad_request": status == 400,
        "rows": [row_of(record) for record in page.records] if page else [],
        "scanned": page.scanned if page else 0,
        "is_complete": page.is_complete if page else True,
        "unread": tell_troubles(page.troubles) if page else "",
        "since_ms": ask.time_ms() if page and ask.begin == "time" else None,
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
    return topic_page(request, "messages.html", values, tab="messages", status=status)


async def record(request: Request) -> Response:
    """One message in full."""
    console = context_of(request)
    topic = request.path_params["topic"]
    given = request.query_params
    try:
        partition = integer(given.get("partition"), "The partition", most=PARTITION_MAX)
        offset = integer(given.get("offset"), "The offset")
        found = await console.readers.record(topic, partition, offset)
    except BadRequestError as error:
        return fragment("_problem.html", {"problem": str(error)}, status=400)
    except KafkaError as error:
        return fragment("_problem.html", {"problem": str(error)}, status=502)
    if found is None:
        gone = "There is no message at that offset any more."
        return fragment("_problem.html", {"problem": gone}, status=404)
    part = given.get("download")
    if part is not None:
        name = f"{topic}-{partition}-{offset}.{part}"
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        data = _part_of(found, part, given.get("header"))
        return Response(data, media_type="application/octet-stream", headers=headers)
    values = {
        "topic": topic,
        "record": found,
        "key": await asyncio.to_thread(payload_view, found.key),
        "value": await asyncio.to_thread(payload_view, found.value),
        "headers": [(name, payload_view(value)) for name, value in found.headers],
        "is_read_only": console.settings.is_read_only,
    }
    return fragment("_record.html", values)


def _part_of(record: Record, part: str, header: str | None) -> bytes:
    if part == "key":
        return record.key or b""
    if part == "value":
        return record.value or b""
    number = integer(header, "The header", most=PARTITION_MAX)
    if part != "header" or number >= len(record.headers):
        raise BadRequestError("There is no such part of the message.")
    return record.headers[number][1] or b""


async def tail(request: Request) -> Response:
    """Messages as they are written, as server-sent events."""
    console = context_of(request)
    topic = request.path_params["topic"]
    ask = Ask.of(request.query_params)
    template = environment().get_template("_record_rows.html")

    def partitions() -> list[int]:
        return partitions_of(console.sampler.view.metadata, topic, ask.partition)

    def draw(records: list[Record]) -> str:
        return template.render(rows=[row_of(one) for one in reversed(records)], topic=topic)

    wanted = set(partitions())
    tailed = Tailed(
        topic,
        {p: offset for p, offset in ask.position().items() if p in wanted},
        partitions,
        draw,
        ask.predicate(),
        ask.is_committed,
    )
    return event_stream(_tail_events(console.tails, tailed))


async def _tail_events(tails: Tails, tailed: Tailed) -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()
    spoken_at = loop.time()
    trouble: str | None = None
    is_first = True
    yield "retry: 1000\n\n"
    try:
        async for step in tails.follow(tailed):
            if step.trouble != trouble:
                trouble = step.trouble
                yield event("trouble", trouble or "")
                spoken_at = loop.time()
            if step.passed or (is_first and step.position):
                is_first = False  # the first says from where it follows, even if nothing came yet
                cursor = format_position(step.position)
                head = f"{step.passed} {step.shown} {step.skipped} {cursor}"
                yield event("records", f"{head}\n{step.drawn}")
                spoken_at = loop.time()
            elif loop.time() - spoken_at > KEEP_ALIVE_S:
                yield STILL_HERE
                spoken_at = loop.time()
    except TooManyTailsError as error:
        yield event("trouble", str(error))
