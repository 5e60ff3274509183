"""Who may ask for what: host, origin, token and read-only mode, before any page runs.

A console on the loopback interface is reachable by every page that its user's browser shows: by a
form that posts to it, or by a name that an attacker points at 127.0.0.1. So a request must name a
host that is meant (no DNS rebinding), must come from the console's own pages when it changes
something, and must carry the token that only those pages hold. Answers forbid everything a browser
would otherwise do with hostile payloads: no script, style, frame or form but the console's own.

Pure decisions in `refusal`; the middleware is thin.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from ipaddress import ip_address
from time import perf_counter, process_time
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
TOKEN_HEADER = "x-csrf-token"
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "font-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)

HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Rules(NamedTuple):
    token: str
    allowed_hosts: frozenset[str]
    is_loopback: bool
    is_read_only: bool


def refusal(rules: Rules, method: str, headers: Mapping[str, str]) -> tuple[int, str] | None:
    """Why a request is refused, as a status and a sentence; None if it is not."""
    host = host_name(headers.get("host", ""))
    if not is_allowed_host(rules, host):
        return 421, "This console does not answer to that host name; see --allow-host."
    if method in SAFE_METHODS:
        return None
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return 403, "Changes are taken from the console's own pages only."
    origin = headers.get("origin")
    if origin is not None and not is_own_origin(rules, origin, headers.get("host", "")):
        return 403, "Changes are taken from the console's own pages only."
    if rules.is_read_only:
        return 403, "This console is read-only."
    if not secrets.compare_digest(headers.get(TOKEN_HEADER, "").encode(), rules.token.encode()):
        return 403, "The page is out of date: reload it and try again."
    return None


def host_name(host: str) -> str:
    """The name of a Host header, without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def is_own_origin(rules: Rules, origin: str, host: str) -> bool:
    """Whether a page is the console's: at the host that was asked, or one that was allowed.

    A proxy may ask for another host than the browser did, which then is the one in the origin.
    """
    try:
        parts = urlsplit(origin)
        name = (parts.hostname or "").lower()
    except ValueError:
        return False
    return parts.netloc.lower() == host.lower() or name in rules.allowed_hosts


def is_allowed_host(rules: Rules, host: str) -> bool:
    """Whether a name is one that was meant. An address cannot be rebound by DNS."""
    if host in LOOPBACK_NAMES or host in rules.allowed_hosts:
        return True
    if rules.is_loopback:
        return False
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


class SecurityMiddleware:
    """Refuses, and adds the headers that every answer carries.

    It stands outside of the application: the answer to a defect needs them most of all.
    """

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self.app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, cpu_began = perf_counter(), process_time()

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
                spent_ms = (perf_counter() - began) * 1000
                cpu_ms = (process_time() - cpu_began) * 1000
                headers["server-timing"] = f"app;dur={spent_ms:.1f}, cpu;dur={cpu_ms:.1f}"
            await send(message)

        request_headers = Headers(scope=scope)
        refused = refusal(self._rules, scope["method"], request_headers)
        if refused is None:
            await self.app(scope, receive, send_with_headers)
            return
        status, sentence = refused
        response: Response = (
            JSONResponse({"error": sentence}, status)
            if scope["path"].startswith("/api/")
            else PlainTextResponse(sentence, status)
        )
        await response(scope, receive, send_with_headers)
