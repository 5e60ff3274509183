"""Spark pipelines: the graph of topics and queries, rates, and the last error."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from ottla.console.context import ConsoleContext
from ottla.console.pipelines import PipelineRow, picture, read_pipelines
from ottla.console.web.rendering import context_of, page


async def known_pipelines(console: ConsoleContext) -> list[PipelineRow]:
    """The pipelines, read from disk beside the event loop."""
    return await asyncio.to_thread(read_pipelines, console.settings.pipelines_directory)


async def pipelines(request: Request) -> Response:
    console = context_of(request)
    rows = await known_pipelines(console)
    rates = {name: row.rate for name, row in console.digest.topics.items()}
    values = {"pipelines": rows, "picture": picture(rows, rates)}
    return page(request, "pipelines.html", values, section="pipelines")
