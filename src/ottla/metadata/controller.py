"""Every decision that a controller can be asked for, in one place to import from.

Each `decide_*` takes the newest image and a request and returns a `Decision`: records and the
response that holds once they are committed. They are pure; `MetadataNode.submit` runs them. They
live in modules by question: topics, configs, brokers, features, producer_ids, partitions.
"""

from ottla.metadata.brokers import (
    BrokerHeartbeat,
    BrokerRegistration,
    HeartbeatResult,
    decide_fence_broker,
    decide_heartbeat,
    decide_register_broker,
    decide_register_controller,
    decide_unregister_broker,
)
from ottla.metadata.configs import (
    AlteredResource,
    ConfigChange,
    ConfigOperation,
    ConfigSchema,
    ResourceChange,
    decide_alter_configs,
    decide_incremental_alter_configs,
)
from ottla.metadata.decision import Decision
from ottla.metadata.features import FeatureUpdate, UpdatedFeature, decide_update_features
from ottla.metadata.partitions import (
    AlteredPartition,
    AssignedDirectory,
    DirectoryAssignment,
    ElectedPartition,
    ElectionType,
    IsrMember,
    PartitionAlteration,
    ReassignedPartition,
    Reassignment,
    decide_alter_partition,
    decide_alter_partition_reassignments,
    decide_assign_replicas_to_dirs,
    decide_elect_leaders,
)
from ottla.metadata.producer_ids import ProducerIdBlock, decide_allocate_producer_ids
from ottla.metadata.topics import (
    CreatedTopic,
    DeletedTopic,
    GrownTopic,
    NewPartitions,
    NewTopic,
    TopicDefaults,
    decide_create_partitions,
    decide_create_topics,
    decide_delete_topics,
)

__all__ = [
    "AlteredPartition",
    "AlteredResource",
    "AssignedDirectory",
    "BrokerHeartbeat",
    "BrokerRegistration",
    "ConfigChange",
    "ConfigOperation",
    "ConfigSchema",
    "CreatedTopic",
    "Decision",
    "DeletedTopic",
    "DirectoryAssignment",
    "ElectedPartition",
    "ElectionType",
    "FeatureUpdate",
    "GrownTopic",
    "HeartbeatResult",
    "IsrMember",
    "NewPartitions",
    "NewTopic",
    "PartitionAlteration",
    "ProducerIdBlock",
    "ReassignedPartition",
    "Reassignment",
    "ResourceChange",
    "TopicDefaults",
    "UpdatedFeature",
    "decide_allocate_producer_ids",
    "decide_alter_configs",
    "decide_alter_partition",
    "decide_alter_partition_reassignments",
    "decide_assign_replicas_to_dirs",
    "decide_create_partitions",
    "decide_create_topics",
    "decide_delete_topics",
    "decide_elect_leaders",
    "decide_fence_broker",
    "decide_heartbeat",
    "decide_incremental_alter_configs",
    "decide_register_broker",
    "decide_register_controller",
    "decide_unregister_broker",
    "decide_update_features",
]
