"""The `quorum-state` file: which epoch this node has seen, and whom it voted for in it.

A node that forgot its vote could vote twice in one epoch and elect two leaders, so the file is
replaced durably before the vote, or the claim to lead, takes effect. Version 0 is written while
kraft.version is 0, version 1 after; both as Kafka's JSON.

Pure: text in, text out. raft/driver.py owns the file.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from ottla.protocol import uuids
from ottla.protocol.ids import NO_BROKER, BrokerId, Epoch
from ottla.raft.wire_records import ZERO_UUID, CorruptRecordError

FILE_NAME = "quorum-state"


class ElectionState(NamedTuple):
    epoch: Epoch
    leader_id: BrokerId = NO_BROKER
    voted_id: BrokerId = NO_BROKER
    voted_directory_id: UUID = ZERO_UUID


NO_ELECTION_YET = ElectionState(Epoch(0))


def format_quorum_state(
    state: ElectionState, *, kraft_version: int, voter_ids: Sequence[int]
) -> str:
    content: dict[str, Any]
    if kraft_version == 0:
        content = {
            "clusterId": "",
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": state.voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter_id} for voter_id in voter_ids],
            "data_version": 0,
        }
    else:
        content = {
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": state.voted_id,
            "votedDirectoryId": uuids.encode(state.voted_directory_id),
            "data_version": 1,
        }
    return json.dumps(content, separators=(",", ":"))


def parse_quorum_state(text: str) -> ElectionState:
    try:
        content = json.loads(text)
        version = content["data_version"]
        if version not in (0, 1):
            raise CorruptRecordError(f"{FILE_NAME} has version {version}; 0 and 1 are known")
        return ElectionState(
            Epoch(int(content["leaderEpoch"])),
            BrokerId(int(content["leaderId"])),
            BrokerId(int(content["votedId"])),
            uuids.decode(content["votedDirectoryId"]) if version == 1 else ZERO_UUID,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptRecordError(f"{FILE_NAME} cannot be read: {error}") from error
