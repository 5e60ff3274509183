"""What one Spark task does: fetch a range of offsets and hand it on as Arrow batches.

If records were taken by retention before the task came to them, the task fails, or with
failOnDataLoss=false goes on at the first offset that is left.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ottla.client import Client, ClientConfig, PartitionFetcher, list_offsets
from ottla.client.offsets import EARLIEST, LATEST
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.spark.source_ranges import OffsetRange
from ottla.spark.worker_process import client_of, settle

_GAPS_MAX = 10  # times that one task goes on after records were taken from under it

logger = logging.getLogger(__name__)


class DataLoss(KafkaError):
    """Records that the query was to read are no longer there."""

    def __init__(self, what: str) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{what} Some data may have been lost because they are not available in Kafka any "
            "more; either the data was aged out by retention or the topic was deleted and created "
            "anew before all its data was processed. To go on with what is left, set the source "
            "option 'failOnDataLoss' to 'false'.",
        )


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """What a task must know besides its range; sent to it pickled."""

    client: ClientConfig
    include_headers: bool
    poll_timeout_ms: int
    fail_on_data_loss: bool


def read_range(wanted: OffsetRange, settings: ReadSettings) -> Iterator[Any]:
    """The records of a range as Arrow batches."""
    from ottla.spark.decode import RecordDecoder

    client = client_of(settings.client)
    decoder = RecordDecoder(
        wanted.topic_partition,
        start_offset=wanted.start_offset,
        end_offset=wanted.end_offset,
        include_headers=settings.include_headers,
        is_read_committed=settings.client.is_read_committed,
        check_crcs=settings.client.check_crcs,
    )
    offset, gaps = wanted.start_offset, 0
    while offset < wanted.end_offset:
        fetcher = PartitionFetcher(
            client,
            wanted.topic_partition,
            offset,
            wanted.end_offset,
            poll_timeout_ms=settings.poll_timeout_ms,
        )
        try:
            for chunk in fetcher:
                yield from decoder.decode(chunk)
            break
        except KafkaError as error:
            gaps += 1
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE or gaps > _GAPS_MAX:
                raise
            offset = _next_available(client, wanted, fetcher.next_offset, error, settings)
            decoder.skip_to(offset)
    last = decoder.finish()
    if last is not None:
        yield last
    settle()  # now that the kernels are loaded too


def _next_available(
    client: Client, wanted: OffsetRange, offset: int, error: KafkaError, settings: ReadSettings
) -> int:
    """Where to go on after `offset` was refused: at its end if nowhere. DataLoss if it must not."""
    partition = wanted.topic_partition
    earliest = list_offsets(client, {partition: EARLIEST})[partition].offset
    latest = list_offsets(client, {partition: LATEST})[partition].offset
    if earliest <= offset < latest:
        return offset  # the log was cut and has grown again
    what = (
        f"Cannot fetch offsets {offset} to {wanted.end_offset - 1} of {partition}, which now holds "
        f"{earliest} to {latest - 1}."
    )
    if settings.fail_on_data_loss:
        raise DataLoss(what) from error
    logger.warning("%s Some data may have been lost; going on with what is left.", what)
    return earliest if offset < earliest else wanted.end_offset
