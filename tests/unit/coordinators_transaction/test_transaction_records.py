"""Records of `__transaction_state`: what is written is read, and damage is told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinators.transaction.metadata import TransactionMetadata
from ottla.coordinators.transaction.records import (
    decode_key,
    decode_value,
    transaction_record,
    transaction_tombstone,
)
from ottla.coordinators.transaction.states import TransactionState
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import TopicPartition

INT64 = st.integers(-1, 2**63 - 1)
PARTITIONS = st.frozensets(
    st.builds(TopicPartition, st.text(min_size=1, max_size=5), st.integers(0, 300)), max_size=8
)


@st.composite
def metadata(draw: st.DrawFn) -> TransactionMetadata:
    state = draw(st.sampled_from(TransactionState))
    empty: frozenset[TopicPartition] = frozenset()
    return TransactionMetadata(
        draw(st.integers(0, 2**63 - 1)),
        draw(st.integers(-1, 2**15 - 1)),
        draw(st.integers(0, 2**31 - 1)),
        state,
        empty if state is TransactionState.EMPTY else draw(PARTITIONS),
        draw(INT64),
        draw(INT64),
        draw(INT64),
        draw(INT64),
        draw(st.integers(-1, 2**15 - 1)),
        client_version=draw(st.integers(0, 2)),
    )


@given(st.text(min_size=1, max_size=20), metadata(), st.integers(1, 2))
def test_a_flexible_record_reads_as_it_was_written(
    name: str, value: TransactionMetadata, version: int
) -> None:
    record = transaction_record(name, value, transaction_version=version)
    assert record.value is not None
    assert record.value[:2] == b"\0\1"
    assert decode_key(record.key) == name
    assert decode_value(record.value) == value


@given(metadata())
def test_a_legacy_record_loses_only_what_it_has_no_room_for(value: TransactionMetadata) -> None:
    record = transaction_record("x", value, transaction_version=0)
    assert record.value is not None
    assert record.value[:2] == b"\0\0"
    kept = value._replace(
        previous_producer_id=-1, next_producer_id=-1, next_producer_epoch=-1, client_version=0
    )
    assert decode_value(record.value) == kept


@given(metadata(), st.data())
def test_a_record_cut_short_is_corrupt(value: TransactionMetadata, data: st.DataObject) -> None:
    raw = transaction_record("x", value, transaction_version=2).value
    assert raw is not None
    end = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(KafkaError) as caught:
        decode_value(raw[:end])
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("raw", [b"\0\2" + bytes(40), b"\0\0" + bytes(14) + b"\x09" + bytes(30)])
def test_an_unknown_version_or_state_is_corrupt(raw: bytes) -> None:
    with pytest.raises(KafkaError) as caught:
        decode_value(raw)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_key_of_another_version_is_left_alone() -> None:
    assert decode_key(b"\0\7\0\1x") is None
    assert transaction_tombstone("x").value is None


def test_the_bytes_are_those_of_apache_kafka_43() -> None:
    value = TransactionMetadata(
        7,
        3,
        60_000,
        TransactionState.PREPARE_COMMIT,
        frozenset((TopicPartition("t", 1), TopicPartition("t", 0))),
        1000,
        2000,
        previous_producer_id=7,
        client_version=2,
    )
    record = transaction_record("id", value, transaction_version=2)
    assert record.key == b"\0\0\0\2id"
    assert record.value == (
        b"\0\1" + (7).to_bytes(8, "big") + b"\0\3" + (60_000).to_bytes(4, "big") + b"\2"
        b"\2" b"\2t" b"\3" b"\0\0\0\0" b"\0\0\0\1" b"\0"
        + (2000).to_bytes(8, "big")
        + (1000).to_bytes(8, "big")
        + b"\2" b"\0\x08" + (7).to_bytes(8, "big") + b"\2\2\0\2"
    )  # fmt: skip
