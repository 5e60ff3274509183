"""`ottla group`: consumer groups, their members, offsets and lag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from ottla.cli.client import Admin
from ottla.cli.errors import CliError
from ottla.cli.group_client import Group, GroupAdmin, Member
from ottla.cli.group_reset import reset
from ottla.cli.group_scope import chosen_groups, places_of, read_choices
from ottla.cli.lazy import ExampleGroup
from ottla.cli.offset_reset import Place
from ottla.cli.output import Column, columns, note, print_data, print_rows, print_table
from ottla.cli.params import (
    cluster_options,
    confirm,
    group_argument,
    output_option,
    yes_option,
)
from ottla.cli.settings import Connection

STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Empty", "Dead")
NEW_STATES = ("Assigning", "Reconciling")  # of groups of the new protocol only
TYPES = ("Classic", "Consumer")

_LIST_COLUMNS = columns("group", "type", "state", wide=("simple",))
_OFFSET_COLUMNS = columns(
    "group",
    "topic",
    "partition",
    "current_offset",
    "log_end_offset",
    "lag",
    "consumer_id",
    "host",
    "client_id",
    wide=("group_instance_id",),
)
_COUNT = Column("partition_count", "#PARTITIONS")
_MEMBER_COLUMNS = (*columns("group", "consumer_id", "host", "client_id"), _COUNT)
_STATIC_MEMBER_COLUMNS = (
    *columns("group", "consumer_id", "group_instance_id", "host", "client_id"),
    _COUNT,
)
_STATE_COLUMNS = (
    Column("group", "GROUP"),
    Column("coordinator", "COORDINATOR (ID)"),
    Column("assignor", "ASSIGNMENT-STRATEGY"),
    Column("state", "STATE"),
    Column("member_count", "#MEMBERS"),
    Column("type", "TYPE", is_wide=True),
)
_DELETED_COLUMNS = columns("topic", "partition", "status")


@click.group(
    cls=ExampleGroup,
    examples=(
        "ottla group list",
        "ottla group describe billing",
        "ottla group reset billing --topic orders --to-earliest",
    ),
)
def group() -> None:
    """List, describe, reset and delete consumer groups."""


@group.command(
    "list",
    examples=(
        "ottla group list",
        "ottla group list --state Empty --state Dead",
        "ottla group list -q | xargs ottla group describe",
    ),
)
@click.option(
    "--state",
    "states",
    type=click.Choice([*STATES, *NEW_STATES], case_sensitive=False),
    multiple=True,
    help="Only groups in this state. Repeatable.",
)
@click.option(
    "--type",
    "types",
    type=click.Choice(TYPES, case_sensitive=False),
    multiple=True,
    help="Only groups of this protocol. Repeatable.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print the names alone, one a line.")
@output_option()
@cluster_options
def list_groups(
    connection: Connection,
    *,
    states: tuple[str, ...],
    types: tuple[str, ...],
    quiet: bool,
    output: str,
) -> None:
    """List consumer groups."""
    rows = GroupAdmin(Admin(connection)).listed(states, types)
    if quiet:
        for row in rows:
            click.echo(row["group"])
        return
    print_rows(rows, _LIST_COLUMNS, output)


@group.command(
    examples=(
        "ottla group describe billing",
        "ottla group describe billing --members --verbose",
        "ottla group describe --all-groups --state",
        "ottla group describe --all-groups -o jsonl | jq 'select(.lag > 1000)'",
    )
)
@group_argument(required=False)
@click.option("--all-groups", is_flag=True, help="Every group there is.")
@click.option("--offsets", "view", flag_value="offsets", help="Offsets and lag: the default.")
@click.option("--members", "view", flag_value="members", help="Who is in the group.")
@click.option("--state", "view", flag_value="state", help="State, strategy and coordinator.")
@click.option("-v", "--verbose", is_flag=True, help="With --members, also who reads what.")
@output_option()
@cluster_options
def describe(
    connection: Connection,
    *,
    groups: tuple[str, ...],
    all_groups: bool,
    view: str | None,
    verbose: bool,
    output: str,
) -> None:
    """Describe groups: offsets and lag, members, or state."""
    admin = GroupAdmin(Admin(connection))
    found = admin.existing(chosen_groups(admin, groups, all_groups=all_groups))
    if view == "members":
        _print_members(found, output, is_verbose=verbose)
    elif view == "state":
        print_rows([_state_row(one) for one in found.values()], _STATE_COLUMNS, output)
    else:
        _print_offsets(admin, found, output)


group.add_command(reset)


@group.command(examples=("ottla group delete billing", "ottla group delete --all-groups --yes"))
@group_argument(required=False)
@click.option("--all-groups", is_flag=True, help="Every group there is.")
@yes_option
@cluster_options
def delete(connection: Connection, *, groups: tuple[str, ...], all_groups: bool, yes: bool) -> None:
    """Delete groups without members, and all their offsets."""
    admin = GroupAdmin(Admin(connection))
    chosen = chosen_groups(admin, groups, all_groups=all_groups)
    if not chosen:
        note("There are no groups.")
        return
    confirm(f"Delete {', '.join(chosen)} and all their offsets?", yes=yes)
    outcomes = admin.delete(chosen)
    for group_id, failure in outcomes.items():
        if failure is None:
            note(f"Deleted group '{group_id}'.")
    raise_all({name: failure for name, failure in outcomes.items() if failure is not None})


@group.command(
    "delete-offsets",
    examples=(
        "ottla group delete-offsets billing --topic orders",
        "ottla group delete-offsets billing --topic orders:0,1 --yes",
    ),
)
@group_argument("group_id", nargs=1)
@click.option(
    "--topic",
    "topics",
    metavar="TOPIC[:0,1]",
    multiple=True,
    required=True,
    help="Whose offsets to forget. Repeatable.",
)
@yes_option
@output_option()
@cluster_options
def delete_offsets(
    connection: Connection, *, group_id: str, topics: tuple[str, ...], yes: bool, output: str
) -> None:
    """Forget a group's offsets of topics that it no longer reads."""
    choices = read_choices(topics)
    admin = GroupAdmin(Admin(connection))
    found = admin.existing([group_id])[group_id]
    places = places_of(admin.admin, choices)
    confirm(f"Forget {len(places)} offsets of group '{group_id}'?", yes=yes)
    failures = admin.forget(found, places)
    rows = [
        {"topic": place[0], "partition": place[1], "status": failures.get(place, "Successful")}
        for place in places
    ]
    print_rows(rows, _DELETED_COLUMNS, output)
    if failures:
        raise CliError("Some offsets were kept; see STATUS.")


def raise_all(failures: dict[str, CliError]) -> None:
    """Raise what failed as one error: the only one as it is, several as a list."""
    if not failures:
        return
    first = next(iter(failures.values()))
    if len(failures) == 1:
        raise first
    raise CliError(" ".join(one.message for one in failures.values()), first.exit_code)


def offset_rows(
    found: Group, committed: dict[Place, int], ends: dict[Place, int | None]
) -> list[dict[str, Any]]:
    """One row a partition: those of members first, then those that nobody reads."""
    rows = []
    assigned: set[Place] = set()
    for member in sorted(found.members, key=lambda one: (-len(one.assignment), one.member_id)):
        assigned.update(member.assignment)
        rows += [_offset_row(found, member, place, committed, ends) for place in member.assignment]
    left = sorted(set(committed) - assigned)
    return rows + [_offset_row(found, None, place, committed, ends) for place in left]


def _offset_row(
    found: Group,
    member: Member | None,
    place: Place,
    committed: dict[Place, int],
    ends: dict[Place, int | None],
) -> dict[str, Any]:
    current, end = committed.get(place), ends.get(place)
    return {
        "group": found.group_id,
        "topic": place[0],
        "partition": place[1],
        "current_offset": current,
        "log_end_offset": end,
        "lag": None if current is None or end is None else end - current,
        "consumer_id": member.member_id if member else None,
        "group_instance_id": member.instance_id if member else None,
        "host": member.host if member else None,
        "client_id": member.client_id if member else None,
    }


def _print_offsets(admin: GroupAdmin, found: dict[str, Group], output: str) -> None:
    committed = admin.committed(list(found))
    places = {place for offsets in committed.values() for place in offsets}
    places |= {p for one in found.values() for m in one.members for p in m.assignment}
    ends = admin.end_offsets(sorted(places))
    rows = {name: offset_rows(one, committed[name], ends) for name, one in found.items()}
    if output not in ("table", "wide"):
        print_data([row for group_rows in rows.values() for row in group_rows], output)
        return
    shown = [column for column in _OFFSET_COLUMNS if output == "wide" or not column.is_wide]
    for name, one in found.items():
        if not one.members:
            note(f"Group '{name}' has no active members.")
        elif one.state in ("PreparingRebalance", "CompletingRebalance", "Assigning"):
            note(f"Group '{name}' is rebalancing.")
    print_table([row for group_rows in rows.values() for row in group_rows], shown)


def _print_members(found: dict[str, Group], output: str, *, is_verbose: bool) -> None:
    rows: list[dict[str, Any]] = [
        {
            "group": one.group_id,
            "consumer_id": member.member_id,
            "group_instance_id": member.instance_id,
            "host": member.host,
            "client_id": member.client_id,
            "partition_count": len(member.assignment),
            "assignment": _by_topic(member.assignment),
            "target_assignment": (
                None if member.target_assignment is None else _by_topic(member.target_assignment)
            ),
        }
        for one in found.values()
        for member in one.members
    ]
    if output not in ("table", "wide"):
        print_data(rows, output)
        return
    for name, one in found.items():
        if not one.members:
            note(f"Group '{name}' has no active members.")
    is_static = any(row["group_instance_id"] for row in rows)
    shown = list(_STATIC_MEMBER_COLUMNS if is_static else _MEMBER_COLUMNS)
    if is_verbose or output == "wide":
        shown.append(Column("assignment_text", "ASSIGNMENT"))
        if any(row["target_assignment"] is not None for row in rows):
            shown.append(Column("target_text", "TARGET-ASSIGNMENT"))
    for row in rows:
        row["assignment_text"] = _assignment_text(row["assignment"])
        row["target_text"] = _assignment_text(row["target_assignment"])
    print_table(rows, shown)


def _state_row(found: Group) -> dict[str, Any]:
    return {
        "group": found.group_id,
        "coordinator": f"{found.coordinator_address} ({found.coordinator_id})",
        "assignor": found.assignor,
        "state": found.state,
        "member_count": len(found.members),
        "type": found.type,
    }


def _by_topic(places: Sequence[Place]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in places:
        found.setdefault(topic, []).append(partition)
    return found


def _assignment_text(assignment: dict[str, list[int]] | None) -> str:
    """`orders(0,1),payments(2)`, as Kafka's tools write it."""
    if not assignment:
        return ""
    return ",".join(
        f"{topic}({','.join(map(str, partitions))})" for topic, partitions in assignment.items()
    )
