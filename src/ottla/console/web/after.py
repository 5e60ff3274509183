"""Pages wait for the cluster to be looked at, so that none shows an empty or an outdated one.

A topic or group that was made a moment ago elsewhere is not known yet: the page looks again before
it says that there is none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from ottla.console.web.rendering import context_of

Handler = Callable[[Request], Awaitable[Response]]


def after_first_look(handler: Handler) -> Handler:
    """The handler, once the cluster was looked at for the first time."""

    async def handle(request: Request) -> Response:
        console = context_of(request)
        await console.ready()
        view = console.sampler.view
        topic = request.path_params.get("topic")
        group_id = request.path_params.get("group") or request.query_params.get("id")
        is_unknown = (topic is not None and topic not in view.metadata.topics) or (
            group_id is not None and group_id not in view.groups
        )
        if is_unknown and view.trouble is None:
            await console.changed()
        return await handler(request)

    return handle
