"""Which batches a leader takes, and which it must open first."""

from typing import Any

import pytest

from ottla.config.topic import TopicConfig
from ottla.protocol.batches import BatchHeader, Record
from ottla.protocol.codecs import Codec
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.core.append_origin import AppendOrigin
from ottla.storage.core.batch_validation import (
    Action,
    RecordError,
    RecordsRefusedError,
    ValidationRules,
    check_batches,
)

NOW_MS = 10_000_000
HOUR_MS = 3_600_000
CREATE_TIME = BatchHeader(
    base_offset=0,
    batch_length=88,
    partition_leader_epoch=-1,
    magic=2,
    crc=0,
    attributes=0,
    last_offset_delta=0,
    base_timestamp=NOW_MS,
    max_timestamp=NOW_MS,
    producer_id=-1,
    producer_epoch=-1,
    base_sequence=-1,
    records_count=1,
)


def decide(
    config: dict[str, Any], origin: AppendOrigin = AppendOrigin.CLIENT, **header: int
) -> Action | ErrorCode:
    rules = ValidationRules(TopicConfig(**config))
    try:
        return rules.decide(CREATE_TIME._replace(**header), NOW_MS, origin)
    except KafkaError as error:
        return error.code


def test_the_usual_batch_is_never_opened() -> None:
    for codec in Codec:
        assert decide({}, attributes=codec) is Action.APPEND_AS_IS
    assert decide({}, producer_id=5, producer_epoch=0, base_sequence=0) is Action.APPEND_AS_IS


@pytest.mark.parametrize(
    ("header", "error"),
    [
        ({"attributes": 0x20}, ErrorCode.INVALID_RECORD),  # a control batch
        ({"base_offset": 1}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 0}, ErrorCode.INVALID_RECORD),  # without a sequence
        ({"attributes": 0x08}, Action.STAMP_CREATE_TIME),
        ({"attributes": 0x05}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"batch_length": 989}, ErrorCode.MESSAGE_TOO_LARGE),
        ({"batch_length": 988}, Action.APPEND_AS_IS),
        ({"max_timestamp": NOW_MS + HOUR_MS}, Action.APPEND_AS_IS),
        ({"max_timestamp": NOW_MS + HOUR_MS + 1}, Action.CHECK_TIMESTAMPS),
        ({"max_timestamp": -1}, Action.APPEND_AS_IS),
        ({"max_timestamp": 0}, Action.APPEND_AS_IS),
    ],
)
def test_the_header_alone_tells(header: dict[str, int], error: ErrorCode | Action) -> None:
    assert decide({"max_message_bytes": 1000}, **header) is error


def test_coordinators_may_write_markers_and_need_no_sequence() -> None:
    origin = AppendOrigin.COORDINATOR
    config = {"cleanup_policy": frozenset(["compact"]), "compression_type": "gzip"}
    assert decide(config, origin, attributes=0x30, producer_id=5) is Action.APPEND_AS_IS
    assert decide(config, origin, producer_id=5) is Action.RECOMPRESS
    assert decide(config, origin, base_offset=7, attributes=1) is Action.APPEND_AS_IS
    assert decide({"max_message_bytes": 5}, origin) is ErrorCode.MESSAGE_TOO_LARGE


def test_compacted_topics_need_keys() -> None:
    config = {"cleanup_policy": frozenset(["compact", "delete"])}
    assert decide(config) is Action.CHECK_KEYS


def test_a_lower_bound_of_timestamps_opens_batches() -> None:
    assert decide({"message_timestamp_before_max_ms": 5}) is Action.CHECK_TIMESTAMPS


def test_log_append_time_is_stamped_without_looking_at_timestamps() -> None:
    config = {"message_timestamp_type": "LogAppendTime", "message_timestamp_before_max_ms": 5}
    assert decide(config, max_timestamp=2**60) is Action.STAMP_LOG_APPEND_TIME
    assert decide(config, attributes=0x08) is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize(
    ("compression_type", "codec", "is_recompressed"),
    [
        ("producer", Codec.ZSTD, False),
        ("uncompressed", Codec.NONE, False),
        ("uncompressed", Codec.LZ4, True),
        ("lz4", Codec.NONE, True),
        ("lz4", Codec.LZ4, False),
        ("zstd", Codec.SNAPPY, True),
        ("gzip", Codec.GZIP, False),
    ],
)
def test_another_codec_than_the_topics_means_recompression(
    compression_type: str, codec: Codec, is_recompressed: bool
) -> None:
    action = decide({"compression_type": compression_type}, attributes=codec)
    assert action is (Action.RECOMPRESS if is_recompressed else Action.APPEND_AS_IS)


def test_actions_add_up() -> None:
    config = {
        "cleanup_policy": frozenset(["compact"]),
        "message_timestamp_type": "LogAppendTime",
        "compression_type": "lz4",
    }
    assert decide(config) is (Action.STAMP_LOG_APPEND_TIME | Action.CHECK_KEYS | Action.RECOMPRESS)
    assert ValidationRules(TopicConfig(**config)).target_codec is Codec.LZ4
    assert ValidationRules(TopicConfig()).target_codec is None


def record(timestamp_ms: int, key: bytes | None = b"k") -> Record:
    return Record(0, timestamp_ms, key, b"v")


def refusal(
    records: list[Record], action: Action, **config: Any
) -> tuple[ErrorCode, list[int]] | None:
    rules = ValidationRules(TopicConfig(message_timestamp_before_max_ms=100, **config))
    try:
        rules.check_records(records, action, NOW_MS)
    except RecordsRefusedError as error:
        return error.code, [e.batch_index for e in error.record_errors]
    return None


def test_opened_records_are_held_against_both_bounds() -> None:
    action = Action.CHECK_TIMESTAMPS
    fitting = [record(NOW_MS - 100), record(NOW_MS + HOUR_MS), record(-1), record(NOW_MS, None)]
    assert refusal(fitting, action) is None
    bad = [record(NOW_MS), record(NOW_MS - 101), record(NOW_MS + HOUR_MS + 1)]
    assert refusal(bad, action) == (ErrorCode.INVALID_TIMESTAMP, [1, 2])
    assert refusal(bad, action, message_timestamp_type="LogAppendTime") is None


def test_records_without_a_key_are_named() -> None:
    records = [record(NOW_MS, None), record(NOW_MS, b""), record(NOW_MS, None)]
    assert refusal(records, Action.CHECK_KEYS) == (ErrorCode.INVALID_RECORD, [0, 2])
    late = [record(NOW_MS, None), record(0)]
    assert refusal(late, Action.CHECK_KEYS) == (ErrorCode.INVALID_TIMESTAMP, [0, 1])


def test_errors_are_bounded() -> None:
    rules = ValidationRules(TopicConfig())
    with pytest.raises(RecordsRefusedError) as caught:
        rules.check_records([record(0, None)] * 5000, Action.CHECK_KEYS, NOW_MS)
    assert len(caught.value.record_errors) == 1000
    assert caught.value.record_errors[0] == RecordError(
        0, "Compacted topic cannot accept message without key"
    )
    assert len(str(caught.value)) < 1000


def test_a_partition_gets_exactly_one_batch() -> None:
    check_batches([CREATE_TIME])
    for count in (0, 2):
        with pytest.raises(KafkaError, match="exactly one"):
            check_batches([CREATE_TIME] * count)
    with pytest.raises(KafkaError, match="magic 1"):
        check_batches([CREATE_TIME._replace(magic=1)])
