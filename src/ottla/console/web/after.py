"""Pages wait for the first look at the cluster, so that none of them shows an empty one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from ottla.console.web.rendering import context_of

Handler = Callable[[Request], Awaitable[Response]]


def after_first_look(handler: Handler) -> Handler:
    """The handler, once the cluster was looked at for the first time."""

    async def handle(request: Request) -> Response:
        await context_of(request).ready()
        return await handler(request)

    return handle
