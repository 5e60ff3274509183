"""Every API that is served, in the order of its key. ApiVersions is answered from here.

A controller's listener serves those of them that Apache Kafka's controllers serve as well.
"""

from ottla.protocol.api import CONTROLLER_APIS, VERSIONS, ApiKey
from ottla.server.dispatch import Handler, RawHandle, TypedHandle
from ottla.server.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    alter_partition_reassignments,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_txn_markers,
)

# Produce is advertised from 0, or old librdkafka turns compression off; only these are parsed.
PRODUCE_VERSIONS = (3, VERSIONS[ApiKey.PRODUCE][1])

# Version 6 is Kafka's, but not released: `unstable.api.versions.enable` offers it.
INIT_PRODUCER_ID_VERSIONS = (0, init_producer_id.UNSTABLE_VERSION)


def _typed(key: ApiKey, handle: TypedHandle) -> Handler:
    return Handler(key, VERSIONS[key], typed=handle)


def _raw(key: ApiKey, handle: RawHandle) -> Handler:
    return Handler(key, VERSIONS[key], raw=handle)


HANDLERS = (
    Handler(ApiKey.PRODUCE, PRODUCE_VERSIONS, raw=produce.handle),
    _raw(ApiKey.FETCH, fetch.handle),
    _typed(ApiKey.LIST_OFFSETS, list_offsets.handle),
    _raw(ApiKey.METADATA, metadata.handle),
    _raw(ApiKey.OFFSET_COMMIT, offset_commit.handle),
    _typed(ApiKey.OFFSET_FETCH, offset_fetch.handle),
    _typed(ApiKey.FIND_COORDINATOR, find_coordinator.handle),
    _typed(ApiKey.JOIN_GROUP, join_group.handle),
    _typed(ApiKey.HEARTBEAT, heartbeat.handle),
    _typed(ApiKey.LEAVE_GROUP, leave_group.handle),
    _typed(ApiKey.SYNC_GROUP, sync_group.handle),
    _typed(ApiKey.DESCRIBE_GROUPS, describe_groups.handle),
    _typed(ApiKey.LIST_GROUPS, list_groups.handle),
    _typed(ApiKey.API_VERSIONS, api_versions.handle),
    _typed(ApiKey.CREATE_TOPICS, create_topics.handle),
    _typed(ApiKey.DELETE_TOPICS, delete_topics.handle),
    _typed(ApiKey.DELETE_RECORDS, delete_records.handle),
    Handler(ApiKey.INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSIONS, typed=init_producer_id.handle),
    _typed(ApiKey.OFFSET_FOR_LEADER_EPOCH, offset_for_leader_epoch.handle),
    _typed(ApiKey.ADD_PARTITIONS_TO_TXN, add_partitions_to_txn.handle),
    _typed(ApiKey.ADD_OFFSETS_TO_TXN, add_offsets_to_txn.handle),
    _typed(ApiKey.END_TXN, end_txn.handle),
    _typed(ApiKey.WRITE_TXN_MARKERS, write_txn_markers.handle),
    _typed(ApiKey.TXN_OFFSET_COMMIT, txn_offset_commit.handle),
    _typed(ApiKey.DESCRIBE_CONFIGS, describe_configs.handle),
    _typed(ApiKey.ALTER_CONFIGS, alter_configs.handle),
    _typed(ApiKey.DESCRIBE_LOG_DIRS, describe_log_dirs.handle),
    _typed(ApiKey.CREATE_PARTITIONS, create_partitions.handle),
    _typed(ApiKey.DELETE_GROUPS, delete_groups.handle),
    _typed(ApiKey.ELECT_LEADERS, elect_leaders.handle),
    _typed(ApiKey.INCREMENTAL_ALTER_CONFIGS, incremental_alter_configs.handle),
    _typed(ApiKey.ALTER_PARTITION_REASSIGNMENTS, alter_partition_reassignments.handle),
    _typed(ApiKey.LIST_PARTITION_REASSIGNMENTS, list_partition_reassignments.handle),
    _typed(ApiKey.OFFSET_DELETE, offset_delete.handle),
    _typed(ApiKey.DESCRIBE_QUORUM, describe_quorum.handle),
    _typed(ApiKey.UPDATE_FEATURES, update_features.handle),
    _typed(ApiKey.DESCRIBE_CLUSTER, describe_cluster.handle),
    _typed(ApiKey.DESCRIBE_PRODUCERS, describe_producers.handle),
    _typed(ApiKey.UNREGISTER_BROKER, unregister_broker.handle),
    _typed(ApiKey.DESCRIBE_TRANSACTIONS, describe_transactions.handle),
    _typed(ApiKey.LIST_TRANSACTIONS, list_transactions.handle),
    _typed(ApiKey.CONSUMER_GROUP_HEARTBEAT, consumer_group_heartbeat.handle),
    _typed(ApiKey.CONSUMER_GROUP_DESCRIBE, consumer_group_describe.handle),
    _typed(ApiKey.LIST_CONFIG_RESOURCES, list_config_resources.handle),
    _typed(ApiKey.DESCRIBE_TOPIC_PARTITIONS, describe_topic_partitions.handle),
)

# A controller's Fetch is of the metadata log, which no other node reads yet.
CONTROLLER_HANDLERS = tuple(
    handler for handler in HANDLERS if handler.key in CONTROLLER_APIS - {ApiKey.FETCH}
)

ADVERTISED = {int(handler.key): VERSIONS[handler.key] for handler in HANDLERS}
ADVERTISED_BY_CONTROLLER = {int(one.key): VERSIONS[one.key] for one in CONTROLLER_HANDLERS}
ADVERTISED_WITH_UNSTABLE = {
    **ADVERTISED,
    int(ApiKey.INIT_PRODUCER_ID): INIT_PRODUCER_ID_VERSIONS,
}
