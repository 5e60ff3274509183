"""How values become text on a page, and templates become answers.

Everything is escaped: autoescape is on for every template and there is no `safe` filter in any of
them. Numbers are written by Python, so that 64-bit integers stay exact. An undefined name is an
error, not an empty string.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from ottla.console.context import ConsoleContext
from ottla.console.digest import DISK_USED_BAD, DISK_USED_WARN
from ottla.console.graph import NODE_HEIGHT, NODE_WIDTH
from ottla.console.history import sparkline
from ottla.console.kafka.model import REBALANCING_STATES
from ottla.console.web.navigation import SECTIONS

PACKAGE = Path(str(files("ottla.console")))
STATIC = PACKAGE / "static"

_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def number(value: float | None) -> str:
    """1234567 as 1,234,567; exact for integers."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def compact(value: float | None) -> str:
    """A number that is read at a glance: 12.3k."""
    if value is None:
        return "–"
    size = float(value)
    for unit in ("", "k", "M", "G", "T"):
        if abs(size) < 999.5 or unit == "T":
            digits = 0 if unit == "" or abs(size) >= 100 else 1
            return f"{size:.{digits}f}{unit}"
        size /= 1000
    return str(value)


def byte_size(value: int | None) -> str:
    """1536 as 1.5 kB."""
    if value is None or value < 0:
        return "–"
    size = float(value)
    for unit in _BYTE_UNITS:
        if size < 999.5 or unit == _BYTE_UNITS[-1]:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return str(value)


def per_second(value: float | None) -> str:
    """A rate: 1,234/s, 0.5/s; a dash where it is not known."""
    if not value:
        return "0/s" if value is not None else "–"
    if value < 9.95:
        return f"{value:.1f}/s"
    return f"{value:,.0f}/s" if value < 99_950 else f"{compact(value)}/s"


def duration(seconds: float | None) -> str:
    """90 as 1m 30s."""
    if seconds is None:
        return "–"
    whole = int(seconds)
    if whole < 1:
        return "< 1s"
    for size, unit, smaller_size, smaller in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // smaller_size
            return f"{whole // size}{unit}" + (f" {rest}{smaller}" if rest else "")
    return f"{whole}s"


def iso(timestamp_ms: int) -> str:
    """A time for the `datetime` attribute, in UTC; empty for no time or one beyond the calendar."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return ""
    return (
        moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if timestamp_ms >= 0
        else ""
    )


def clock(timestamp_ms: int) -> str:
    """A time as people read it, in UTC; pages show it in the reader's own zone where they can."""
    text = iso(timestamp_ms)
    return text.replace("T", " ").removesuffix("Z") if text else "no time"


def row_id(name: str) -> str:
    """An id for the row of a name, which may hold anything: updates move rows instead of rewriting
    them, so that nobody clicks on what has just become another row."""
    return f"r-{hashlib.sha256(name.encode(errors='replace')).hexdigest()[:16]}"


def group_tone(state: str) -> str:
    """The colour of a group's state."""
    if state == "Stable":
        return "good"
    if state in REBALANCING_STATES:
        return "warn"
    return "bad" if state == "Dead" else "quiet"


def query(path: str, **parameters: object) -> str:
    """An address with a query; parameters that are None or empty are left out."""
    kept = {name: value for name, value in parameters.items() if value not in (None, "")}
    return f"{path}?{urlencode(kept)}" if kept else path


@cache
def asset(name: str) -> str:
    """The address of a static file, with its content's hash: browsers may keep it for ever."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?v={digest}"


@cache
def environment() -> Environment:
    env = Environment(
        loader=FileSystemLoader(PACKAGE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters.update(
        number=number,
        compact=compact,
        byte_size=byte_size,
        per_second=per_second,
        duration=duration,
        iso=iso,
        clock=clock,
        path=lambda text: quote(text, safe=""),
        group_tone=group_tone,
        row_id=row_id,
        sparkline=sparkline,
    )
    env.globals.update(
        asset=asset,
        query=query,
        sections=SECTIONS,
        node_width=NODE_WIDTH,
        node_height=NODE_HEIGHT,
        disk_used_warn=DISK_USED_WARN,
        disk_used_bad=DISK_USED_BAD,
    )
    # Blocks are rendered alone too, where an import at the top of a template would not be run.
    env.globals["ui"] = env.get_template("_macros.html").module
    return env


def preload() -> None:
    """Compile every template, so that nobody's first page waits for it."""
    env = environment()
    for name in env.list_templates():
        env.get_template(name)


def context_of(request: Request) -> ConsoleContext:
    """The console that serves a request."""
    console: ConsoleContext = request.app.state.console
    return console


def frame_values(console: ConsoleContext) -> dict[str, Any]:
    """What the frame of every page shows; nothing of it is asked for, all of it is known."""
    sampler = console.sampler
    return {
        "checks": console.digest.checks,
        "csrf_token": console.csrf_token,
        "is_read_only": console.settings.is_read_only,
        "cluster_id": sampler.view.metadata.cluster_id,
        "bootstrap": console.settings.bootstrap_servers,
        "trouble": sampler.view.trouble,
        "known_at": sampler.view.offsets_at,
        "stale_s": sampler.stale_s,
        "has_looked": bool(sampler.looks),
    }


def page(
    request: Request,
    template: str,
    values: Mapping[str, Any],
    *,
    section: str,
    status: int = 200,
) -> HTMLResponse:
    """A page; when the page itself asks for its moving part, only that."""
    address = request.url
    known = {
        "here": f"{address.path}?{address.query}" if address.query else address.path,
        "section": section,
        **frame_values(context_of(request)),
        **values,
    }
    target = request.headers.get("hx-target", "")
    if target.startswith("live"):
        if target in environment().get_template(template).blocks:
            return part(template, target, known)
        return reload_page()  # what the page showed is gone
    return HTMLResponse(environment().get_template(template).render(known), status)


def part(template: str, block: str, values: Mapping[str, Any]) -> HTMLResponse:
    """The block of a template that stands in the element of the same name."""
    found = environment().get_template(template)
    return HTMLResponse("".join(found.blocks[block](found.new_context(dict(values)))))


def reload_page() -> HTMLResponse:
    """Has the page that asked for a part of itself load anew."""
    return HTMLResponse("", 200, headers={"hx-refresh": "true"})


def fragment(template: str, values: Mapping[str, Any], *, status: int = 200) -> HTMLResponse:
    """A piece of a page."""
    return HTMLResponse(environment().get_template(template).render(values), status)
