"""Transactions whose time runs out, that hang, that outlive a broker: over a real socket."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

import pytest

from ottla.coordinators.transaction.metadata import EXHAUSTED_FROM, TransactionMetadata
from ottla.coordinators.transaction.records import TransactionRecord, transaction_record
from ottla.coordinators.transaction.states import TransactionState
from ottla.protocol.api import ApiKey
from ottla.protocol.batches import Record, build_batch
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import decode_response, encode_request
from ottla.testing import Cluster
from support.conversations import POLL_S, Talk
from support.transaction_conversations import WALL_MS, Speaker

WAIT_S = 20.0
OFTEN = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "20"}


@contextmanager
def talking(cluster: Cluster) -> Iterator[Talk]:
    talk = Talk(cluster.bootstrap_servers, "talk")
    try:
        yield talk
    finally:
        talk.close()


def begun(talk: Talk, name: str = "id", **more: Any) -> Speaker:
    """A producer, after its coordinator was found and loaded."""
    speaker = Speaker(talk, name)
    talk.quietly(ApiKey.FIND_COORDINATOR, 2, key=speaker.id, key_type=1)
    until(lambda: speaker.init(**more).error_code == ErrorCode.NONE)
    return speaker


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(POLL_S)  # a poll: the protocol has no way to be told


def state_of(speaker: Speaker) -> Any:
    answer = speaker.talk.quietly(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[speaker.id])
    return answer.transaction_states[0]


def code_of(produced: Any) -> int:
    code: int = produced.responses[0].partition_responses[0].error_code
    return code


def stable_offset(speaker: Speaker) -> tuple[int, int]:
    """Where committed records of partition 0 end, and where all do."""
    found = []
    for isolation in (1, 0):
        answer = speaker.talk.quietly(
            ApiKey.LIST_OFFSETS,
            7,
            replica_id=-1,
            isolation_level=isolation,
            topics=[
                {"name": speaker.topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}
            ],
        )
        found.append(answer.topics[0].partitions[0].offset)
    return found[0], found[1]


@pytest.mark.parametrize("version", [9, 12])
def test_a_transaction_past_its_timeout_is_aborted_and_its_producer_fenced(version: int) -> None:
    with Cluster(config=OFTEN) as cluster, talking(cluster) as talk:
        speaker = begun(talk, transaction_timeout=50)
        if version < 12:
            speaker.add(3, 0)
        assert code_of(speaker.produce(version, 0, 3)) == ErrorCode.NONE
        until(lambda: state_of(speaker).transaction_state == "CompleteAbort")
        assert stable_offset(speaker) == (4, 4)
        assert code_of(speaker.produce(version, 0)) == ErrorCode.INVALID_PRODUCER_EPOCH
        ended = speaker.end(4, is_commit=True)
        assert ended.error_code == ErrorCode.PRODUCER_FENCED
        assert speaker.init().error_code == ErrorCode.NONE  # whoever comes next gets on


TWO_PHASES = {
    "transaction.two.phase.commit.enable": "true",
    "unstable.api.versions.enable": "true",
}


def test_a_transaction_of_two_phases_waits_for_its_outside_coordinator() -> None:
    with Cluster(config={**OFTEN, **TWO_PHASES}) as cluster, talking(cluster) as talk:
        speaker = begun(talk, version=6, transaction_timeout=1, enable2_pc=True)
        hasty = Speaker(talk, "hasty", "hasty")
        hasty.init(transaction_timeout=1)
        speaker.produce(12, 0)
        hasty.produce(12, 0)
        until(lambda: state_of(hasty).transaction_state == "CompleteAbort")
        assert state_of(speaker).transaction_state == "Ongoing"
        assert speaker.end(5, is_commit=True).error_code == ErrorCode.NONE


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_prepared_transaction_outlives_its_producer_and_the_broker(is_commit: bool) -> None:
    asked = {"version": 6, "enable2_pc": True, "keep_prepared_txn": True}
    with Cluster(config=TWO_PHASES) as cluster:
        with talking(cluster) as talk:
            dead = begun(talk, **asked)
            dead.produce(12, 0, 2)
        cluster.kill()
        cluster.start()
        with talking(cluster) as talk:
            successor = copy(dead)
            successor.sequences = {}
            dead.talk = successor.talk = talk
            until(lambda: successor.init(**asked).error_code == ErrorCode.NONE)
            answer = successor.init(**asked)
            prepared = (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch)
            assert prepared == (dead.producer_id, dead.epoch)
            assert successor.epoch > dead.epoch
            assert stable_offset(successor) == (0, 2)
            assert code_of(successor.produce(12, 1)) == ErrorCode.INVALID_TXN_STATE
            assert dead.end(5, is_commit=not is_commit).error_code == ErrorCode.PRODUCER_FENCED
            assert successor.end(5, is_commit=is_commit).error_code == ErrorCode.NONE
            assert stable_offset(successor) == (3, 3)
            ended = "CompleteCommit" if is_commit else "CompleteAbort"
            assert state_of(successor).transaction_state == ended
            assert code_of(successor.produce(12, 1)) == ErrorCode.NONE  # one of its own
            assert successor.end(5, is_commit=True).error_code == ErrorCode.NONE


def test_an_id_that_nobody_uses_is_forgotten() -> None:
    config = {
        "transactional.id.expiration.ms": "200",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "20",
    }
    with Cluster(config=config) as cluster, talking(cluster) as talk:
        speaker = begun(talk)
        first = speaker.producer_id
        speaker.produce(12, 0)
        until(lambda: state_of(speaker).error_code == ErrorCode.NONE)
        speaker.end(5, is_commit=True)
        until(lambda: state_of(speaker).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        assert speaker.end(5, is_commit=True).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert speaker.init().producer_id != first
        cluster.restart()
        with talking(cluster) as again:
            speaker.talk = again
            until(lambda: state_of(speaker).error_code != ErrorCode.NOT_COORDINATOR)


def test_a_hanging_transaction_is_found_and_aborted() -> None:
    """As kafka-transactions does it; the configuration lets one come into being."""
    config = {"transaction.partition.verification.enable": "false"}
    with Cluster(config=config) as cluster, talking(cluster) as talk:
        speaker = begun(talk)
        assert code_of(speaker.produce(9, 0)) == ErrorCode.NONE  # never added
        assert state_of(speaker).transaction_state == "Empty"
        assert stable_offset(speaker) == (0, 1)
        answer = talk.quietly(
            ApiKey.DESCRIBE_PRODUCERS,
            0,
            topics=[{"name": speaker.topic, "partition_indexes": [0]}],
        )
        (hanging,) = answer.topics[0].partitions[0].active_producers
        assert hanging.current_txn_start_offset == 0
        marker = {
            "producer_id": hanging.producer_id,
            "producer_epoch": hanging.producer_epoch,
            "transaction_result": False,
            "topics": [{"name": speaker.topic, "partition_indexes": [0]}],
            "coordinator_epoch": hanging.coordinator_epoch,
        }
        answer = talk.quietly(ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker])
        partition = answer.markers[0].topics[0].partitions[0]
        assert partition.error_code == ErrorCode.NONE
        assert stable_offset(speaker) == (2, 2)


def test_verification_can_be_switched_on_while_the_broker_runs() -> None:
    config = {"transaction.partition.verification.enable": "false"}
    with Cluster(config=config) as cluster, talking(cluster) as talk:
        speaker = begun(talk)
        change = {
            "name": "transaction.partition.verification.enable",
            "config_operation": 0,
            "value": "true",
        }
        altered = talk.quietly(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            1,
            resources=[{"resource_type": 4, "resource_name": "", "configs": [change]}],
            validate_only=False,
        )
        assert altered.responses[0].error_code == ErrorCode.NONE
        assert code_of(speaker.produce(9, 0)) == ErrorCode.INVALID_TXN_STATE
        assert stable_offset(speaker) == (0, 0)


@pytest.mark.parametrize("version", [9, 12])
def test_an_open_transaction_outlives_the_broker(version: int) -> None:
    with Cluster() as cluster:
        with talking(cluster) as talk:
            speaker = begun(talk)
            if version < 12:
                speaker.add(3, 0)
            speaker.produce(version, 0, 2)
        cluster.kill()
        cluster.start()
        with talking(cluster) as talk:
            speaker.talk = talk
            until(lambda: state_of(speaker).transaction_state == "Ongoing")
            assert stable_offset(speaker) == (0, 2)
            assert code_of(speaker.produce(version, 0)) == ErrorCode.NONE
            ended = speaker.end(5 if version >= 12 else 4, is_commit=True)
            assert ended.error_code == ErrorCode.NONE
            assert stable_offset(speaker) == (4, 4)


def test_epochs_that_run_out_bring_another_producer_id() -> None:
    with Cluster() as cluster:
        with talking(cluster) as talk:
            speaker = begun(talk)
            first = speaker.producer_id
            speaker.epoch = EXHAUSTED_FROM  # as after as many transactions
            old = TransactionMetadata(
                first, EXHAUSTED_FROM, 60_000, TransactionState.EMPTY, last_update_ms=WALL_MS
            )
            write_to_the_log(talk, transaction_record(speaker.id, old, transaction_version=2))
        cluster.restart()
        with talking(cluster) as talk:
            speaker.talk = talk
            until(lambda: state_of(speaker).producer_epoch == EXHAUSTED_FROM)
            assert code_of(speaker.produce(12, 0)) == ErrorCode.NONE
            before = {"producer_id": speaker.producer_id, "producer_epoch": speaker.epoch}
            speaker.end(5, is_commit=True)
            assert speaker.epoch == 0
            assert speaker.producer_id != first
            after = speaker.producer_id
            assert speaker.end(5, is_commit=True, **before).producer_id == after  # asked again
            speaker.producer_id, speaker.epoch = after, 0
            assert code_of(speaker.produce(12, 0)) == ErrorCode.NONE
            assert speaker.end(5, is_commit=True).error_code == ErrorCode.NONE
            assert stable_offset(speaker) == (4, 4)


def write_to_the_log(talk: Talk, record: TransactionRecord) -> None:
    """To the internal topic, which takes it from an admin client."""
    batch = build_batch([Record(0, WALL_MS, record.key, record.value)])
    fields = {
        "transactional_id": None,
        "acks": -1,
        "timeout": 10_000,
        "topic_data": [
            {
                "name": "__transaction_state",
                "partition_data": [{"index": 0, "records": bytes(batch)}],
            }
        ],
    }
    talk.wire.send(encode_request(ApiKey.PRODUCE, 9, 1, "__admin_client", fields))
    frame = talk.wire.receive()
    assert frame is not None
    answer = decode_response(ApiKey.PRODUCE, 9, memoryview(frame))[1]
    assert code_of(answer) == ErrorCode.NONE
