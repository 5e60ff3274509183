"""Which groups and partitions a command of `ottla group` means."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ottla.cli.client import Admin, topic_not_found
from ottla.cli.errors import CliError, ExitCode
from ottla.cli.group_client import GroupAdmin
from ottla.cli.offset_reset import Place, ResetInputError, TopicChoice, parse_topic_choice


def chosen_groups(admin: GroupAdmin, groups: Sequence[str], *, all_groups: bool) -> list[str]:
    """The groups that were named, or all."""
    if all_groups and groups:
        raise click.UsageError("Name groups or give --all-groups, not both.")
    if not all_groups and not groups:
        raise click.UsageError("Name a group, or give --all-groups.")
    return admin.ids() if all_groups else list(dict.fromkeys(groups))


def read_choices(topics: Sequence[str]) -> list[TopicChoice]:
    """What --topic named, or a usage error."""
    try:
        return [parse_topic_choice(text) for text in topics]
    except ResetInputError as error:
        raise click.UsageError(f"--topic: {error}.") from error


def places_of(admin: Admin, choices: Sequence[TopicChoice]) -> list[Place]:
    """The partitions that the choices mean; NOT_FOUND for one that does not exist."""
    known = admin.metadata().topics
    places: dict[Place, None] = {}
    for choice in choices:
        if choice.topic not in known:
            raise topic_not_found(choice.topic)
        there = sorted(known[choice.topic].partitions)
        for partition in there if choice.partitions is None else choice.partitions:
            if partition not in there:
                raise CliError(
                    f"Topic '{choice.topic}' has no partition {partition}, only {len(there)}.",
                    ExitCode.NOT_FOUND,
                )
            places[choice.topic, partition] = None
    return list(places)
