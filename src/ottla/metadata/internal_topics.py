"""How is a topic made that the brokers keep for themselves?

It may be a client that brings one into being, by asking about it before any coordinator needed
it. Made as an ordinary topic it would lose committed offsets to retention, so whoever creates one
takes its settings from here. Pure.
"""

from ottla.config.broker import BrokerConfig
from ottla.metadata.topics import NewTopic
from ottla.protocol.internal_topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC


def new_topic(name: str, config: BrokerConfig) -> NewTopic:
    """The topic that is created under this name when nobody says how."""
    if name == OFFSETS_TOPIC:
        return NewTopic(
            name,
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            configs=[
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                ("segment.bytes", str(config.offsets_topic_segment_bytes)),
            ],
        )
    if name == TRANSACTION_TOPIC:
        return NewTopic(
            name,
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
            configs=[
                ("cleanup.policy", "compact"),
                ("compression.type", "uncompressed"),
                ("min.insync.replicas", str(config.transaction_state_log_min_isr)),
                ("segment.bytes", str(config.transaction_state_log_segment_bytes)),
                ("unclean.leader.election.enable", "false"),
            ],
        )
    if name == SHARE_STATE_TOPIC:
        return NewTopic(
            name,
            config.share_coordinator_state_topic_num_partitions,
            config.share_coordinator_state_topic_replication_factor,
            configs=[
                ("cleanup.policy", "delete"),
                ("compression.type", "producer"),
                ("min.insync.replicas", str(config.share_coordinator_state_topic_min_isr)),
                ("retention.ms", "-1"),
                ("segment.bytes", str(config.share_coordinator_state_topic_segment_bytes)),
            ],
        )
    return NewTopic(name)
