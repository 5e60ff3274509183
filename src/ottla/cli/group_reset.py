"""`ottla group reset`: move a group to other offsets; a dry run unless --execute is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click

from ottla.cli.client import Admin
from ottla.cli.errors import CliError, ExitCode
from ottla.cli.group_client import INACTIVE_STATES, NO_OFFSET, GroupAdmin, group_is_active
from ottla.cli.group_scope import chosen_groups, places_of, read_choices
from ottla.cli.lazy import ExampleCommand
from ottla.cli.offset_reset import (
    OFFSET_MAX,
    PLAN_BYTES_MAX,
    NewOffset,
    Place,
    ResetInputError,
    format_plan,
    parse_duration_ms,
    parse_plan,
    shifted,
    within_log,
)
from ottla.cli.output import columns, note, print_rows
from ottla.cli.params import cluster_options, complete_topic, group_argument, output_option
from ottla.cli.record_format import parse_timestamp_ms
from ottla.cli.settings import Connection

_COLUMNS = columns("group", "topic", "partition", "new_offset", wide=("current_offset", "change"))
_FORMS = (
    "to_earliest",
    "to_latest",
    "to_current",
    "to_offset",
    "shift_by",
    "by_duration",
    "to_datetime",
    "from_file",
)


@dataclass(frozen=True, slots=True)
class Form:
    """One way to choose new offsets, and its value as it was read."""

    name: str
    value: Any


@click.command(
    cls=ExampleCommand,
    examples=(
        "ottla group reset billing --topic orders --to-earliest",
        "ottla group reset billing --topic orders:0,1 --shift-by -100 --execute",
        "ottla group reset billing --all-topics --to-datetime 2026-01-31T12:00:00 --execute",
        "ottla group reset billing --all-topics --to-current --export > offsets.csv",
        "ottla group reset billing --from-file offsets.csv --execute",
    ),
)
@group_argument(required=False)
@click.option("--all-groups", is_flag=True, help="Every group there is.")
@click.option(
    "--topic",
    "topics",
    metavar="TOPIC[:0,1]",
    multiple=True,
    shell_complete=complete_topic,
    help="Which partitions to move. Repeatable.",
)
@click.option("--all-topics", is_flag=True, help="Every partition that has an offset.")
@click.option("--to-earliest", is_flag=True, help="To the first record there is.")
@click.option("--to-latest", is_flag=True, help="Behind the last record there is.")
@click.option("--to-current", is_flag=True, help="To where it is; to the end where it was nowhere.")
@click.option(
    "--to-offset", metavar="N", type=click.IntRange(0, OFFSET_MAX), help="To this offset."
)
@click.option("--shift-by", metavar="N", type=int, help="Forward by N, or back if negative.")
@click.option(
    "--by-duration", metavar="PnDTnHnMnS", help="To the records of so long ago: P1D, PT30M."
)
@click.option(
    "--to-datetime",
    metavar="TIME",
    help="To the records of a time: 2026-01-31T12:00:00, UTC unless it names a zone.",
)
@click.option(
    "--from-file",
    metavar="CSV",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="To the offsets of a file: topic,partition,offset lines, with a group first if several.",
)
@click.option("--execute", is_flag=True, help="Do it. Without this, only show what would happen.")
@click.option("--dry-run", is_flag=True, help="Only show what would happen: the default.")
@click.option("--export", is_flag=True, help="Print CSV for --from-file instead of a table.")
@output_option()
@cluster_options
def reset(connection: Connection, *, groups: tuple[str, ...], output: str, **options: Any) -> None:
    """Move a group without members to other offsets; a dry run without --execute."""
    if options["execute"] and options["dry_run"]:
        raise click.UsageError("Give --execute or --dry-run, not both.")
    form = _read_form(options)
    _check_scope(form, options)
    admin = GroupAdmin(Admin(connection))
    chosen = chosen_groups(admin, groups, all_groups=options["all_groups"])
    _check_inactive(admin, chosen)
    current = admin.offsets(chosen)
    plan = _plan(admin, chosen, form, options, current)
    if options["execute"]:
        for group_id, offsets in plan.items():
            if offsets:
                admin.commit(group_id, {place: new.offset for place, new in offsets.items()})
    _tell_moved(plan)
    if options["export"]:
        plain = {g: {place: new.offset for place, new in o.items()} for g, o in plan.items()}
        click.echo(format_plan(plain, is_single_group=len(chosen) == 1), nl=False)
    else:
        print_rows(_rows(plan, current), _COLUMNS, output)
    if not options["execute"]:
        note("This was a dry run; add --execute to do it.")


def _read_form(options: Mapping[str, Any]) -> Form:
    given = [name for name in _FORMS if options[name] is not None and options[name] is not False]
    if len(given) != 1:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in _FORMS)
        raise click.UsageError(f"Give exactly one of {flags}.")
    (name,) = given
    value = options[name]
    try:
        if name == "by_duration":
            value = int(datetime.now(UTC).timestamp() * 1000) - parse_duration_ms(value)
        elif name == "to_datetime":
            value = parse_timestamp_ms(value)
        if name in ("by_duration", "to_datetime") and not 0 <= value <= OFFSET_MAX:
            raise ResetInputError("that is before 1970 or beyond all times")
    except ResetInputError as error:
        raise click.UsageError(f"--{name.replace('_', '-')}: {error}.") from error
    except (ValueError, OverflowError) as error:
        raise click.UsageError(
            f"--to-datetime: '{value}' is not a time like 2026-01-31T12:00:00 or "
            "2026-01-31T12:00:00+02:00."
        ) from error
    return Form(name, value)


def _check_scope(form: Form, options: Mapping[str, Any]) -> None:
    if options["topics"] and options["all_topics"]:
        raise click.UsageError("Give --topic or --all-topics, not both.")
    has_scope = bool(options["topics"] or options["all_topics"])
    if form.name == "from_file":
        if has_scope:
            raise click.UsageError("--from-file names its topics itself; drop --topic.")
    elif not has_scope:
        raise click.UsageError("Say which topics: --topic TOPIC[:0,1] or --all-topics.")


def _check_inactive(admin: GroupAdmin, group_ids: Sequence[str]) -> None:
    for group_id, found in admin.described(group_ids).items():
        if found.state not in INACTIVE_STATES:
            raise group_is_active(group_id, found.state)


def _plan(
    admin: GroupAdmin,
    group_ids: Sequence[str],
    form: Form,
    options: Mapping[str, Any],
    current: Mapping[str, Mapping[Place, int]],
) -> dict[str, dict[Place, NewOffset]]:
    if form.name == "from_file":
        return _plan_of_file(admin, group_ids, form.value)
    named = places_of(admin.admin, read_choices(options["topics"])) if options["topics"] else None
    plan = {}
    for group_id in group_ids:
        committed = current[group_id]
        places = named if named is not None else sorted(committed)
        if not places:
            note(f"Group '{group_id}' has no offsets; name its topics with --topic.")
        plan[group_id] = _new_offsets(admin, group_id, form, places, committed)
    return plan


def _plan_of_file(
    admin: GroupAdmin, group_ids: Sequence[str], path: str
) -> dict[str, dict[Place, NewOffset]]:
    with click.open_file(path, "rb") as file:
        data = file.read(PLAN_BYTES_MAX + 1)
    try:
        if len(data) > PLAN_BYTES_MAX:
            raise ResetInputError(f"it is larger than {PLAN_BYTES_MAX} bytes")
        read = parse_plan(data.decode(), group_ids)
    except (ResetInputError, UnicodeDecodeError) as error:
        raise CliError(f"{path}: {error}.") from error
    for group_id in group_ids:
        if group_id not in read:
            raise CliError(f"{path} has no offsets for group '{group_id}'.")
    wanted = {group_id: read[group_id] for group_id in group_ids}
    known = admin.admin.metadata().topics
    for topic, partition in {place for offsets in wanted.values() for place in offsets}:
        if topic not in known or partition not in known[topic].partitions:
            raise CliError(f"{path}: there is no {topic}-{partition}.", ExitCode.NOT_FOUND)
    return {
        group_id: within_log(offsets, admin.bounds(offsets)) for group_id, offsets in wanted.items()
    }


def _new_offsets(
    admin: GroupAdmin,
    group_id: str,
    form: Form,
    places: Sequence[Place],
    committed: Mapping[Place, int],
) -> dict[Place, NewOffset]:
    if form.name == "shift_by":
        wanted, missing = shifted(places, committed, form.value)
        if missing:
            topic, partition = missing[0]
            raise CliError(
                f"Group '{group_id}' has no offset of {topic}-{partition} to shift; choose "
                "partitions with --topic, or another form."
            )
        return within_log(wanted, admin.bounds(wanted))
    if form.name == "to_current":
        ends = admin.bounds(place for place in places if place not in committed)
        return {
            place: NewOffset(committed[place] if place in committed else ends[place].log_end_offset)
            for place in places
        }
    bounds = admin.bounds(places)
    if form.name == "to_earliest":
        return {place: NewOffset(bounds[place].log_start_offset) for place in places}
    if form.name == "to_latest":
        return {place: NewOffset(bounds[place].log_end_offset) for place in places}
    if form.name == "to_offset":
        return within_log(dict.fromkeys(places, form.value), bounds)
    found = admin.at_time(places, form.value)
    return {
        place: NewOffset(
            bounds[place].log_end_offset if found[place] == NO_OFFSET else found[place]
        )
        for place in places
    }


def _tell_moved(plan: Mapping[str, Mapping[Place, NewOffset]]) -> None:
    for offsets in plan.values():
        for (topic, partition), new in offsets.items():
            if new.moved_from is not None:
                note(
                    f"{topic}-{partition} does not reach to {new.moved_from}; {new.offset} is "
                    "the nearest offset."
                )


def _rows(
    plan: Mapping[str, Mapping[Place, NewOffset]], current: Mapping[str, Mapping[Place, int]]
) -> list[dict[str, Any]]:
    rows = []
    for group_id, offsets in plan.items():
        for place, new in sorted(offsets.items()):
            was = current[group_id].get(place)
            rows.append(
                {
                    "group": group_id,
                    "topic": place[0],
                    "partition": place[1],
                    "new_offset": new.offset,
                    "current_offset": was,
                    "change": None if was is None else new.offset - was,
                }
            )
    return rows
