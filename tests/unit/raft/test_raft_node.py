"""The Raft node: elections, and the high watermark against a dumb oracle."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.ids import BrokerId, Epoch, Offset
from ottla.raft.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    Voter,
    VotersRecord,
)
from ottla.raft.node import NOTHING, Quorum, RaftNode, Role, agreed_offset
from ottla.raft.quorum_state import NO_ELECTION_YET, ElectionState


def quorum_of(*voter_ids: int, kraft_version: int = 1, recorded: bool = True) -> Quorum:
    return Quorum(kraft_version, tuple(Voter(voter_id=v) for v in voter_ids), recorded)


def node_in(
    quorum: Quorum,
    *,
    election: ElectionState = NO_ELECTION_YET,
    log_end_offset: int = 0,
    last_log_epoch: int = -1,
) -> RaftNode:
    return RaftNode(
        node_id=BrokerId(1),
        quorum=quorum,
        election=election,
        log_end_offset=Offset(log_end_offset),
        last_log_epoch=Epoch(last_log_epoch),
    )


def test_the_only_voter_votes_for_itself_before_it_leads() -> None:
    node = node_in(quorum_of(1))
    voted = node.on_election_timeout()
    assert voted.election == ElectionState(Epoch(1), voted_id=BrokerId(1))
    assert voted.epoch_start == ()
    assert node.role is Role.CANDIDATE
    led = node.maybe_lead()
    assert led.election == ElectionState(Epoch(1), leader_id=BrokerId(1))
    (change,) = led.epoch_start
    assert isinstance(change, LeaderChangeMessage)
    assert change.leader_id == 1
    assert [voter.voter_id for voter in change.granting_voters] == [1]


def test_the_first_leader_moves_the_formatted_voters_into_the_log() -> None:
    quorum = quorum_of(1, recorded=False)
    node = node_in(quorum)
    node.on_election_timeout()
    _, version, voters = node.maybe_lead().epoch_start
    assert version == KRaftVersionRecord(kraft_version=1)
    assert voters == VotersRecord(voters=quorum.voters)


def test_static_voters_stay_out_of_the_log() -> None:
    node = node_in(quorum_of(1, kraft_version=0, recorded=False))
    node.on_election_timeout()
    assert len(node.maybe_lead().epoch_start) == 1


def test_a_leader_that_restarts_leads_a_later_epoch() -> None:
    node = node_in(quorum_of(1), election=ElectionState(Epoch(7), leader_id=BrokerId(1)))
    assert node.role is Role.RESIGNED
    node.on_election_timeout()
    node.maybe_lead()
    assert node.epoch == 8


def test_the_log_proves_an_epoch_that_the_state_file_forgot() -> None:
    node = node_in(quorum_of(1), log_end_offset=10, last_log_epoch=5)
    node.on_election_timeout()
    assert node.epoch == 6


def test_a_candidate_among_three_waits_for_a_majority() -> None:
    node = node_in(quorum_of(1, 2, 3))
    node.on_election_timeout()
    assert node.maybe_lead() == NOTHING
    node.on_vote_granted(2, Epoch(0))  # of an epoch that is over
    node.on_vote_granted(9, node.epoch)  # of somebody who does not vote
    assert node.maybe_lead() == NOTHING
    node.on_vote_granted(3, node.epoch)
    assert node.maybe_lead().election == ElectionState(Epoch(1), leader_id=BrokerId(1))


def test_a_node_that_does_not_vote_never_campaigns() -> None:
    node = node_in(quorum_of(2, 3))
    assert node.on_election_timeout() == NOTHING
    assert node.role is Role.UNATTACHED


def test_earlier_records_are_committed_only_with_one_of_the_own_epoch() -> None:
    node = node_in(quorum_of(1), log_end_offset=10, last_log_epoch=3)
    node.on_election_timeout()
    node.maybe_lead()
    assert node.on_durable(1, Offset(10)) == NOTHING
    node.on_appended(Offset(11))
    assert node.on_durable(1, Offset(11)).high_watermark == 11
    assert node.on_durable(1, Offset(11)) == NOTHING


@given(st.dictionaries(st.integers(1, 7), st.integers(0, 5), min_size=1))
def test_the_agreed_offset_is_the_highest_on_a_majority(held: dict[int, int]) -> None:
    expected = max(
        offset
        for offset in range(6)
        if 2 * sum(1 for at in held.values() if at >= offset) > len(held)
    )
    assert agreed_offset({voter: Offset(at) for voter, at in held.items()}) == expected


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 30)), max_size=40))
def test_the_high_watermark_never_falls_and_rests_on_a_majority(
    acknowledgements: list[tuple[int, int]],
) -> None:
    node = node_in(quorum_of(1, 2, 3))
    node.on_election_timeout()
    node.on_vote_granted(2, node.epoch)
    node.maybe_lead()
    node.on_appended(Offset(30))
    held = dict.fromkeys((1, 2, 3), 0)
    before = 0
    for voter_id, end_offset in acknowledgements:
        node.on_durable(voter_id, Offset(end_offset))
        held[voter_id] = max(held[voter_id], end_offset)
        assert node.high_watermark >= before
        before = node.high_watermark
        assert sum(at >= node.high_watermark for at in held.values()) >= 2
        assert node.high_watermark == sorted(held.values())[1]
