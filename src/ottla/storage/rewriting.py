"""Batches that a leader must open or change before it writes them: the slow way in.

Most batches are written as they came (PartitionLog.append_as_leader decides that from the
header alone). What ends up here is refused with the right error, or needs its keys or
timestamps looked at (compacted topics, `message.timestamp.before.max.ms`), a stamp of the
append time, or another codec. As in Apache Kafka, compressed records that are opened and do
not follow each other are numbered anew; uncompressed ones are stored as they came.

Pure, but for the codec libraries that it loads. Memory is bounded by `decompressed_bytes_max`.
"""

from typing import NamedTuple

from ottla.config.topic import TopicConfig
from ottla.protocol.batches import (
    NO_TIMESTAMP,
    RECORD_BYTES_MIN,
    BatchHeader,
    Record,
    build_batch,
    check_batch,
    count_records,
    iter_batches,
    iter_records,
    read_header,
    set_log_append_time,
    set_max_timestamp,
)
from ottla.protocol.codecs import Codec
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.core.append_origin import AppendOrigin
from ottla.storage.core.batch_validation import Action, ValidationRules, check_batches

# What one batch may grow to when it is opened. Honest batches stay far below: clients fill
# them to at most a few megabytes before they compress.
DECOMPRESSED_BYTES_MAX = 128 << 20
# What a compressed batch may claim to hold: with more it could never be opened. It is not
# opened for that (ADR 3), but offsets are given out by what it claims.
COMPRESSED_RECORDS_MAX = DECOMPRESSED_BYTES_MAX // RECORD_BYTES_MIN

# The value of compression.lz4.level that Kafka's own compressor takes as its fast one.
_LZ4_LEVEL_FAST = 9
_GZIP_LEVEL_DEFAULT = -1

_OPENING = Action.CHECK_KEYS | Action.CHECK_TIMESTAMPS | Action.RECOMPRESS


class Prepared(NamedTuple):
    """A batch ready to be given its offset and written."""

    batch: bytearray | memoryview
    header: BatchHeader
    log_append_time_ms: int  # -1 unless the topic keeps it


def prepare_batch(
    records: bytearray | memoryview,
    rules: ValidationRules,
    config: TopicConfig,
    *,
    now_ms: int,
    origin: AppendOrigin,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> Prepared:
    """Validate the one batch in `records`, rewriting it where the topic demands."""
    batch = _only_batch(records)
    header = check_batch(batch, 0, len(batch))
    action = rules.decide(header, now_ms, origin)
    if header.codec != Codec.NONE:
        _check_claimed_count(header)
    elif not header.is_control:
        count_records(batch)
    if action & _OPENING:
        opened = list(iter_records(batch, decompressed_bytes_max=decompressed_bytes_max))
        rules.check_records(opened, action, now_ms)
        codec = rules.target_codec if Action.RECOMPRESS in action else None
        if header.codec != Codec.NONE and not _are_numbered(opened):
            codec = header.codec if codec is None else codec
        if codec is not None:
            batch = build_batch(
                # Their places count, not what they say of them, which could lead anywhere.
                [record._replace(offset=place) for place, record in enumerate(opened)],
                codec=codec,
                codec_level=_level_of(codec, config),
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
                is_transactional=header.is_transactional,
            )
            rules.check_size(len(batch))
        elif Action.CHECK_TIMESTAMPS in action:
            latest_ms = max((record.timestamp_ms for record in opened), default=NO_TIMESTAMP)
            if latest_ms != header.max_timestamp:
                set_max_timestamp(batch, 0, latest_ms)
    log_append_time_ms = NO_TIMESTAMP
    if Action.STAMP_CREATE_TIME in action:
        set_max_timestamp(batch, 0, read_header(batch).max_timestamp)
    if Action.STAMP_LOG_APPEND_TIME in action:
        log_append_time_ms = now_ms
        set_log_append_time(batch, 0, now_ms)
    return Prepared(batch, read_header(batch), log_append_time_ms)


def _check_claimed_count(header: BatchHeader) -> None:
    if header.records_count > COMPRESSED_RECORDS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"The batch claims {header.records_count} records, more than can be decompressed",
        )


def _only_batch(records: bytearray | memoryview) -> bytearray | memoryview:
    """The one batch, without bytes behind it that are less than another batch."""
    headers = [header for _, header in iter_batches(records)]
    check_batches(headers)
    size = headers[0].size_bytes
    return records if size == len(records) else memoryview(records)[:size]


def _are_numbered(records: list[Record]) -> bool:
    """Whether the records say of themselves that they follow each other from offset 0 on."""
    return all(record.offset == place for place, record in enumerate(records))


def _level_of(codec: Codec, config: TopicConfig) -> int | None:
    if codec is Codec.GZIP and config.compression_gzip_level != _GZIP_LEVEL_DEFAULT:
        return config.compression_gzip_level
    if codec is Codec.LZ4 and config.compression_lz4_level != _LZ4_LEVEL_FAST:
        return config.compression_lz4_level
    if codec is Codec.ZSTD:
        return config.compression_zstd_level
    return None
