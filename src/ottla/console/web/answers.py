"""What a change answers to the page that asked for it: a sentence, and perhaps where to go."""

from __future__ import annotations

import json

from starlette.responses import HTMLResponse

from ottla.console.web.rendering import fragment


def done(
    text: str, *, href: str | None = None, refresh: bool = False, go_to: str | None = None
) -> HTMLResponse:
    """It worked. `refresh` has the page ask for its moving part again; `go_to` leaves the page."""
    response = fragment("_done.html", {"text": text, "href": href})
    if go_to is not None:
        response.headers["hx-redirect"] = go_to
    elif refresh:
        response.headers["hx-trigger"] = json.dumps({"tick": "", "changed": ""})
    return response


def refused(text: str, *, status: int = 422) -> HTMLResponse:
    """It did not, and why."""
    return fragment("_problem.html", {"problem": text}, status=status)
