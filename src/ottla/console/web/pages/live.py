"""The moving parts that every page has: the pulse, the state of the cluster, the heads of topics
and groups.

Each tick of an open page asks for these. They read what the sampler knows and ask the cluster for
nothing, so that an idle tab with a filter does not search again every two seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response

from ottla.console.context import ConsoleContext
from ottla.console.web.pages.topic import head_values
from ottla.console.web.rendering import context_of, frame_values, part, reload_page
from ottla.console.web.streams import KEEP_ALIVE_S, STILL_HERE, event, event_stream


async def pulse(request: Request) -> Response:
    """`tick` after each look at the cluster; pages then ask for what they show."""
    return event_stream(_ticks(context_of(request)))


async def _ticks(console: ConsoleContext) -> AsyncIterator[str]:
    yield "retry: 2000\n\n"
    while True:
        try:
            async with asyncio.timeout(KEEP_ALIVE_S):
                await console.sampler.next_look()
        except TimeoutError:
            yield STILL_HERE
        else:
            yield event("tick", "")


async def state(request: Request) -> Response:
    """Whether all is well, and a banner if the cluster does not answer."""
    return part("base.html", "live_state", frame_values(context_of(request)))


async def topic_head(request: Request) -> Response:
    console = context_of(request)
    topic = request.path_params["topic"]
    if topic not in console.digest.topics:
        return reload_page()
    return part("_topic_frame.html", "live_head", head_values(console, topic))


async def group_head(request: Request) -> Response:
    console = context_of(request)
    row = console.digest.groups.get(request.query_params.get("id", ""))
    if row is None:
        return reload_page()
    return part("group.html", "live_head", {"row": row})
