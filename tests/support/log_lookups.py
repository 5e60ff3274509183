"""Searches of a log by timestamp, in the thread of the test."""

from ottla.storage.log import PartitionLog
from ottla.storage.timestamp_lookup import TimestampAndOffset


def find_timestamp(log: PartitionLog, timestamp_ms: int | None) -> TimestampAndOffset | None:
    lookup = log.begin_lookup(timestamp_ms)
    lookup.run()
    return log.finish_lookup(lookup)
