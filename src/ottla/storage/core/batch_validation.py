"""Whether a leader takes a batch, and whether it must open it to know.

The broker never opens a batch it need not open. What follows from the 61 bytes of the header
is decided here from the header; the action then names what only the records can tell, and for
most topics that is nothing:

- compacted topics: every record needs a key;
- `message.timestamp.before.max.ms` is set: the header has the first and the largest timestamp
  of its records, but not the smallest;
- `compression.type` names another codec than the producer's: the records are packed anew.

`message.timestamp.after.max.ms`, which is set by default, is held against the header's largest
timestamp; only where that is too late the records are looked at, to name them. Apache Kafka
opens every batch and computes the largest timestamp from the records, so a producer that claims
less there is caught by Kafka but only misleads readers by timestamp here.

`message.timestamp.type=LogAppendTime` is written into the header and needs no record, but it
changes the CRC.

Coordinators are trusted to write keys and timestamps that will do.

Pure. Magic, length, CRC and record count were checked by `protocol.batches.check_batch` before.
"""

from collections.abc import Iterable, Sequence
from enum import Flag, auto
from typing import NamedTuple

from ottla.config.topic import TopicConfig
from ottla.protocol.batches import (
    CODEC_MASK,
    CONTROL_MASK,
    LOG_OVERHEAD_BYTES,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    Record,
    codec_of,
)
from ottla.protocol.codecs import Codec
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.core.append_origin import AppendOrigin

# More would only repeat themselves, and a response must stay small.
RECORD_ERRORS_MAX = 1000
_RECORD_ERRORS_SHOWN_MAX = 3

_CODEC_OF_TYPE = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_CODEC_NUMBER_MAX = int(Codec.ZSTD)
_INT64_MAX = 2**63 - 1


class Action(Flag):
    APPEND_AS_IS = 0
    STAMP_LOG_APPEND_TIME = auto()  # in the header; no record is opened
    STAMP_CREATE_TIME = auto()  # likewise
    CHECK_KEYS = auto()
    CHECK_TIMESTAMPS = auto()
    RECOMPRESS = auto()


class RecordError(NamedTuple):
    batch_index: int  # the record's place in the batch
    message: str


class RequestRefusedError(KafkaError):
    """The request is refused before a log is looked at."""


class RecordsRefusedError(KafkaError):
    """The batch is refused for some of its records, which Produce can name (KIP-467)."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[RecordError]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class ValidationRules:
    """What a topic's configuration demands of batches; worked out once per change of it."""

    __slots__ = (
        "_after_ms_max",
        "_before_ms_max",
        "_client_actions",
        "_codec_number",
        "_is_log_append_time",
        "_message_bytes_max",
        "_trusted_actions",
        "target_codec",
    )

    def __init__(self, config: TopicConfig) -> None:
        self._message_bytes_max = config.max_message_bytes
        self._before_ms_max = config.message_timestamp_before_max_ms
        self._after_ms_max = config.message_timestamp_after_max_ms
        self._is_log_append_time = config.message_timestamp_type == "LogAppendTime"
        # None: the producer's own codec is kept.
        self.target_codec = _CODEC_OF_TYPE.get(config.compression_type)
        self._codec_number = -1 if self.target_codec is None else int(self.target_codec)
        opening = Action.APPEND_AS_IS
        if self._is_log_append_time:
            opening |= Action.STAMP_LOG_APPEND_TIME
        elif self._before_ms_max < _INT64_MAX:
            opening |= Action.CHECK_TIMESTAMPS
        if "compact" in config.cleanup_policy:
            opening |= Action.CHECK_KEYS
        trusted = opening & Action.STAMP_LOG_APPEND_TIME
        self._client_actions = (opening, opening | Action.RECOMPRESS)
        self._trusted_actions = (trusted, trusted | Action.RECOMPRESS)

    def decide(
        self, header: BatchHeader, now_ms: int, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> Action:
        """What to do with a batch; KafkaError if its header alone condemns it."""
        attributes = header.attributes
        if header.batch_length + LOG_OVERHEAD_BYTES > self._message_bytes_max:
            self.check_size(header.batch_length + LOG_OVERHEAD_BYTES)
        if origin is AppendOrigin.CLIENT:
            _check_client_header(header)
        if attributes & CONTROL_MASK:
            # Markers have keys and no compression, and their timestamp is the coordinator's.
            return self._trusted_actions[0]
        more = Action.APPEND_AS_IS
        if self._is_log_append_time:
            if attributes & TIMESTAMP_TYPE_MASK:
                raise _stamped_by_its_producer(header)
        else:
            if attributes & TIMESTAMP_TYPE_MASK:
                more = Action.STAMP_CREATE_TIME  # the topic's word, not the producer's
            if header.max_timestamp - now_ms > self._after_ms_max:
                more |= Action.CHECK_TIMESTAMPS  # which of the records are too late
        number = attributes & CODEC_MASK
        if number > _CODEC_NUMBER_MAX:
            codec_of(attributes)
        actions = self._client_actions if origin is AppendOrigin.CLIENT else self._trusted_actions
        return actions[self._codec_number >= 0 and self._codec_number != number] | more

    def check_size(self, size_bytes: int) -> None:
        """Raise unless a batch of this size may be written; asked again after recompression."""
        if size_bytes > self._message_bytes_max:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"The record batch has {size_bytes} bytes, more than the"
                f" {self._message_bytes_max} that max.message.bytes allows",
            )

    def check_records(self, records: Iterable[Record], action: Action, now_ms: int) -> None:
        """Raise RecordsRefusedError if a record lacks its key or is out of the time allowed."""
        errors: list[RecordError] = []
        code = ErrorCode.INVALID_RECORD
        needs_keys = Action.CHECK_KEYS in action
        earliest_ms = now_ms - self._before_ms_max
        latest_ms = now_ms + self._after_ms_max
        has_range = not self._is_log_append_time
        for index, record in enumerate(records):
            if needs_keys and record.key is None:
                problem = "Compacted topic cannot accept message without key"
            elif (
                has_range
                and record.timestamp_ms != NO_TIMESTAMP
                and not earliest_ms <= record.timestamp_ms <= latest_ms
            ):
                code = ErrorCode.INVALID_TIMESTAMP
                problem = (
                    f"Timestamp {record.timestamp_ms} of message {index} is out of range: it"
                    f" should be within [{earliest_ms}, {latest_ms}]"
                )
            else:
                continue
            if len(errors) < RECORD_ERRORS_MAX:
                errors.append(RecordError(index, problem))
        if errors:
            shown = "; ".join(error.message for error in errors[:_RECORD_ERRORS_SHOWN_MAX])
            raise RecordsRefusedError(
                code, f"{len(errors)} records have been rejected, among them: {shown}", errors
            )


def check_batches(headers: Sequence[BatchHeader]) -> None:
    """A produce request carries exactly one batch for a partition, of the current format."""
    if len(headers) != 1:
        raise RequestRefusedError(
            ErrorCode.INVALID_RECORD,
            "A produce request must contain exactly one record batch per partition, not"
            f" {len(headers)}",
        )
    if headers[0].magic in (0, 1):
        raise RequestRefusedError(
            ErrorCode.INVALID_RECORD, f"Record batches of magic {headers[0].magic} are not accepted"
        )


def _stamped_by_its_producer(header: BatchHeader) -> KafkaError:
    problem = "Producers must not set the timestamp type to LogAppendTime"
    named = range(min(header.records_count, RECORD_ERRORS_MAX))
    return RecordsRefusedError(
        ErrorCode.INVALID_TIMESTAMP, problem, [RecordError(index, problem) for index in named]
    )


def _check_client_header(header: BatchHeader) -> None:
    if header.attributes & CONTROL_MASK:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, "Clients are not allowed to write control records"
        )
    if header.base_offset != 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"The base offset of the record batch should be 0, but it is {header.base_offset}",
        )
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"Invalid sequence number {header.base_sequence} in a record batch with producer id"
            f" {header.producer_id}",
        )
