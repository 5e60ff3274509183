"""Reading topics with Spark: batch and streaming readers over the wire client.

The driver's side decides offsets and cuts them into ranges (source_offsets, source_ranges); a task
fetches and decodes one range (source_task). Readers are pickled to where they run, so until then
they hold options only.

A stream's offsets are Spark's own JSON, {"topic": {"0": 17}}, and a batch is [start, end).
Partitions that appear start at their first offset. That a batch has been processed is known when
the next one is planned (`latestOffset` is given its end as `start`), and is then reported as a
group's progress.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from time import monotonic
from typing import Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from ottla.client import EARLIEST, LATEST, Client
from ottla.spark.option_values import OptionError
from ottla.spark.options import (
    Position,
    SourceOptions,
    check_batch_options,
    check_stream_options,
)
from ottla.spark.source_filters import Bounds
from ottla.spark.source_initial import (
    InitialOffsetFile,
    end_json,
    initial_json,
    offsets_of,
    start_of,
)
from ottla.spark.source_limits import (
    ReadAllAvailable,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
    warn_of_limits,
)
from ottla.spark.source_offsets import OffsetReader
from ottla.spark.source_progress import GroupProgress
from ottla.spark.source_ranges import (
    OffsetRange,
    Offsets,
    count_between,
    rate_limited,
    split_ranges,
    to_json,
)
from ottla.spark.source_task import DataLoss, ReadSettings, read_range

logger = logging.getLogger(__name__)


class RangePartition(InputPartition):
    """One task's range."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(wanted)
        self.wanted = wanted


def _settings_of(options: SourceOptions) -> ReadSettings:
    return ReadSettings(
        options.client,
        options.include_headers,
        options.poll_timeout_ms,
        options.fail_on_data_loss,
    )


def _planned(options: SourceOptions, ranges: list[OffsetRange]) -> list[InputPartition]:
    """One Spark partition per piece of the ranges."""
    pieces = split_ranges(
        ranges,
        min_partitions=options.min_partitions,
        max_records_per_partition=options.max_records_per_partition,
    )
    return [RangePartition(piece) for piece in pieces]


def _read(partition: InputPartition, settings: ReadSettings) -> Iterator[Any]:
    # Spark hands a partition without a range to a batch read that has none.
    if isinstance(partition, RangePartition):
        yield from read_range(partition.wanted, settings)


class OttlaBatchReader(DataSourceReader):
    """Reads from startingOffsets (earliest) to endingOffsets (latest), decided when planned."""

    def __init__(self, options: SourceOptions) -> None:
        check_batch_options(options)
        self._options = options
        self._settings = _settings_of(options)
        self._bounds = Bounds()

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with Client(options.client) as client:
            reader = OffsetReader(options, client)
            start = reader.resolve(options.starting or Position(everywhere=EARLIEST), is_start=True)
            end = reader.resolve(options.ending or Position(everywhere=LATEST), is_start=False)
            ranges = [OffsetRange(tp, start[tp], end[tp]) for tp in sorted(end)]
            for item in ranges:
                if item.end_offset < item.start_offset:
                    self._refuse(item)
            wanted = self._bounds.narrowed(ranges, reader)
        return _planned(options, wanted)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(partition, self._settings)

    def _refuse(self, item: OffsetRange) -> None:
        """A start behind the end: a mistake, unless the end is that of the log."""
        ending, partition = self._options.ending, item.topic_partition
        what = (
            f"The resolved start offset {item.start_offset} is greater than the resolved end "
            f"offset {item.end_offset} for topic {partition.topic} partition {partition.partition}."
        )
        is_log_end = ending is None or LATEST in (ending.everywhere, ending.offsets.get(partition))
        if not is_log_end:
            raise OptionError(what)
        if self._options.fail_on_data_loss:
            raise DataLoss(what)
        logger.warning("%s Nothing is read from it.", what)


class OttlaFilteringReader(OttlaBatchReader):
    """The same with filters pushed down.

    Spark refuses a reader that can push filters while spark.sql.python.filterPushdown.enabled is
    off, so this one is chosen by the option `filterPushdown`.
    """

    def pushFilters(self, filters: list[Any]) -> Iterator[Any]:
        for item in filters:
            if not self._bounds.take(item):
                yield item


class OttlaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Plans micro-batches on the driver and reads their ranges in tasks.

    (The mixin is Any to the type checker: Spark 4.1 lacks it.)
    """

    def __init__(self, options: SourceOptions) -> None:
        check_stream_options(options)
        warn_of_limits(options)
        self._options = options
        self._settings = _settings_of(options)
        self._client: Client | None = None
        self._reader: OffsetReader | None = None
        self._progress: GroupProgress | None = None
        self._initial: Offsets | None = None
        self._is_past_initial = False  # it cannot be known any more
        self._is_available_now = False
        self._target: Offsets | None = None  # of availableNow, once it is known
        self._latest: Offsets | None = None  # when last asked for
        self._reported: Mapping[str, Any] | None = None
        self._triggered_at: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        """A task reads with the settings alone."""
        return {"_options": self._options, "_settings": self._settings}

    def initialOffset(self) -> dict[str, Any]:
        return initial_json(self._initial_offsets())

    def getDefaultReadLimit(self) -> Any:
        """Spark takes one limit only; the least is then minded by `latestOffset` itself."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: Any = None
    ) -> dict[str, Any]:
        """The end of the next batch; `start` itself if there is nothing to do."""
        if start is None:
            return self._latest_of_all()
        self._report_progress(start)
        begun = offsets_of(start)
        end = self._latest = self._end_of_all(begun)
        if not isinstance(limit, ReadAllAvailable):
            if self._is_too_little(begun, end):
                return self._idle(start)
            most = self._options.max_offsets_per_trigger
            if isinstance(limit, ReadMaxRows):
                most = limit.max_rows
            if most is not None:
                end = rate_limited(most, self._complete_start(begun, end), end)
        return self._idle(start) if end == begun else end_json(start, end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """What the last planning saw, for the progress of the query."""
        return None if self._latest is None else to_json(self._latest)

    def prepareForTriggerAvailableNow(self) -> None:
        """The target is fetched when it is known where the query is, which may be far on."""
        self._is_available_now = True

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begun, until = start_of(start, end), offsets_of(end)
        gone = sorted(set(begun) - set(until))
        if gone:
            names = ", ".join(map(str, gone))
            self._report_loss(f"{names} are gone.")
        ranges = []
        for topic_partition, start_offset in self._complete_start(begun, until).items():
            end_offset = until[topic_partition]
            if end_offset < start_offset:
                self._report_loss(
                    f"Partition {topic_partition}'s offset was changed from {start_offset} to "
                    f"{end_offset}."
                )
            ranges.append(OffsetRange(topic_partition, start_offset, end_offset))
        return _planned(self._options, ranges)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(partition, self._settings)

    def commit(self, end: dict[str, Any]) -> None:
        self._report_progress(end)

    def stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()
        if self._client is not None:
            self._client.close()

    def _offsets(self) -> OffsetReader:
        if self._reader is None:
            self._client = Client(self._options.client)
            self._reader = OffsetReader(self._options, self._client)
        return self._reader

    def _initial_offsets(self) -> Offsets:
        """Where the query began: as written down then, or decided and written down now."""
        if self._initial is None:
            file = InitialOffsetFile(self._options)
            self._initial = file.load()
            if self._initial is None:
                position = self._options.starting or Position(everywhere=LATEST)
                self._initial = self._offsets().resolve(position, is_start=True)
                file.save(self._initial)
        return self._initial

    def _end_of_all(self, begun: Offsets) -> Offsets:
        """The log ends, or with availableNow those at its beginning."""
        if self._target is not None:
            return self._target
        found = self._offsets().latest(begun)
        if self._is_available_now:
            self._target = found
        return found

    def _latest_of_all(self) -> dict[str, Any]:
        """The log ends for Spark 4.1, which says neither where it is nor how much to read.

        It asks for the end of a first batch before it asks where that begins, and does not tell a
        first batch from others. So every end carries where a new query would begin; only a batch
        that begins there heeds it.
        """
        if self._initial is None and not self._is_past_initial:
            try:
                self._initial_offsets()
            except OptionError as error:
                # A new query fails by this next, when it is asked where it begins.
                self._is_past_initial = True
                logger.info("No new query could begin: %s", error)
        found = self._latest = self._offsets().latest(self._latest or self._initial)
        if self._initial is None:
            return to_json(found)
        return end_json(initial_json(self._initial), found)

    def _complete_start(self, begun: Offsets, end: Offsets) -> Offsets:
        """The start of every partition of `end`: one that is new starts at its first offset."""
        new = [topic_partition for topic_partition in end if topic_partition not in begun]
        found = self._offsets().earliest(new) if new else {}
        for topic_partition, offset in found.items():
            if offset > 0:
                self._report_loss(f"Added partition {topic_partition} starts from {offset}, not 0.")
        return {tp: begun[tp] if tp in begun else found[tp] for tp in end}

    def _is_too_little(self, begun: Offsets, end: Offsets) -> bool:
        """Whether to wait for minOffsetsPerTrigger, unless maxTriggerDelay has passed."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._is_available_now:
            return False
        now = monotonic()
        delay_s = self._options.max_trigger_delay_ms / 1000
        is_due = self._triggered_at is None or now - self._triggered_at >= delay_s
        if not is_due and count_between(begun, end) < least:
            return True
        self._triggered_at = now
        return False

    def _report_progress(self, processed: Mapping[str, Any]) -> None:
        if not self._options.commits_progress or processed == self._reported:
            return
        if self._progress is None:
            self._progress = GroupProgress(self._options)
        self._reported = processed
        self._progress.report(offsets_of(processed))

    def _idle(self, start: dict[str, Any]) -> dict[str, Any]:
        """The same offset again: there is nothing to do."""
        if self._progress is not None:
            self._progress.flush()
        return start

    def _report_loss(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss(what)
        logger.warning("%s Some data may have been missed.", what)
