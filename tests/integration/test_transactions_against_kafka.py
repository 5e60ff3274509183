"""The same conversation with Ottla and with Apache Kafka: every version of every transactional API.

Answers are compared field by field; so is what else can be seen: who writes to a partition, how far
it is stable, its batches, and the list of what was aborted.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from bench.brokers import BrokerProcess

from ottla.protocol.api import VERSIONS, ApiKey
from support import transaction_conversations as said
from support.conversations import both_brokers, converse_with_each
from support.wire import Wire

OVERRIDES = {
    "num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "unstable.api.versions.enable": "true",
}

CONVERSATIONS = [
    said.commit_and_abort_as_v2,
    said.commit_offsets_as_v2,
    said.go_on_after_an_error,
    said.begin_while_a_transaction_is_open,
    said.go_on_while_a_transaction_is_open,
    said.produce_for_two,
    said.list_and_describe,
    said.verify,
    said.ask_for_impossible_timeouts,
    said.ask_for_two_phases,
    said.end_what_is_not_open,
    said.end_twice,
    said.add_what_cannot_be_added,
    said.commit_offsets_that_must_not_be,
    said.commit_offsets_of_members,
    said.commit_offsets_of_consumer_members,
    said.write_markers,
    said.delete_under_an_open_transaction,
]
# Where Kafka says what it should not. After DeleteRecords it lists a last stable offset that lies
# below the start of the log, as the open transaction began there.
DELIBERATE = {said.delete_under_an_open_transaction: [("7 LIST_OFFSETS v7", 0, 2)]}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    with both_brokers(tmp_path_factory.mktemp("transactions"), OVERRIDES) as started:
        for broker in started:
            _prepare(broker)
        yield started


def _prepare(broker: BrokerProcess) -> None:
    """Both coordinators' topics loaded: Kafka creates them when they are first asked for."""
    with Wire(broker.bootstrap, timeout_seconds=30) as wire:
        deadline = time.monotonic() + 60
        while True:
            wire.ask(ApiKey.FIND_COORDINATOR, 2, {"key": "warm", "key_type": 0})
            wire.ask(ApiKey.FIND_COORDINATOR, 2, {"key": "warm", "key_type": 1})
            beat = {"group_id": "warm", "member_id": "nobody", "generation_id": 1}
            ended = {"transactional_id": "warm", "producer_id": 1, "producer_epoch": 0}
            begun = {"transactional_id": None, "transaction_timeout": 1000}
            if (
                wire.ask(ApiKey.HEARTBEAT, 3, beat).error_code == 25
                and wire.ask(ApiKey.END_TXN, 3, ended).error_code == 49
                and wire.ask(ApiKey.INIT_PRODUCER_ID, 2, begun).error_code == 0
            ):
                return
            assert time.monotonic() < deadline
            time.sleep(0.1)  # a poll: the protocol has no way to be told


def check(brokers: list[BrokerProcess], converse: Any, *arguments: Any) -> None:
    tag = "-".join(map(str, (converse.__name__.replace("_", "-"), *arguments)))
    bootstraps = [broker.bootstrap for broker in brokers]
    found = converse_with_each(bootstraps, converse, *arguments, tag=tag)
    expected = DELIBERATE.get(converse, [])
    seen = [(one.step, one.kafka, one.ottla) for one in found]
    assert seen == expected, "\n".join(map(str, found))


@pytest.mark.parametrize("converse", CONVERSATIONS, ids=lambda one: one.__name__)
def test_both_brokers_say_the_same(brokers: list[BrokerProcess], converse: Any) -> None:
    check(brokers, converse)


@pytest.mark.parametrize("version", range(VERSIONS[ApiKey.FIND_COORDINATOR][1] + 1))
def test_both_find_the_same_coordinator(brokers: list[BrokerProcess], version: int) -> None:
    check(brokers, said.find_the_coordinator, version)


@pytest.mark.parametrize("version", range(VERSIONS[ApiKey.INIT_PRODUCER_ID][1] + 1))
def test_a_v1_client_hears_the_same(brokers: list[BrokerProcess], version: int) -> None:
    check(brokers, said.commit_and_abort_as_v1, version)


@pytest.mark.parametrize("version", range(VERSIONS[ApiKey.ADD_OFFSETS_TO_TXN][1] + 1))
def test_a_v1_client_commits_offsets_alike(brokers: list[BrokerProcess], version: int) -> None:
    check(brokers, said.commit_offsets_as_v1, version)


@pytest.mark.parametrize("version", [3, 8, 9, 10, 11, 12])
def test_a_produce_that_was_not_added_is_answered_alike(
    brokers: list[BrokerProcess], version: int
) -> None:
    check(brokers, said.produce_what_was_never_added, version)
