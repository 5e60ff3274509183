"""The states of a classic group and the ways between them. Pure; diagrams are drawn from here."""

from enum import Enum


class GroupState(Enum):
    """The values are what DescribeGroups and ListGroups show."""

    EMPTY = "Empty"  # no members; the group may still hold offsets
    PREPARING_REBALANCE = "PreparingRebalance"  # waiting for members to join
    COMPLETING_REBALANCE = "CompletingRebalance"  # joined; waiting for the leader's assignment
    STABLE = "Stable"
    DEAD = "Dead"  # being deleted


TRANSITIONS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset((GroupState.PREPARING_REBALANCE, GroupState.DEAD)),
    GroupState.PREPARING_REBALANCE: frozenset((GroupState.COMPLETING_REBALANCE, GroupState.EMPTY)),
    GroupState.COMPLETING_REBALANCE: frozenset((GroupState.STABLE, GroupState.PREPARING_REBALANCE)),
    GroupState.STABLE: frozenset((GroupState.PREPARING_REBALANCE,)),
    GroupState.DEAD: frozenset((GroupState.EMPTY,)),  # the tombstone could not be written
}
"""Where a group may go from each state."""
