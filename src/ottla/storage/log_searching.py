"""A log in which timestamps can be looked for.

Part of PartitionLog; see `log_state` for who owns it and `timestamp_lookup` for how it is done.
"""

from ottla.protocol.errors import KafkaError
from ottla.storage.failures import LogBusy
from ottla.storage.log_replacing import ReplaceableLog
from ottla.storage.timestamp_lookup import TimestampAndOffset, TimestampLookup

# How often a search begins anew because the segments changed under it.
_LOOKUPS_MAX = 5


class SearchableLog(ReplaceableLog):
    __slots__ = ()

    async def find_timestamp(self, timestamp_ms: int | None) -> TimestampAndOffset | None:
        """The first record at or after `timestamp_ms`, or with the largest one (MAX_TIMESTAMP).

        None if there is none. A thread looks.
        """
        for _ in range(_LOOKUPS_MAX):
            lookup = self.begin_lookup(timestamp_ms)
            try:
                await self._runtime.offload.run(lookup.run)
            except (OSError, KafkaError) as error:
                if isinstance(error, FileNotFoundError) or not self._is_current(lookup):
                    continue
                if isinstance(error, OSError):
                    raise self._refuse_or_fail(error) from error
                raise
            if self._is_current(lookup):
                return self.finish_lookup(lookup)
        raise LogBusy(f"The log of {self.topic_partition} changes faster than it can be searched")

    def begin_lookup(self, timestamp_ms: int | None) -> TimestampLookup:
        """A search for a timestamp, to be run; `finish_lookup` has its result."""
        self._check_usable()
        return TimestampLookup(
            self._disk,
            self._segments,
            timestamp_ms,
            start_offset=self.log_start_offset,
            generation=self._generation,
        )

    def finish_lookup(self, lookup: TimestampLookup) -> TimestampAndOffset | None:
        lookup.share_learned()
        return lookup.found

    def _is_current(self, lookup: TimestampLookup) -> bool:
        """Whether what was found is still there."""
        self._check_usable()
        found, segment = lookup.found, lookup.segment
        return lookup.generation == self._generation and (
            found is None
            or segment is None
            or (segment in self._segments and found.offset >= self.log_start_offset)
        )
