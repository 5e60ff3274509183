"""Is the broker alive, is it ready, and if not, why: /livez and /readyz."""

import json

from ottla.server.http import Page

_JSON = "application/json"


class Health:
    """Reasons why the broker is not ready, by name; none means ready.

    Warnings are told too, but leave it ready: a balancer that turned clients away from a broker
    which lost one of its disks would take the other disks from them as well.
    """

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {"start": "The broker is starting."}
        self.warnings: dict[str, str] = {}

    @property
    def is_ready(self) -> bool:
        return not self.reasons

    def live_page(self, _query: str) -> Page:
        return _page(200, {"status": "live"})

    def ready_page(self, _query: str) -> Page:
        warnings = {"warnings": self.warnings} if self.warnings else {}
        if self.is_ready:
            return _page(200, {"status": "ready", **warnings})
        return _page(503, {"status": "not ready", "reasons": self.reasons, **warnings})


def _page(status: int, content: object) -> Page:
    return Page(status, _JSON, json.dumps(content).encode() + b"\n")
