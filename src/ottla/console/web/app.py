"""The application: routes, static files, and what is answered when something goes wrong."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

from ottla.console.context import ConsoleContext
from ottla.console.errors import BadRequestError
from ottla.console.filters import FilterError
from ottla.console.settings import ConsoleSettings
from ottla.console.web.api.routes import api_routes
from ottla.console.web.rendering import STATIC, page, preload
from ottla.console.web.routes import page_routes
from ottla.console.web.security import LOOPBACK_NAMES, Rules, SecurityMiddleware
from ottla.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

_NOT_FOUND_CODES = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    }
)


# The cluster answers, and will not do what was asked: another question is needed, not patience.
_REFUSED_CODES = frozenset(
    {
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.TOPIC_DELETION_DISABLED,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)


class KeptFiles(StaticFiles):
    """Static files, kept for ever by browsers: their addresses carry the hash of their content."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["cache-control"] = "public, max-age=31536000, immutable"
        return response


def create_app(settings: ConsoleSettings) -> ASGIApp:
    """The console as an ASGI application; its life begins and ends with the application's."""
    console = ConsoleContext(settings)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        await console.start()
        preload()  # while the first look is under way
        try:
            yield
        finally:
            await console.stop()

    rules = Rules(
        console.csrf_token,
        frozenset(name.lower() for name in settings.allowed_hosts),
        settings.host in LOOPBACK_NAMES,
        settings.is_read_only,
    )
    routes: list[BaseRoute] = [
        *page_routes(),
        *api_routes(),
        Mount("/static", KeptFiles(directory=STATIC)),
    ]
    app = Starlette(
        routes=routes,
        exception_handlers={
            BadRequestError: _on_bad_request,
            FilterError: _on_bad_request,
            KafkaError: _on_kafka_error,
            HTTPException: _on_http_error,
            Exception: _on_defect,
        },
        lifespan=lifespan,
    )
    app.state.console = console
    return SecurityMiddleware(app, rules)


async def _on_bad_request(request: Request, error: Exception) -> Response:
    return _answer(request, 400, str(error))


async def _on_kafka_error(request: Request, error: Exception) -> Response:
    code = getattr(error, "code", None)
    status = 404 if code in _NOT_FOUND_CODES else 422 if code in _REFUSED_CODES else 502
    return _answer(request, status, str(error))


async def _on_http_error(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 500)
    return _answer(request, status, str(getattr(error, "detail", "") or error))


async def _on_defect(request: Request, error: Exception) -> Response:
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return _answer(request, 500, "This is a defect in the console; its log says where.")


def _answer(request: Request, status: int, sentence: str) -> Response:
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": sentence}, status)
    return page(
        request, "error.html", {"status": status, "sentence": sentence}, section="", status=status
    )
