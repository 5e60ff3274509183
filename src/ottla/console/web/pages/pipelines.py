"""Spark pipelines: the graph of topics and queries, rates, and the last error."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ottla.console.pipelines import picture
from ottla.console.web.rendering import context_of, page


async def pipelines(request: Request) -> Response:
    digest = context_of(request).digest
    rates = {name: row.rate for name, row in digest.topics.items()}
    values = {"pipelines": digest.pipelines, "picture": picture(digest.pipelines, rates)}
    return page(request, "pipelines.html", values, section="pipelines")
