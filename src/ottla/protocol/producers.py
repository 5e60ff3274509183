"""Numbers of producers that clients, coordinators and logs agree on. Pure data."""

from typing import Final

NO_PRODUCER_EPOCH: Final = -1
PRODUCER_EPOCH_MAX: Final = 2**15 - 1

# From this transaction.version on each transaction has an epoch of its own, and a marker carries
# one above that of the records (KIP-890).
EPOCH_BUMPING_VERSION: Final = 2
