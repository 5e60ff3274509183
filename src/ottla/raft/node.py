"""Who leads the metadata quorum, and up to where its log is committed.

Raft as KRaft has it (KIP-595, KIP-853): a voter that hears of no leader campaigns in a new epoch,
leads once a majority has granted it, and commits what a majority holds durably. The high
watermark of a new leader does not move before a record of its own epoch is on a majority, as
earlier records could still be replaced.

Pure: `on_*` takes an event, `maybe_lead` sees whether it was enough, and `Effects` come back, which
raft/driver.py performs. The driver knows no peers and refuses a quorum of more than its node.

Ordering duty: `Effects.election` must be durable before anything else of the same Effects is
done. Invariants: the epoch never falls; the high watermark never falls; at most one vote is cast
per epoch.
"""

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple

from ottla.protocol.errors import InvariantError
from ottla.protocol.ids import NO_BROKER, BrokerId, Epoch, Offset
from ottla.raft.control_records import (
    ControlRecord,
    ElectionVoter,
    KRaftVersionRecord,
    LeaderChangeMessage,
    Voter,
    VotersRecord,
)
from ottla.raft.quorum_state import ElectionState


class Role(Enum):
    UNATTACHED = auto()  # knows an epoch, but no leader of it
    CANDIDATE = auto()
    LEADER = auto()
    RESIGNED = auto()  # led this epoch in an earlier life and must not lead it again


class Quorum(NamedTuple):
    """Who votes. `recorded` is False while the log does not hold the voters yet."""

    kraft_version: int
    voters: tuple[Voter, ...]
    recorded: bool = True

    @property
    def voter_ids(self) -> tuple[int, ...]:
        return tuple(voter.voter_id for voter in self.voters)

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1


class Effects(NamedTuple):
    election: ElectionState | None = None  # to be made durable first
    epoch_start: tuple[ControlRecord, ...] = ()  # to be appended as the first batch of the epoch
    high_watermark: Offset | None = None  # everything before it is committed


NOTHING = Effects()


class RaftNode:
    def __init__(
        self,
        *,
        node_id: BrokerId,
        quorum: Quorum,
        election: ElectionState,
        log_end_offset: Offset,
        last_log_epoch: Epoch,
    ) -> None:
        self.node_id = node_id
        self.quorum = quorum
        self.election = election
        if last_log_epoch > election.epoch:
            # The file is behind when it was lost; the log still proves that the epoch began.
            self.election = ElectionState(last_log_epoch)
        self.role = Role.RESIGNED if self.election.leader_id == node_id else Role.UNATTACHED
        self.high_watermark = Offset(0)
        self._granted: set[int] = set()
        self._held: dict[int, Offset] = {}  # by voter: up to where it holds the log durably
        self._log_end_offset = log_end_offset
        self._epoch_start_offset = log_end_offset

    @property
    def epoch(self) -> Epoch:
        return self.election.epoch

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    def on_election_timeout(self) -> Effects:
        """Campaign in a new epoch, if this node votes at all and does not lead already."""
        if self.role is Role.LEADER or self.node_id not in self.quorum.voter_ids:
            return NOTHING
        own = next(voter for voter in self.quorum.voters if voter.voter_id == self.node_id)
        self.role = Role.CANDIDATE
        self._granted = {self.node_id}
        self.election = ElectionState(
            Epoch(self.epoch + 1), NO_BROKER, self.node_id, own.voter_directory_id
        )
        return Effects(election=self.election)

    def on_vote_granted(self, voter_id: int, epoch: Epoch) -> None:
        """A voter answered yes; votes for another epoch than the current one are stale."""
        if self.role is Role.CANDIDATE and epoch == self.epoch:
            self._granted.add(voter_id)

    def maybe_lead(self) -> Effects:
        """Take the lead once a majority has granted it and the own vote is durable."""
        granting = self._granted & set(self.quorum.voter_ids)
        if self.role is not Role.CANDIDATE or len(granting) < self.quorum.majority:
            return NOTHING
        self.role = Role.LEADER
        self.election = ElectionState(self.epoch, self.node_id)
        self._epoch_start_offset = self._log_end_offset
        self._held = dict.fromkeys(self.quorum.voter_ids, Offset(0))
        return Effects(election=self.election, epoch_start=self._epoch_start_records(granting))

    def _epoch_start_records(self, granting: set[int]) -> tuple[ControlRecord, ...]:
        leader_change = LeaderChangeMessage(
            leader_id=self.node_id,
            voters=tuple(ElectionVoter(voter_id) for voter_id in self.quorum.voter_ids),
            granting_voters=tuple(ElectionVoter(voter_id) for voter_id in sorted(granting)),
        )
        if self.quorum.recorded or self.quorum.kraft_version == 0:
            return (leader_change,)
        # The first leader moves the voters from the formatted directory into the log.
        return (
            leader_change,
            KRaftVersionRecord(kraft_version=self.quorum.kraft_version),
            VotersRecord(voters=self.quorum.voters),
        )

    def on_appended(self, log_end_offset: Offset) -> None:
        """The leader's log now ends here; none of it needs to be durable yet."""
        if not self.is_leader:
            raise InvariantError("a node that does not lead appended to the metadata log")
        if log_end_offset < self._log_end_offset:
            raise InvariantError(f"the metadata log shrank to {log_end_offset} under its leader")
        self._log_end_offset = log_end_offset

    def on_durable(self, voter_id: int, end_offset: Offset) -> Effects:
        """A voter holds the log durably up to `end_offset` (exclusive)."""
        if not self.is_leader or voter_id not in self._held:
            return NOTHING
        self._held[voter_id] = max(self._held[voter_id], end_offset)
        agreed = agreed_offset(self._held)
        if agreed <= self._epoch_start_offset or agreed <= self.high_watermark:
            return NOTHING
        self.high_watermark = agreed
        return Effects(high_watermark=agreed)


def agreed_offset(held: Mapping[int, Offset]) -> Offset:
    """The highest offset that a majority of the voters has reached."""
    ordered: Sequence[Offset] = sorted(held.values(), reverse=True)
    return ordered[len(ordered) // 2]
