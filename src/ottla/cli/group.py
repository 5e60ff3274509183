"""`ottla group`: consumer groups, their members, offsets and lag."""

from __future__ import annotations

import click

from ottla.cli.client import Admin
from ottla.cli.errors import CliError
from ottla.cli.group_client import GroupAdmin
from ottla.cli.group_reset import reset
from ottla.cli.group_scope import chosen_groups, places_of, read_choices
from ottla.cli.group_views import show_members, show_offsets, show_states
from ottla.cli.lazy import ExampleGroup
from ottla.cli.output import columns, note, print_rows
from ottla.cli.params import (
    cluster_options,
    complete_topic,
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
@click.option(
    "-v", "--verbose", is_flag=True, help="Also epochs, and with --members who reads what."
)
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
    show = {"members": show_members, "state": show_states}.get(view or "", show_offsets)
    show(admin, found, output, is_verbose=verbose)


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
    shell_complete=complete_topic,
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
