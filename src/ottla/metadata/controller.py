"""Every decision that a controller can be asked for, in one place to import from.

Each `decide_*` takes the newest image and a request and returns a `Decision`: records and the
response that holds once they are committed. They are pure; `MetadataNode.submit` runs them. They
live in modules by question: topics, partitions, directories, configs, brokers, features,
producer_ids.
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
from ottla.metadata.directories import (
    ReplicaDirectory,
    decide_assign_replicas,
    decide_directories_offline,
)
from ottla.metadata.features import FeatureUpdate, UpdatedFeature, decide_update_features
from ottla.metadata.partitions import (
    AlteredPartition,
    ElectedPartition,
    ElectionType,
    IsrMember,
    PartitionAlteration,
    ReassignedPartition,
    Reassignment,
    decide_alter_partition,
    decide_alter_partition_reassignments,
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
    "BrokerHeartbeat",
    "BrokerRegistration",
    "ConfigChange",
    "ConfigOperation",
    "ConfigSchema",
    "CreatedTopic",
    "Decision",
    "DeletedTopic",
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
    "ReplicaDirectory",
    "ResourceChange",
    "TopicDefaults",
    "UpdatedFeature",
    "decide_allocate_producer_ids",
    "decide_alter_configs",
    "decide_alter_partition",
    "decide_alter_partition_reassignments",
    "decide_assign_replicas",
    "decide_create_partitions",
    "decide_create_topics",
    "decide_delete_topics",
    "decide_directories_offline",
    "decide_elect_leaders",
    "decide_fence_broker",
    "decide_heartbeat",
    "decide_incremental_alter_configs",
    "decide_register_broker",
    "decide_register_controller",
    "decide_unregister_broker",
    "decide_update_features",
]
