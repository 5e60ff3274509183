"""Messages as a file, for the page and for the API: whole, or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ottla.client import Unreachable
from ottla.console.errors import BadRequestError
from ottla.console.numbers import integer
from ottla.console.records import tell_troubles
from ottla.console.seeking import Ask, seek
from ottla.console.web.record_view import csv_header, csv_line, json_line
from ottla.console.web.rendering import context_of

# What one export gives at most: minutes of download, not days.
EXPORT_RECORDS_MAX = 100_000
FORMATS = ("csv", "jsonl")
_EXPORT_PAGE = 1_000


async def export(request: Request) -> Response:
    """What a page of messages shows and all that follows it."""
    console = context_of(request)
    topic = request.path_params["topic"]
    file_format = request.query_params.get("format", "jsonl")
    if file_format not in FORMATS:
        raise BadRequestError("'format' is csv or jsonl.")
    ask = Ask.of(request.query_params)._replace(size=_EXPORT_PAGE)
    limit = integer(
        request.query_params.get("limit"),
        "The limit",
        default=EXPORT_RECORDS_MAX,
        least=1,
        most=EXPORT_RECORDS_MAX,
    )
    found = await seek(console.questions, console.sampler.view.metadata, topic, ask)
    _refuse_part(found.troubles)

    async def lines() -> AsyncIterator[str]:
        remaining, current = limit, found
        if file_format == "csv":
            yield csv_header()
        while remaining > 0 and current.position:
            page = await console.readers.page(
                current._replace(page_size=min(_EXPORT_PAGE, remaining))
            )
            # The file breaks off, and the browser says so, rather than look as if it were whole.
            _refuse_part(page.troubles)
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


def _refuse_part(troubles: Mapping[int, str]) -> None:
    if troubles:
        raise Unreachable(tell_troubles(troubles))
