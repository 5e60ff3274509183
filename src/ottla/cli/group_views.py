"""The three views of `ottla group describe`, with the columns of kafka-consumer-groups.

Machine formats carry what `--verbose` shows. Rows are made by pure functions; the rest prints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ottla.cli.group_client import Committed, Epochs, Group, GroupAdmin, Member
from ottla.cli.offset_reset import Place
from ottla.cli.output import Column, columns, note, print_rows

Row = dict[str, Any]

_REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning"})


def show_offsets(
    admin: GroupAdmin, groups: Mapping[str, Group], output: str, *, is_verbose: bool
) -> None:
    """Offsets and lag."""
    committed = admin.committed(list(groups))
    places = {place for offsets in committed.values() for place in offsets}
    places |= {p for one in groups.values() for m in one.members for p in m.assignment}
    ends = admin.end_offsets(sorted(places))
    rows = [row for name, one in groups.items() for row in offset_rows(one, committed[name], ends)]
    shown = columns(
        "group",
        "topic",
        "partition",
        *(("leader_epoch",) if is_verbose else ()),
        "current_offset",
        "log_end_offset",
        "lag",
        "consumer_id",
        "host",
        "client_id",
        wide=("group_instance_id",),
    )
    _tell_states(groups, output)
    print_rows(rows, shown, output)


def show_members(
    admin: GroupAdmin, groups: Mapping[str, Group], output: str, *, is_verbose: bool
) -> None:
    """Members, and with `is_verbose` what each reads and is to read."""
    is_whole = is_verbose or output != "table"
    epochs = admin.epochs(groups) if is_whole else {}
    rows = [
        member_row(one, member, epochs.get(name))
        for name, one in groups.items()
        for member in one.members
    ]
    is_static = any(row["group_instance_id"] for row in rows)
    shown = [
        *columns("group", "consumer_id", *(("group_instance_id",) if is_static else ())),
        *columns("host", "client_id"),
        Column("partition_count", "#PARTITIONS"),
    ]
    if is_whole:
        shown += columns("current_epoch", "current_assignment", "target_epoch", "target_assignment")
    _tell_states(groups, output)
    if output in ("table", "wide"):
        for row in rows:
            for name in ("current_assignment", "target_assignment"):
                row[name] = assignment_text(row[name])
    print_rows(rows, shown, output)


def show_states(
    admin: GroupAdmin, groups: Mapping[str, Group], output: str, *, is_verbose: bool
) -> None:
    """State, strategy and coordinator."""
    is_whole = is_verbose or output != "table"
    epochs = admin.epochs(groups) if is_whole else {}
    shown = [
        Column("group", "GROUP"),
        Column("coordinator", "COORDINATOR (ID)"),
        Column("assignor", "ASSIGNMENT-STRATEGY"),
        Column("state", "STATE"),
        *(columns("group_epoch", "target_assignment_epoch") if is_whole else ()),
        Column("member_count", "#MEMBERS"),
        Column("type", "TYPE", is_wide=True),
    ]
    print_rows([state_row(one, epochs.get(name)) for name, one in groups.items()], shown, output)


def offset_rows(
    group: Group, committed: Mapping[Place, Committed], ends: Mapping[Place, int | None]
) -> list[Row]:
    """One row a partition: those of members first, then those that nobody reads."""
    rows = []
    assigned: set[Place] = set()
    for member in sorted(group.members, key=lambda one: (-len(one.assignment), one.member_id)):
        assigned.update(member.assignment)
        rows += [_offset_row(group, member, place, committed, ends) for place in member.assignment]
    left = sorted(set(committed) - assigned)
    return rows + [_offset_row(group, None, place, committed, ends) for place in left]


def _offset_row(
    group: Group,
    member: Member | None,
    place: Place,
    committed: Mapping[Place, Committed],
    ends: Mapping[Place, int | None],
) -> Row:
    current, end = committed.get(place), ends.get(place)
    return {
        "group": group.group_id,
        "topic": place[0],
        "partition": place[1],
        "leader_epoch": current.leader_epoch if current else None,
        "current_offset": current.offset if current else None,
        "log_end_offset": end,
        "lag": None if current is None or end is None else end - current.offset,
        "consumer_id": member.member_id if member else None,
        "group_instance_id": member.instance_id if member else None,
        "host": member.host if member else None,
        "client_id": member.client_id if member else None,
    }


def member_row(group: Group, member: Member, epochs: Epochs | None) -> Row:
    """A member; epochs and target only where the group has them."""
    target = member.target_assignment if epochs is not None else None
    return {
        "group": group.group_id,
        "consumer_id": member.member_id,
        "group_instance_id": member.instance_id,
        "host": member.host,
        "client_id": member.client_id,
        "partition_count": len(member.assignment),
        "current_epoch": None if epochs is None else epochs.members.get(member.member_id),
        "current_assignment": by_topic(member.assignment),
        "target_epoch": None if epochs is None else epochs.target_epoch,
        "target_assignment": None if target is None else by_topic(target),
    }


def state_row(group: Group, epochs: Epochs | None) -> Row:
    """A group as a whole."""
    return {
        "group": group.group_id,
        "coordinator": f"{group.coordinator_address} ({group.coordinator_id})",
        "assignor": group.assignor,
        "state": group.state,
        "group_epoch": None if epochs is None else epochs.group_epoch,
        "target_assignment_epoch": None if epochs is None else epochs.target_epoch,
        "member_count": len(group.members),
        "type": group.type,
    }


def by_topic(places: Sequence[Place]) -> dict[str, list[int]]:
    """Partitions by topic."""
    found: dict[str, list[int]] = {}
    for topic, partition in places:
        found.setdefault(topic, []).append(partition)
    return found


def assignment_text(assignment: Mapping[str, Sequence[int]] | None) -> str:
    """`orders:0,1;payments:2`, as Kafka's tool writes it."""
    if not assignment:
        return ""
    return ";".join(
        f"{topic}:{','.join(map(str, partitions))}" for topic, partitions in assignment.items()
    )


def _tell_states(groups: Mapping[str, Group], output: str) -> None:
    """On standard error, what the rows do not say."""
    if output not in ("table", "wide"):
        return
    for name, one in groups.items():
        if not one.members:
            note(f"Group '{name}' has no active members.")
        elif one.state in _REBALANCING:
            note(f"Group '{name}' is rebalancing.")
