"""The topics that brokers keep for themselves. Pure data.

Clients see them marked internal, and may read them; only brokers write to them.
"""

from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTION_TOPIC: Final = "__transaction_state"
SHARE_STATE_TOPIC: Final = "__share_group_state"
INTERNAL_TOPICS: Final = frozenset((OFFSETS_TOPIC, TRANSACTION_TOPIC, SHARE_STATE_TOPIC))

# The metadata log has a topic's name on disk and in DescribeQuorum, but is no topic.
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
