"""The same conversation with Ottla and with Apache Kafka: every version of the core APIs.

Where the two differ on purpose, `DELIBERATE` says so and why (docs/adr/0006). Everything else must
be equal, but for sentences, ids, addresses and clocks.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from ottla.protocol.api import PRODUCE_VERSION_MIN, VERSIONS, ApiKey
from support import admin_conversations as admin
from support import cluster_conversations as cluster
from support import record_conversations as records
from support.conversations import ABSENT, both_brokers, converse_with_each
from support.wire import Wire

OVERRIDES = {"num.partitions": "2", "log.retention.ms": "-1"}
UNKNOWN_SERVER_ERROR = -1
INVALID_REQUEST = 42


class Deliberate(NamedTuple):
    """A conversation on which the two disagree: what each says first, and why that stays."""

    converse: Any
    path: str
    kafka: Any
    ottla: Any
    reason: str


DELIBERATE = [
    Deliberate(
        admin.ask_for_a_topic_that_is_made,
        ".topics[{tag}-made].error_code",
        3,
        0,
        "Ottla answers when the topic is there; Kafka makes clients ask again",
    ),
    Deliberate(
        admin.ask_for_nothing,
        ".brokers[]",
        ABSENT,
        {"node_id": 1, "rack": None},
        "Kafka trips over the null; Ottla finds that there is no such topic",
    ),
    Deliberate(
        admin.create_topics_that_collide,
        "[#1][#1]",
        0,
        17,
        "Kafka compares names with existing topics alone, and then has both",
    ),
    Deliberate(
        admin.operate_in_an_unknown_way,
        ".responses[{tag}-operated].error_code",
        UNKNOWN_SERVER_ERROR,
        42,
        "Kafka trips over the operation; Ottla refuses it",
    ),
    Deliberate(
        admin.describe_listeners,
        ".results[1].configs[listener.security.protocol.map].read_only",
        False,
        True,
        "Ottla's listeners are fixed at start",
    ),
    Deliberate(
        admin.describe_receive_buffer,
        ".results[1].configs[socket.receive.buffer.bytes].value",
        "102400",
        "-1",
        "a producer's megabyte comes across in fewer turns (docs/adr/0009)",
    ),
    Deliberate(
        admin.describe_send_buffer,
        ".results[1].configs[socket.send.buffer.bytes].value",
        "102400",
        "212992",
        "a consumer's megabyte gets across in fewer turns (docs/adr/0009)",
    ),
    Deliberate(
        records.produce_with_unknown_codecs,
        ".responses[{tag}-codecs].partition_responses[0].error_code",
        UNKNOWN_SERVER_ERROR,
        76,
        "Kafka trips over the codec; Ottla refuses it",
    ),
    Deliberate(
        records.produce_to_a_partition_twice,
        ".responses[{tag}-twice].partition_responses[0#1]",
        ABSENT,
        ...,
        "Kafka drops the first of the two batches without a word; Ottla appends both",
    ),
    Deliberate(
        records.produce_records_with_broken_insides,
        ".responses[{tag}-insides].partition_responses[0].error_code",
        87,
        0,
        "Ottla counts records and does not open them (docs/adr/0003)",
    ),
    Deliberate(
        records.produce_an_endless_number,
        ".responses[{tag}-endless].partition_responses[0].error_code",
        UNKNOWN_SERVER_ERROR,
        87,
        "Kafka trips over the number; Ottla refuses it",
    ),
    Deliberate(
        records.isolate_in_an_unknown_way,
        ".topics[{tag}-isolated].partitions[0].error_code",
        UNKNOWN_SERVER_ERROR,
        INVALID_REQUEST,
        "Kafka trips over the level; Ottla says whose fault it is",
    ),
    Deliberate(
        records.fetch_less_than_nothing,
        ".responses[id of less].partitions[0].error_code",
        UNKNOWN_SERVER_ERROR,
        0,
        "Kafka trips over the negative size; Ottla takes it for zero",
    ),
]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Where Kafka and Ottla are reached."""
    with both_brokers(tmp_path_factory.mktemp("core"), OVERRIDES) as started:
        yield [broker.bootstrap for broker in started]


@pytest.fixture(scope="module")
def shared_apis(brokers: list[str]) -> frozenset[int]:
    """What both serve; Ottla lacks some of Kafka's APIs."""
    software = {"client_software_name": "wire", "client_software_version": "1"}
    served = []
    for bootstrap in brokers:
        with Wire(bootstrap) as wire:
            answer = wire.ask(ApiKey.API_VERSIONS, 3, software)
            served.append({one.api_key for one in answer.api_keys})
    return frozenset(served[0] & served[1])


def versions(key: ApiKey) -> range:
    lowest = PRODUCE_VERSION_MIN if key is ApiKey.PRODUCE else VERSIONS[key][0]
    return range(lowest, VERSIONS[key][1] + 1)


def compare(brokers: list[str], converse: Any, *arguments: Any, **more: Any) -> None:
    tag = "-".join((converse.__name__.replace("_", "-"), *(str(one) for one in arguments)))
    assert converse_with_each(brokers, converse, *arguments, tag=tag, **more) == []


CONVERSATIONS = [
    (admin.ask_metadata, ApiKey.METADATA),
    (admin.create_topics, ApiKey.CREATE_TOPICS),
    (admin.delete_topics, ApiKey.DELETE_TOPICS),
    (admin.create_partitions, ApiKey.CREATE_PARTITIONS),
    (admin.describe_configs, ApiKey.DESCRIBE_CONFIGS),
    (admin.alter_configs, ApiKey.ALTER_CONFIGS),
    (admin.alter_configs_incrementally, ApiKey.INCREMENTAL_ALTER_CONFIGS),
    (admin.describe_cluster, ApiKey.DESCRIBE_CLUSTER),
    (admin.describe_log_dirs, ApiKey.DESCRIBE_LOG_DIRS),
    (admin.describe_topic_partitions, ApiKey.DESCRIBE_TOPIC_PARTITIONS),
    (admin.list_config_resources, ApiKey.LIST_CONFIG_RESOURCES),
    (cluster.elect_leaders, ApiKey.ELECT_LEADERS),
    (cluster.alter_reassignments, ApiKey.ALTER_PARTITION_REASSIGNMENTS),
    (cluster.list_reassignments, ApiKey.LIST_PARTITION_REASSIGNMENTS),
    (cluster.update_features, ApiKey.UPDATE_FEATURES),
    (cluster.unregister_strangers, ApiKey.UNREGISTER_BROKER),
    (records.init_producers, ApiKey.INIT_PRODUCER_ID),
    (records.produce, ApiKey.PRODUCE),
    (records.produce_to_special_topics, ApiKey.PRODUCE),
    (records.produce_idempotently, ApiKey.PRODUCE),
    (records.produce_malformed_records, ApiKey.PRODUCE),
    (records.produce_to_internal_topics, ApiKey.PRODUCE),
    (records.list_offsets, ApiKey.LIST_OFFSETS),
    (records.offsets_for_epochs, ApiKey.OFFSET_FOR_LEADER_EPOCH),
    (records.delete_records, ApiKey.DELETE_RECORDS),
    (records.fetch, ApiKey.FETCH),
]
CASES = [
    pytest.param(converse, version, id=f"{converse.__name__}-{version}")
    for converse, key in CONVERSATIONS
    for version in versions(key)
]


@pytest.mark.parametrize("version", versions(ApiKey.API_VERSIONS))
def test_api_versions(brokers: list[str], shared_apis: frozenset[int], version: int) -> None:
    found = converse_with_each(brokers, admin.ask_api_versions, version, shared_apis)
    assert found == []


@pytest.mark.parametrize(
    "converse",
    [
        admin.come_from_the_future,
        admin.touch_internal_topics,
        admin.change_what_holds_for_all,
        records.name_a_topic_twice,
    ],
)
def test_conversations_across_apis(brokers: list[str], converse: Any) -> None:
    compare(brokers, converse)


@pytest.mark.parametrize(("converse", "version"), CASES)
def test_conversations(brokers: list[str], converse: Any, version: int) -> None:
    compare(brokers, converse, version)


@pytest.mark.parametrize("version", [one for one in versions(ApiKey.FETCH) if one >= 7])
def test_fetch_sessions(brokers: list[str], version: int) -> None:
    compare(brokers, records.fetch_in_sessions, version)


@pytest.mark.parametrize("one", DELIBERATE, ids=lambda one: one.converse.__name__)
def test_deliberate_differences(brokers: list[str], one: Deliberate) -> None:
    """They are as stated; who removes one here is told that the table can be shorter."""
    tag = one.converse.__name__.replace("_", "-")
    found = converse_with_each(brokers, one.converse, tag=tag)
    assert found, one.reason
    first = found[0]
    assert first.path == one.path.format(tag=tag)
    assert one.kafka in (..., first.kafka)
    assert one.ottla in (..., first.ottla)
