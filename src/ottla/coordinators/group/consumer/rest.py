"""Members at rest: nothing is decided when one says again what it has just said. Pure.

Nearly all heartbeats are of this kind. The group's state is made of values that are replaced when
they change, never altered; so whether a member is still at rest is seen by looking whether it is
still the same object, and its group still in the same epoch.

Invariant: while a member is at rest, `decide_heartbeat` would have no record for its request, and
would answer it as before.
"""

from typing import NamedTuple

from ottla.coordinators.group.consumer.group import ConsumerGroup
from ottla.coordinators.group.consumer.member import JOIN_EPOCH, ConsumerMember
from ottla.coordinators.group.consumer.requests import HeartbeatRequest
from ottla.coordinators.group.consumer.settings import ConsumerGroupSettings
from ottla.coordinators.group.effects import Fields


class Rest(NamedTuple):
    """What held when a member was found at rest."""

    group: ConsumerGroup
    member: ConsumerMember
    settings: ConsumerGroupSettings

    @property
    def lasts(self) -> bool:
        """Whether nothing has happened since that concerns the member."""
        group, member, _ = self
        return (
            group.members.get(member.member_id) is member
            and group.epoch == group.target_epoch.epoch == member.epoch
            and not group.is_metadata_stale
            and not group.is_dead
        )


def rest_of(
    group: ConsumerGroup,
    request: HeartbeatRequest,
    response: Fields,
    settings: ConsumerGroupSettings,
) -> Rest | None:
    """The rest of the member that was just answered with `response`; None if it has work to do."""
    member = group.members.get(request.member_id)
    if (
        member is None
        or response["assignment"] is not None  # which is not told twice
        or request.member_epoch <= JOIN_EPOCH
        or not member.is_reconciled_to(request.member_epoch)
        or member.regex  # which is looked up again from time to time
    ):
        return None
    rest = Rest(group, member, settings)
    return rest if rest.lasts else None
