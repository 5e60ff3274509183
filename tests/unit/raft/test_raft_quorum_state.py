"""The quorum-state file against what Apache Kafka 4.3.1 wrote."""

from uuid import UUID

import pytest

from ottla.protocol.ids import BrokerId, Epoch
from ottla.raft.quorum_state import ElectionState, format_quorum_state, parse_quorum_state
from ottla.raft.wire_records import CorruptRecordError

KAFKA_STATIC = (
    '{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
    '"currentVoters":[{"voterId":1}],"data_version":0}'
)
KAFKA_DYNAMIC = (
    '{"leaderId":1,"leaderEpoch":1,"votedId":-1,'
    '"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
)
LED = ElectionState(Epoch(1), leader_id=BrokerId(1))


def test_both_versions_are_written_as_kafka_writes_them() -> None:
    assert format_quorum_state(LED, kraft_version=0, voter_ids=(1,)) == KAFKA_STATIC
    assert format_quorum_state(LED, kraft_version=1, voter_ids=(1,)) == KAFKA_DYNAMIC


def test_both_versions_of_kafka_are_read() -> None:
    assert parse_quorum_state(KAFKA_STATIC) == LED
    assert parse_quorum_state(KAFKA_DYNAMIC) == LED


def test_a_vote_comes_back_with_its_directory() -> None:
    voted = ElectionState(Epoch(4), voted_id=BrokerId(2), voted_directory_id=UUID(int=77))
    assert parse_quorum_state(format_quorum_state(voted, kraft_version=1, voter_ids=())) == voted


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"data_version":2}', KAFKA_DYNAMIC.replace("1,", '"x",', 1)]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(CorruptRecordError):
        parse_quorum_state(text)
