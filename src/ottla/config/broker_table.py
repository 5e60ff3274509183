"""Every key of server.properties that Apache Kafka 4.3.1 knows. Pure data."""

from typing import Final

from ottla.config.broker_keys_groups import GROUPS_KEYS
from ottla.config.broker_keys_log import LOG_KEYS
from ottla.config.broker_keys_metadata import METADATA_KEYS
from ottla.config.broker_keys_network import NETWORK_KEYS
from ottla.config.broker_keys_operations import OPERATIONS_KEYS
from ottla.config.broker_keys_remote import REMOTE_KEYS
from ottla.config.broker_keys_replication import REPLICATION_KEYS
from ottla.config.broker_keys_security import SECURITY_KEYS
from ottla.config.broker_keys_share_streams import SHARE_STREAMS_KEYS
from ottla.config.broker_keys_transactions import TRANSACTIONS_KEYS
from ottla.config.definitions import ConfigTable

BROKER_TABLE: Final = ConfigTable.of(
    "broker configs",
    LOG_KEYS,
    NETWORK_KEYS,
    METADATA_KEYS,
    REPLICATION_KEYS,
    GROUPS_KEYS,
    SHARE_STREAMS_KEYS,
    TRANSACTIONS_KEYS,
    SECURITY_KEYS,
    REMOTE_KEYS,
    OPERATIONS_KEYS,
)
