"""The pulse of a page: an event whenever the cluster was looked at again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ottla.console.context import ConsoleContext
from ottla.console.web.rendering import context_of

# Proxies and browsers give up a stream that is silent for longer.
KEEP_ALIVE_S = 15.0


async def pulse(request: Request) -> Response:
    """`tick` after each look at the cluster; pages then ask for what they show."""
    headers = {"x-accel-buffering": "no"}
    return StreamingResponse(
        _ticks(context_of(request)), media_type="text/event-stream", headers=headers
    )


async def _ticks(console: ConsoleContext) -> AsyncIterator[str]:
    yield "retry: 2000\n\n"
    while True:
        try:
            async with asyncio.timeout(KEEP_ALIVE_S):
                await console.sampler.next_look()
        except TimeoutError:
            yield ": still here\n\n"
            continue
        state = "bad" if console.sampler.view.trouble else "good"
        yield f"event: tick\ndata: {state}\n\n"
