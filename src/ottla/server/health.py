"""Is the broker alive, is it ready, and if not, why: /livez and /readyz."""

import json

from ottla.server.http import Page

_JSON = "application/json"


class Health:
    """Reasons why the broker is not ready, by name; none means ready."""

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {"start": "The broker is starting."}

    @property
    def is_ready(self) -> bool:
        return not self.reasons

    def live_page(self, _query: str) -> Page:
        return _page(200, {"status": "live"})

    def ready_page(self, _query: str) -> Page:
        if self.is_ready:
            return _page(200, {"status": "ready"})
        return _page(503, {"status": "not ready", "reasons": self.reasons})


def _page(status: int, content: object) -> Page:
    return Page(status, _JSON, json.dumps(content).encode() + b"\n")
