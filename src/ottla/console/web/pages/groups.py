"""Consumer groups: the list, one group, resetting its offsets, deleting it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ottla.console.context import ConsoleContext
from ottla.console.errors import BadRequestError
from ottla.console.resets import format_move, parse_moves
from ottla.console.resetting import plan_reset
from ottla.console.web.answers import done, refused
from ottla.console.web.parameters import first, listing, read_form
from ottla.console.web.rendering import context_of, fragment, page
from ottla.protocol.errors import KafkaError

SORTS = {
    "name": "group_id",
    "state": "state",
    "type": "group_type",
    "topics": "topic_count",
    "lag": "lag",
    "rate": "rate",
    "behind": "behind_s",
}


async def groups(request: Request) -> Response:
    console = context_of(request)
    rows = list(console.digest.groups.values())
    found = listing(request, rows, name_of="group_id", sorts=SORTS, default_sort="-lag")
    history = console.sampler.group_lags
    values = {
        "found": found,
        "sparklines": {row.group_id: history.recent(row.group_id, 60) for row in found.rows},
        "troubles": console.sampler.view.group_troubles,
    }
    return page(request, "groups.html", values, section="groups")


async def group(request: Request) -> Response:
    console = context_of(request)
    group_id = request.query_params.get("id", "")
    row = console.digest.groups.get(group_id)
    if row is None:
        return page(
            request,
            "missing.html",
            {"what": "group", "name": group_id, "back": "/groups"},
            section="groups",
            status=404,
        )
    description, problem = None, ""
    try:
        description = await console.describe_group(group_id)
    except KafkaError as error:
        problem = str(error)
    rows = console.digest.partitions_of_group(group_id, description)
    values = {
        "row": row,
        "description": description,
        "problem": problem,
        "rows": rows,
        "topics": sorted({one.topic for one in rows}),
    }
    return page(request, "group.html", values, section="groups")


async def reset(request: Request) -> Response:
    """Show where the offsets would be, or commit what was shown."""
    console = context_of(request)
    form = await read_form(request)
    group_id = first(form, "id")
    if group_id not in console.sampler.view.groups:
        return refused(f"There is no group {group_id}.")
    try:
        if "apply" in form:
            return await _apply(console, group_id, form.get("move", []))
        planned = await plan_reset(
            console.questions,
            console.sampler.view,
            group_id,
            strategy=first(form, "strategy", "earliest"),
            amount=first(form, "amount"),
            time=first(form, "time"),
            topic=first(form, "topic"),
        )
    except (BadRequestError, KafkaError) as error:
        return refused(str(error))
    values = {
        "group_id": group_id,
        "moves": [(move, format_move(move)) for move in planned.moves],
        "time_ms": planned.time_ms,
        "untold": planned.untold,
        "state": console.sampler.view.groups[group_id].state,
    }
    return fragment("_reset_plan.html", values)


async def _apply(console: ConsoleContext, group_id: str, texts: list[str]) -> Response:
    offsets = parse_moves(texts)
    await console.changes.commit_offsets(group_id, offsets)
    count = len(offsets)
    text = f"Group {group_id}: offsets of {count} partition{'' if count == 1 else 's'} were reset"
    console.sampler.note("console", "warn", text, group_id, "group")
    await console.changed()
    return done(f"{text}.", refresh=True)


async def delete(request: Request) -> Response:
    console = context_of(request)
    form = await read_form(request)
    group_id = first(form, "id")
    if first(form, "confirmation") != group_id:
        return refused("Type the group's name to delete it.")
    try:
        await console.changes.delete_group(group_id)
    except KafkaError as error:
        return refused(str(error))
    await console.changed()
    return done(f"{group_id} was deleted.", go_to="/groups")
