"""Consumer groups: the list, one group, resetting its offsets, deleting it."""

from __future__ import annotations

from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from ottla.console.context import ConsoleContext
from ottla.console.errors import BadRequestError
from ottla.console.kafka.model import GroupDescription, TopicPartition
from ottla.console.kafka.questions import EARLIEST, LATEST
from ottla.console.resets import STRATEGIES, Move, format_move, parse_moves, plan
from ottla.console.seeking import parse_time_ms
from ottla.console.web.answers import done, refused
from ottla.console.web.parameters import first, integer, listing, read_form
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
_SHIFT_MAX = 2**62


class LagRow(NamedTuple):
    topic: str
    partition: int
    committed: int | None
    end_offset: int | None
    lag: int | None
    member: str
    client: str


async def groups(request: Request) -> Response:
    console = context_of(request)
    rows = list(console.digest.groups.values())
    found = listing(request, rows, name_of="group_id", sorts=SORTS, default_sort="-lag")
    history = console.sampler.group_lags
    values = {
        "found": found,
        "sparklines": {row.group_id: history.recent(row.group_id, 60) for row in found.rows},
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
    rows = lag_rows(console, group_id, description)
    values = {
        "row": row,
        "description": description,
        "problem": problem,
        "rows": rows,
        "topics": sorted({one.topic for one in rows}),
        "can_reset": row.state in ("Empty", "Dead"),
    }
    return page(request, "group.html", values, section="groups")


def lag_rows(
    console: ConsoleContext, group_id: str, description: GroupDescription | None
) -> list[LagRow]:
    """Every partition that the group committed or is assigned, the slowest first."""
    view = console.sampler.view
    committed = view.committed.get(group_id, {})
    owners: dict[TopicPartition, tuple[str, str]] = {}
    for member in description.members if description else ():
        for key in member.assignment:
            owners[key] = (member.member_id, member.client_id)
    rows = []
    for key in sorted(committed.keys() | owners.keys()):
        offset = committed.get(key)
        owner, client = owners.get(key, ("", ""))
        lag = None if offset is None else view.partition_lag(key, offset)
        rows.append(LagRow(*key, offset, view.end_offsets.get(key), lag, owner, client))
    return sorted(rows, key=lambda one: (-(one.lag or 0), one.topic, one.partition))


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
        moves = await plan_reset(
            console,
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
        "moves": [(move, format_move(move)) for move in moves],
        "state": console.sampler.view.groups[group_id].state,
    }
    return fragment("_reset_plan.html", values)


async def plan_reset(
    console: ConsoleContext, group_id: str, *, strategy: str, amount: str, time: str, topic: str
) -> list[Move]:
    """The moves that a reset would make, from offsets asked for now."""
    if strategy not in STRATEGIES:
        raise BadRequestError(f"A reset goes to one of {', '.join(STRATEGIES)}.")
    view = console.sampler.view
    committed = view.committed.get(group_id, {})
    partitions = [key for key in committed if not topic or key[0] == topic]
    if topic and topic in view.metadata.topics:
        found = view.metadata.topics[topic]
        partitions += [(topic, partition.number) for partition in found.partitions]
    metadata, questions = view.metadata, console.questions
    ends = await questions.offsets(metadata, dict.fromkeys(partitions, LATEST), is_committed=False)
    starts = await questions.offsets(
        metadata, dict.fromkeys(partitions, EARLIEST), is_committed=False
    )
    at_time = {}
    if strategy == "time":
        at_time = await questions.offsets(
            metadata, dict.fromkeys(partitions, parse_time_ms(time)), is_committed=False
        )
    number = 0
    if strategy in ("offset", "shift"):
        least = 0 if strategy == "offset" else -_SHIFT_MAX
        number = integer(amount, "The number", least=least, most=_SHIFT_MAX)
    moves = plan(
        strategy,
        number,
        partitions,
        committed=committed,
        starts={key: offset for key, (offset, _) in starts.items()},
        ends={key: offset for key, (offset, _) in ends.items()},
        at_time={key: offset for key, (offset, _) in at_time.items()},
    )
    if not moves:
        raise BadRequestError("There is nothing to reset.")
    return moves


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
