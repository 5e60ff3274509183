"""What the cluster knows of consumer groups: members, committed offsets, and the logs behind them.

Every question goes to all groups at once and the answers are gathered afterwards, so that a
hundred groups cost a few round trips. A topic that is gone leaves its row without a log end.

Blocking shell over librdkafka; every error leaves here as a `CliError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.cli.client import Admin, kafka_admin
from ottla.cli.errors import CliError, ExitCode
from ottla.cli.offset_reset import Bounds, Place

if TYPE_CHECKING:
    from ottla.client import Client

NO_OFFSET = -1
# States in which nobody reads for the group, so that its offsets may be set from outside.
INACTIVE_STATES = frozenset({"Empty", "Dead"})


@dataclass(frozen=True, slots=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[Place, ...]
    target_assignment: tuple[Place, ...] | None


@dataclass(frozen=True, slots=True)
class Epochs:
    """How far a group of the new protocol is: its own epoch, its target's, its members'."""

    group_epoch: int
    target_epoch: int
    members: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Committed:
    offset: int
    leader_epoch: int | None


@dataclass(frozen=True, slots=True)
class Group:
    group_id: str
    type: str
    state: str
    assignor: str | None
    coordinator_id: int
    coordinator_address: str
    members: tuple[Member, ...]


def group_not_found(group_id: str) -> CliError:
    """The sentence for a group that is not there."""
    return CliError(
        f"Group '{group_id}' does not exist; 'ottla group list' shows those that do.",
        ExitCode.NOT_FOUND,
    )


def state_name(state: Any) -> str:
    """A state as Kafka writes it: `PreparingRebalance`."""
    return "".join(word.capitalize() for word in state.name.split("_"))


class GroupAdmin:
    def __init__(self, admin: Admin) -> None:
        self.admin = admin

    def listed(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[dict[str, Any]]:
        """Every consumer group; an error of one broker is raised, as the list would be short."""
        from confluent_kafka import ConsumerGroupState, ConsumerGroupType

        options: dict[str, Any] = dict(self.admin.request_timeout)
        if wanted_states := {s for s in ConsumerGroupState if state_name(s) in set(states)}:
            options["states"] = wanted_states
        if wanted_types := {t for t in ConsumerGroupType if state_name(t) in set(types)}:
            options["types"] = wanted_types
        found = self.admin.result(self.admin.raw.list_consumer_groups(**options))
        for error in found.errors or ():
            self._raise(error)
        rows = [
            {
                "group": listing.group_id,
                "type": state_name(listing.type),
                "state": state_name(listing.state),
                "simple": listing.is_simple_consumer_group,
            }
            for listing in found.valid or ()
        ]
        return sorted(rows, key=lambda row: str(row["group"]))

    def ids(self) -> list[str]:
        """The names of all groups."""
        return [row["group"] for row in self.listed()]

    def described(self, group_ids: Sequence[str]) -> dict[str, Group]:
        """Groups by name, those that do not exist in state Dead without members."""
        if not group_ids:
            return {}
        futures = self.admin.raw.describe_consumer_groups(
            list(group_ids), **self.admin.request_timeout
        )
        return {
            group_id: self._described_one(group_id, future)
            for group_id, future in sorted(futures.items())
        }

    def _described_one(self, group_id: str, future: Any) -> Group:
        try:
            found = self.admin.result(future)
        except CliError as error:
            if error.exit_code is not ExitCode.NOT_FOUND:
                raise
            return Group(group_id, "Unknown", "Dead", None, -1, "", ())
        node = found.coordinator
        return Group(
            group_id,
            state_name(found.type),
            state_name(found.state),
            found.partition_assignor or None,
            node.id,
            f"{node.host}:{node.port}",
            tuple(_member(one) for one in found.members),
        )

    def existing(self, group_ids: Sequence[str]) -> dict[str, Group]:
        """Groups by name; NOT_FOUND for the first that does not exist."""
        groups = self.described(group_ids)
        for group_id in group_ids:
            if groups[group_id].state == "Dead":
                raise group_not_found(group_id)
        return groups

    def committed(self, group_ids: Sequence[str]) -> dict[str, dict[Place, Committed]]:
        """What is committed of every partition that has an offset, by group."""
        from confluent_kafka import ConsumerGroupTopicPartitions

        futures = {
            group_id: self.admin.raw.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group_id)], **self.admin.request_timeout
            )[group_id]
            for group_id in group_ids
        }
        return {
            group_id: {
                (one.topic, one.partition): Committed(one.offset, one.leader_epoch)
                for one in self.admin.result(future, f"group '{group_id}'").topic_partitions
                if one.offset >= 0
            }
            for group_id, future in futures.items()
        }

    def offsets(self, group_ids: Sequence[str]) -> dict[str, dict[Place, int]]:
        """The committed offset of every partition that has one, by group."""
        return {
            group_id: {place: one.offset for place, one in found.items()}
            for group_id, found in self.committed(group_ids).items()
        }

    def epochs(self, groups: Mapping[str, Group]) -> dict[str, Epochs]:
        """The epochs of those groups that have any; librdkafka reads them and does not tell."""
        from ottla.cli.wire import asked

        new = [name for name, found in groups.items() if found.type == "Consumer"]

        def ask(client: Client) -> dict[str, Epochs]:
            return {name: _epochs(client, name) for name in new}

        return asked(self.admin.connection, ask) if new else {}

    def end_offsets(self, places: Iterable[Place]) -> dict[Place, int | None]:
        """Where each partition ends; None where the topic is gone or has no leader."""
        from confluent_kafka import TopicPartition

        spec = kafka_admin().OffsetSpec.latest()
        request = {TopicPartition(topic, number): spec for topic, number in places}
        if not request:
            return {}
        futures = self.admin.raw.list_offsets(request, **self.admin.request_timeout)
        outcomes = self.admin.outcomes(futures)
        return {
            (tp.topic, tp.partition): None if isinstance(found, CliError) else found.offset
            for tp, found in outcomes.items()
        }

    def bounds(self, places: Iterable[Place]) -> dict[Place, Bounds]:
        """Where each partition begins and ends."""
        spec = kafka_admin().OffsetSpec
        wanted = list(places)
        first = self.admin.offsets({place: spec.earliest() for place in wanted})
        end = self.admin.offsets({place: spec.latest() for place in wanted})
        return {place: Bounds(first[place], end[place]) for place in wanted}

    def at_time(self, places: Iterable[Place], timestamp_ms: int) -> dict[Place, int]:
        """The first offset at or after a time; NO_OFFSET where there is none."""
        spec = kafka_admin().OffsetSpec.for_timestamp(timestamp_ms)
        return self.admin.offsets(dict.fromkeys(places, spec))

    def commit(self, group_id: str, offsets: Mapping[Place, int]) -> None:
        """Set the offsets of a group that nobody is a member of."""
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        request = ConsumerGroupTopicPartitions(
            group_id,
            [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()],
        )
        futures = self.admin.raw.alter_consumer_group_offsets(
            [request], **self.admin.request_timeout
        )
        found = self.admin.result(futures[group_id], f"group '{group_id}'")
        for one in found.topic_partitions:
            if one.error is None:
                continue
            if one.error.name() in ("UNKNOWN_MEMBER_ID", "NON_EMPTY_GROUP"):
                raise group_is_active(group_id)
            self._raise_error(one.error, f"partition {one.topic}-{one.partition}")

    def delete(self, group_ids: Sequence[str]) -> dict[str, CliError | None]:
        """Delete groups; by name None, or why it was not deleted."""
        futures = self.admin.raw.delete_consumer_groups(
            list(group_ids), **self.admin.request_timeout
        )
        outcomes: dict[str, CliError | None] = {}
        for group_id, future in futures.items():
            outcomes[group_id] = None
            try:
                self.admin.result(future)
            except CliError as error:
                outcomes[group_id] = _delete_error(group_id, error)
        return outcomes

    def forget(self, found: Group, places: Sequence[Place]) -> dict[Place, str]:
        """Delete committed offsets; by partition why one was kept. librdkafka's Python lacks it."""
        from ottla.cli.wire import asked
        from ottla.client import CoordinatorType
        from ottla.protocol.api import ApiKey
        from ottla.protocol.errors import ErrorCode

        by_topic: dict[str, list[int]] = {}
        for topic, partition in places:
            by_topic.setdefault(topic, []).append(partition)
        fields = {
            "group_id": found.group_id,
            "topics": [
                {"name": topic, "partitions": [{"partition_index": p} for p in partitions]}
                for topic, partitions in by_topic.items()
            ],
        }
        response = asked(
            self.admin.connection,
            lambda client: client.ask(
                ApiKey.OFFSET_DELETE,
                fields,
                node_id=client.coordinator(CoordinatorType.GROUP, found.group_id),
            ),
        )
        whole = ErrorCode(response.error_code)
        if whole is ErrorCode.GROUP_ID_NOT_FOUND:
            raise group_not_found(found.group_id)
        if whole is not ErrorCode.NONE:
            raise CliError(f"Group '{found.group_id}': the broker answered {whole.name}.")
        return {
            (topic.name, one.partition_index): f"Error: {ErrorCode(one.error_code).name}"
            for topic in response.topics
            for one in topic.partitions
            if one.error_code != ErrorCode.NONE
        }

    def _raise(self, exception: Any) -> None:
        self._raise_error(exception.args[0], None)

    def _raise_error(self, error: Any, subject: str | None) -> None:
        from ottla.cli.client import error_of

        raise error_of(error, self.admin.troubles, subject)


def group_is_active(group_id: str, state: str = "Stable") -> CliError:
    """The sentence for offsets that cannot be set while members read."""
    return CliError(f"Group '{group_id}' is active ({state}); stop its consumers, then try again.")


def _delete_error(group_id: str, error: CliError) -> CliError:
    if error.exit_code is ExitCode.NOT_FOUND:
        return group_not_found(group_id)
    if "not empty" in error.message:
        return CliError(
            f"Group '{group_id}' has members and was not deleted; stop its consumers, then try "
            "again."
        )
    return CliError(f"Group '{group_id}': {error.message}", error.exit_code)


def _member(found: Any) -> Member:
    target = found.target_assignment
    return Member(
        found.member_id,
        found.group_instance_id,
        found.client_id,
        found.host,
        _places(found.assignment),
        None if target is None else _places(target),
    )


def _places(assignment: Any) -> tuple[Place, ...]:
    return tuple(sorted((one.topic, one.partition) for one in assignment.topic_partitions))


def _epochs(client: Client, group_id: str) -> Epochs:
    from ottla.client import CoordinatorType
    from ottla.client.errors import raise_for
    from ottla.protocol.api import ApiKey

    response = client.ask(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        {"group_ids": [group_id], "include_authorized_operations": False},
        node_id=client.coordinator(CoordinatorType.GROUP, group_id),
    )
    (found,) = response.groups
    raise_for(found.error_code, f"Group '{group_id}' cannot be described", found.error_message)
    members = {one.member_id: int(one.member_epoch) for one in found.members}
    return Epochs(int(found.group_epoch), int(found.assignment_epoch), members)
