"""Every address of the console's pages, in one table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ottla.console.web.pages import live, messages, topic, topics
from ottla.console.web.rendering import context_of

Handler = Callable[[Request], Awaitable[Response]]

_PAGES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/topics", topics.topics),
    ("POST", "/topics", topics.create),
    ("GET", "/topics/{topic}", messages.messages),
    ("GET", "/topics/{topic}/record", messages.record),
    ("GET", "/topics/{topic}/export", messages.export),
    ("GET", "/topics/{topic}/tail", messages.tail),
    ("GET", "/topics/{topic}/partitions", topic.partitions),
    ("POST", "/topics/{topic}/partitions", topic.add_partitions),
    ("GET", "/topics/{topic}/configs", topic.configs),
    ("POST", "/topics/{topic}/configs", topic.change_config),
    ("GET", "/topics/{topic}/consumers", topic.consumers),
    ("GET", "/topics/{topic}/produce", topic.produce_form),
    ("POST", "/topics/{topic}/produce", topic.produce),
    ("POST", "/topics/{topic}/delete", topic.delete),
    ("GET", "/pulse", live.pulse),
)


def page_routes() -> list[BaseRoute]:
    return [
        Route(path, after_first_look(handler), methods=[method]) for method, path, handler in _PAGES
    ]


def after_first_look(handler: Handler) -> Handler:
    """The handler, once the cluster was looked at for the first time."""

    async def handle(request: Request) -> Response:
        await context_of(request).ready()
        return await handler(request)

    return handle
