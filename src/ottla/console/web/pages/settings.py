"""Changing one setting of a topic or broker: checked by the broker, then set, then shown."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from ottla.console.context import ConsoleContext
from ottla.console.kafka.model import ConfigEntry
from ottla.console.web.answers import done, refused
from ottla.console.web.parameters import first, read_form
from ottla.console.web.rendering import context_of, fragment, row_id
from ottla.protocol.errors import KafkaError

# A broker knows of a change a moment after the controller took it; then its new value is shown.
_SHOWN_S_MAX = 2.0
_PAUSE_S = 0.05


async def change_setting(
    request: Request, resource_type: int, resource: str, *, subject: str, action: str
) -> Response:
    """Set or reset one setting, or only check it; the answer is its row as it is now."""
    console = context_of(request)
    form = await read_form(request)
    name = first(form, "name")
    value = None if "reset" in form else first(form, "value")
    alter = console.changes.alter_config
    try:
        await alter(resource_type, resource, name, value, is_dry_run=True)
        if "check" in form:
            return done("The broker would take this value.")
        await alter(resource_type, resource, name, value)
        entry = await _entry_after(console, resource_type, resource, name, value)
    except KafkaError as error:
        return refused(str(error))
    what = f"{name} = {value}" if value is not None else f"{name} back to its default"
    link = resource if subject == "topic" else ""
    console.sampler.note(
        "console", "info", f"{subject.capitalize()} {resource}: {what}", link, subject
    )
    console.sampler.look_soon()
    if entry is None:
        return done(f"{what}.")
    answer = fragment(
        "_config_row.html",
        {"entry": entry, "action": action, "is_read_only": False, "said": f"{what}."},
    )
    answer.headers["hx-retarget"] = f"#{row_id(name)}"
    answer.headers["hx-reswap"] = "outerHTML"
    return answer


async def _entry_after(
    console: ConsoleContext, resource_type: int, resource: str, name: str, value: str | None
) -> ConfigEntry | None:
    """The setting as the broker tells it once it knows of the change, or after a moment."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _SHOWN_S_MAX
    while True:
        entries = await console.questions.configs(resource_type, resource)
        entry = next((one for one in entries if one.name == name), None)
        if entry is None or entry.is_sensitive or loop.time() > deadline:
            return entry
        if entry.value == value or (value is None and entry.source not in ("topic", "broker")):
            return entry
        await asyncio.sleep(_PAUSE_S)
