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
    "AlteredResource",
    "BrokerHeartbeat",
    "BrokerRegistration",
    "ConfigChange",
    "ConfigOperation",
    "ConfigSchema",
    "CreatedTopic",
    "Decision",
    "DeletedTopic",
    "FeatureUpdate",
    "GrownTopic",
    "HeartbeatResult",
    "NewPartitions",
    "NewTopic",
    "ProducerIdBlock",
    "ResourceChange",
    "TopicDefaults",
    "UpdatedFeature",
    "decide_allocate_producer_ids",
    "decide_alter_configs",
    "decide_create_partitions",
    "decide_create_topics",
    "decide_delete_topics",
    "decide_fence_broker",
    "decide_heartbeat",
    "decide_incremental_alter_configs",
    "decide_register_broker",
    "decide_register_controller",
    "decide_unregister_broker",
    "decide_update_features",
]
