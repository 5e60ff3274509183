"""Server-sent events: how one is written, and how a stream of them stays open."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.responses import StreamingResponse

# Proxies and browsers give up a stream that is silent for longer.
KEEP_ALIVE_S = 15.0
STILL_HERE = ": still here\n\n"


def event(name: str, data: str) -> str:
    """One event; every line of the data is a field of its own."""
    lines = data.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return f"event: {name}\n" + "".join(f"data: {line}\n" for line in lines) + "\n"


def event_stream(events: AsyncIterator[str]) -> StreamingResponse:
    headers = {"x-accel-buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)
