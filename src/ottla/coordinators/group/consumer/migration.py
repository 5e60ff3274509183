"""Classic groups that become consumer groups while they live, and back (KIP-848).

A classic group is turned when the first member comes with ConsumerGroupHeartbeat: its members go on
as classic members of the consumer group and are told to rejoin. When the last member that speaks
the consumer protocol goes, those who are left go on as a classic group with a rebalance. Either way
it is one batch of records, tombstones of the one kind first; a crash leaves one kind or the other.

Pure. Invariant: what a member holds by the last assignment that was given out, it holds in the
group that comes after, so nobody else gets it before it is given back.
"""

from collections.abc import Collection, Mapping

from ottla.coordinators.group.classic_group import ClassicGroup
from ottla.coordinators.group.consumer.decision import Decision
from ottla.coordinators.group.consumer.group import ConsumerGroup
from ottla.coordinators.group.consumer.member import (
    ClassicMetadata,
    ConsumerMember,
    Held,
    MemberState,
    TopicId,
)
from ottla.coordinators.group.consumer.records import (
    CURRENT_ASSIGNMENT_TYPE,
    GROUP_EPOCH_TYPE,
    MEMBER_TYPE,
    PARTITION_METADATA_TYPE,
    REGEX_TYPE,
    TARGET_EPOCH_TYPE,
    TARGET_MEMBER_TYPE,
    GroupEpoch,
    TargetEpoch,
    current_assignment_record,
    group_epoch_record,
    member_record,
    target_epoch_record,
    target_member_record,
    tombstone,
)
from ottla.coordinators.group.consumer.settings import Context
from ottla.coordinators.group.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    NamedPartitions,
    encode_assignment,
    parse_assignment,
    parse_subscription,
)
from ottla.coordinators.group.members import Member
from ottla.coordinators.group.records import (
    CoordinatorRecord,
    GroupMetadata,
    MemberMetadata,
    group_record,
    group_tombstone,
)
from ottla.coordinators.group.states import GroupState
from ottla.metadata.image import MetadataImage
from ottla.protocol.errors import ErrorCode, InvariantError, KafkaError


def decide_upgrade(classic: ClassicGroup, context: Context) -> list[CoordinatorRecord]:
    """Records that turn a classic group into a consumer group; GROUP_ID_NOT_FOUND if it may not.

    A group without members is simply replaced.
    """
    if classic.state is GroupState.DEAD:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if not classic.members:
        return [] if classic.recorded is None else [group_tombstone(classic.group_id)]
    settings = context.settings
    if (
        not settings.may_upgrade
        or not classic.is_consumer_group
        or len(classic.members) > settings.size_max
    ):
        raise _not_a_consumer_group(classic.group_id)
    try:
        members = _consumer_members(classic, context.image)
    except KafkaError:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade the classic group {classic.group_id[:200]} to consumer group because"
            " the embedded consumer protocol is malformed.",
        ) from None
    group_id, epoch = classic.group_id, classic.generation
    records = [group_tombstone(group_id)]
    records += [member_record(group_id, one) for one in members]
    records.append(group_epoch_record(group_id, GroupEpoch(epoch)))
    for one in members:
        target = {topic_id: frozenset(held) for topic_id, held in one.assigned.items()}
        records.append(target_member_record(group_id, one.member_id, target))
    records.append(target_epoch_record(group_id, TargetEpoch(epoch)))
    records += [current_assignment_record(group_id, one) for one in members]
    return records


def decide_downgrade(
    group: ConsumerGroup,
    leaving: Collection[str],
    context: Context,
    out: Decision,
    *,
    joining: ConsumerMember | None = None,
    epoch: int | None = None,
) -> bool:
    """Turn the group into a classic one if only classic members stay; whether that is so.

    `joining` takes the place of the one that leaves: a static member that came back, or the same
    member in the classic protocol. `epoch` is the group's if this very decision has moved it.
    """
    staying = [one for one in group.members.values() if one.member_id not in leaving]
    has_consumer_leaving = any(
        group.members[one].classic is None for one in leaving if one in group.members
    )
    if joining is not None:
        staying.append(joining)
    settings = context.settings
    if (
        not has_consumer_leaving
        or not staying
        or any(one.classic is None for one in staying)
        or not settings.may_downgrade
        or len(staying) > settings.classic_size_max
    ):
        return False
    staying_ids = {one.member_id for one in staying}
    out.records += group_tombstones(group, also=staying_ids - set(group.members))
    generation = group.epoch if epoch is None else epoch
    metadata = _classic_metadata(generation, staying, context)
    out.records.append(group_record(group.group_id, metadata))
    out.removed += [one for one in leaving if one not in staying_ids]
    out.becomes_classic = True
    # A group of members that all have what they shall have may go on as it is.
    out.needs_rebalance = joining is None or any(
        not one.is_reconciled_to(generation) for one in staying
    )
    return True


def group_tombstones(group: ConsumerGroup, also: Collection[str] = ()) -> list[CoordinatorRecord]:
    """Everything that the log has of a group; `also` names members of the same batch."""
    group_id = group.group_id
    member_ids = dict.fromkeys((*group.members, *group.targets, *also))
    records = [tombstone(CURRENT_ASSIGNMENT_TYPE, group_id, one) for one in member_ids]
    records += [tombstone(TARGET_MEMBER_TYPE, group_id, one) for one in member_ids]
    records.append(tombstone(TARGET_EPOCH_TYPE, group_id))
    records += [tombstone(MEMBER_TYPE, group_id, one) for one in member_ids]
    if group.has_partition_metadata:
        records.append(tombstone(PARTITION_METADATA_TYPE, group_id))
    records += [tombstone(REGEX_TYPE, group_id, regex) for regex in group.regexes]
    records.append(tombstone(GROUP_EPOCH_TYPE, group_id))
    return records


def named(held: Held, image: MetadataImage) -> NamedPartitions:
    """Partitions by the names of their topics; topics that are gone have none."""
    found: dict[str, tuple[int, ...]] = {}
    for topic_id, partitions in held.items():
        topic = image.topics_by_raw_id.get(topic_id)
        if topic is not None:
            found[topic.name] = tuple(sorted(partitions))
    return found


def first_metadata(classic: ClassicMetadata) -> bytes:
    """A member says the same under each of its protocols; the first one speaks for all."""
    if not classic.protocols:
        raise InvariantError("a classic member has no protocol")
    return classic.protocols[0][1]


def classic_assignment(member: ConsumerMember, image: MetadataImage) -> bytes:
    """What a classic member holds, in the version that it speaks."""
    if member.classic is None:
        raise InvariantError(f"{member.member_id} is not a classic member")
    version = parse_subscription(first_metadata(member.classic)).version
    return encode_assignment(named(member.assigned, image), version)


def _consumer_members(classic: ClassicGroup, image: MetadataImage) -> list[ConsumerMember]:
    recorded = classic.recorded
    given = {} if recorded is None else {one.member_id: one.assignment for one in recorded.members}
    taken: set[tuple[TopicId, int]] = set()
    return [
        _consumer_member(
            one, classic, _held(given.get(one.member_id, b""), classic.generation, image, taken)
        )
        for one in classic.members
    ]


def _consumer_member(member: Member, classic: ClassicGroup, held: Held) -> ConsumerMember:
    subscription = parse_subscription(member.protocols[0][1])
    return ConsumerMember(
        member.member_id,
        member.instance_id,
        subscription.rack_id,
        member.client_id,
        member.client_host,
        subscription.topics,
        "",
        member.rebalance_timeout_ms,
        None,
        ClassicMetadata(member.session_timeout_ms, member.protocols),
        classic.generation,
        classic.generation,
        MemberState.STABLE,
        held,
    )


def _held(
    assignment: bytes, epoch: int, image: MetadataImage, taken: set[tuple[TopicId, int]]
) -> Held:
    """What a leader gave, of topics that are there; a partition that it gave twice counts once."""
    held: dict[TopicId, Mapping[int, int]] = {}
    for name, partitions in parse_assignment(assignment).items():
        topic = image.topics.get(name)
        if topic is None:
            continue
        raw_id = topic.topic_id.bytes
        mine = {one: epoch for one in partitions if (raw_id, one) not in taken}
        if mine:
            taken.update((raw_id, one) for one in mine)
            held[raw_id] = mine
    return held


def _classic_metadata(
    generation: int, staying: list[ConsumerMember], context: Context
) -> GroupMetadata:
    protocol = _common_protocol(staying)
    members = []
    for one in staying:
        if one.classic is None:
            raise InvariantError(f"{one.member_id} is not a classic member")
        members.append(
            MemberMetadata(
                one.member_id,
                one.instance_id,
                one.client_id,
                one.client_host,
                one.rebalance_timeout_ms,
                one.classic.session_timeout_ms,
                dict(one.classic.protocols).get(protocol, b""),
                classic_assignment(one, context.image),
            )
        )
    return GroupMetadata(
        CONSUMER_PROTOCOL_TYPE,
        generation,
        protocol,
        members[0].member_id,
        context.now.wall_ms,
        tuple(members),
    )


def _common_protocol(staying: list[ConsumerMember]) -> str:
    """The first protocol of the first member that all of them can do; there is one by `join`."""
    able = [{name for name, _ in one.classic.protocols} for one in staying if one.classic]
    first = staying[0].classic
    for name, _ in first.protocols if first is not None else ():
        if all(name in names for names in able):
            return name
    raise InvariantError("classic members of a group have no protocol in common")


def _not_a_consumer_group(group_id: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id[:200]} is not a consumer group"
    )
