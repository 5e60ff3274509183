"""Snapshots of producers: bytes as Apache Kafka 4.3.1 wrote them, and which files to keep."""

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.batches import (
    ControlType,
    iter_batches,
    iter_records,
    parse_control_key,
    parse_end_txn_marker,
)
from ottla.protocol.ids import Offset, ProducerId
from ottla.storage.core.producer_snapshots import (
    CorruptSnapshotError,
    decode_snapshot,
    encode_snapshot,
    outside,
    strays,
)
from ottla.storage.core.producer_state import Batch, ProducerEntry, ProducerState
from ottla.storage.core.transaction_index import AbortedTransaction, TransactionIndex

# A partition that two transactional producers wrote to, as Apache Kafka 4.3.1 left it.
KAFKA_LOG_0 = (
    "00000000000000000000003a0000000002ac344a350010000000000000018bcfe568000000018bcfe568000000"
    "000000000001000000000000000000011000000001047830000000"
    "0000000000010000003a000000000269a9d7a70010000000000000018bcfe56be80000018bcfe56be800000000"
    "0000000200000000000000000001100000000104783100"
    "00000000000000020000003a0000000002b22add2c0010000000000000018bcfe56fd00000018bcfe56fd00000"
    "00000000000100000000000100000001100000000104783200"
    "00000000000000030000003a00000000023f9a205a0010000000000000018bcfe573b80000018bcfe573b80000"
    "00000000000200000000000100000001100000000104783300"
)
KAFKA_LOG_4 = (
    "00000000000000040000004200000000029cdc7b17003000000000000001a1e41c585f000001a1e41c585f0000"
    "0000000000020000ffffffff000000012000000008000000010c00000000000000"
    "0000000000000005000000420000000002a421267e003000000000000001a1e41c586e000001a1e41c586e0000"
    "0000000000010000ffffffff000000012000000008000000000c00000000000000"
    "00000000000000060000003a00000000026ca472730010000000000000018bcfe577a00000018bcfe577a00000"
    "00000000000100000000000200000001100000000104783400"
    "0000000000000007000000420000000002f4c593b5003000000000000001a1e41c58ac000001a1e41c58ac0000"
    "0000000000010000ffffffff000000012000000008000000000c00000000000000"
    "00000000000000080000003a0000000002436b52390010000000000000018bcfe58b280000018bcfe58b280000"
    "00000000000200000000000200000001100000000104783900"
    "00000000000000090000004200000000029ba8121b003000000000000001a1e41c58be000001a1e41c58be0000"
    "0000000000020000ffffffff000000012000000008000000000c00000000000000"
    "000000000000000a0000003b000000000270980be10010000000000000018bcfe58f100000018bcfe58f100000"
    "0000000000010000000000030000000112000000010678313000"
)
KAFKA_SNAPSHOT_4 = (
    "000102af47a500000002"
    "00000000000000010000000000010000000000000002000000000000018bcfe56fd0ffffffff0000000000000000"
    "00000000000000020000000000010000000000000003000000000000018bcfe573b8ffffffff0000000000000001"
)
KAFKA_SNAPSHOT_11 = (
    "00015ab628ed00000002"
    "0000000000000001000000000003000000000000000a000000000000018bcfe58f1000000000000000000000000a"
    "0000000000000002000000000002000000000000000800000000000001a1e41c58be00000000ffffffffffffffff"
)
KAFKA_TRANSACTION_INDEX_4 = (
    "00000000000000000001000000000000000000000000000000050000000000000006"
    "00000000000000000001000000000000000600000000000000070000000000000008"
    "0000000000000000000200000000000000080000000000000009000000000000000a"
)


def replay(state: ProducerState, log: bytes, aborted: TransactionIndex) -> None:
    for position, header in iter_batches(log):
        producer_id = ProducerId(header.producer_id)
        if not header.is_control:
            state.apply(
                producer_id,
                header.producer_epoch,
                header.base_sequence,
                Offset(header.base_offset),
                Offset(header.last_offset),
                header.max_timestamp,
                header.is_transactional,
            )
            continue
        (record,) = iter_records(log[position : position + header.size_bytes])
        completed = state.apply_marker(
            producer_id,
            header.producer_epoch,
            parse_end_txn_marker(record.value),
            offset=Offset(header.base_offset),
            timestamp_ms=record.timestamp_ms,
            is_abort=parse_control_key(record.key) is ControlType.ABORT,
        )
        if completed is not None and completed.is_aborted:
            aborted.append(
                AbortedTransaction(
                    completed.producer_id,
                    completed.first_offset,
                    completed.last_offset,
                    completed.last_stable_offset,
                )
            )


def test_the_log_of_apache_kafka_yields_its_snapshots_and_transaction_index() -> None:
    state = ProducerState(expiration_ms=1)
    aborted = TransactionIndex(Offset(4))
    replay(state, bytes.fromhex(KAFKA_LOG_0), aborted)
    assert encode_snapshot(state.entries()).hex() == KAFKA_SNAPSHOT_4
    assert state.first_unstable_offset == 0
    replay(state, bytes.fromhex(KAFKA_LOG_4), aborted)
    assert encode_snapshot(state.entries()).hex() == KAFKA_SNAPSHOT_11
    assert aborted.data.hex() == KAFKA_TRANSACTION_INDEX_4
    state.on_high_watermark_updated(Offset(11))
    assert state.first_unstable_offset == 10


def test_a_snapshot_and_the_rest_of_the_log_yield_the_next_snapshot() -> None:
    state = ProducerState(expiration_ms=2**62)
    state.reload(decode_snapshot(bytes.fromhex(KAFKA_SNAPSHOT_4)), Offset(4), now_ms=0)
    replay(state, bytes.fromhex(KAFKA_LOG_4), TransactionIndex(Offset(4)))
    assert encode_snapshot(state.entries()).hex() == KAFKA_SNAPSHOT_11


@pytest.mark.parametrize("text", [KAFKA_SNAPSHOT_4, KAFKA_SNAPSHOT_11])
def test_snapshots_of_apache_kafka_are_written_back_alike(text: str) -> None:
    assert encode_snapshot(decode_snapshot(bytes.fromhex(text))).hex() == text


int64 = st.integers(-1, 2**63 - 1)


@st.composite
def entries(draw: st.DrawFn) -> ProducerEntry:
    entry = ProducerEntry(ProducerId(draw(st.integers(0, 2**63 - 1))))
    entry.epoch = draw(st.integers(-1, 2**15 - 1))
    entry.coordinator_epoch = draw(st.integers(-1, 2**31 - 1))
    entry.last_timestamp_ms = draw(int64)
    first = draw(int64)
    entry.transaction_first_offset = Offset(first) if first >= 0 else None
    if draw(st.booleans()):
        entry.last_sequence = draw(st.integers(0, 2**31 - 1))
        delta = draw(st.integers(0, 2**31 - 1))
        base_sequence = entry.last_sequence - delta
        if base_sequence < 0:
            base_sequence += 2**31
        last_offset = Offset(draw(st.integers(delta, 2**63 - 1)))
        entry.batches = [
            Batch(base_sequence, entry.last_sequence, last_offset, delta, entry.last_timestamp_ms)
        ]
    return entry


@given(st.lists(entries(), max_size=5))
def test_entries_survive_a_snapshot(before: list[ProducerEntry]) -> None:
    assert decode_snapshot(encode_snapshot(before)) == before


def test_a_batch_of_a_coordinator_has_no_sequence_in_a_snapshot_either() -> None:
    entry = ProducerEntry(ProducerId(5))
    entry.batches = [Batch(-1, -1, Offset(9), 2, 100)]
    entry.last_timestamp_ms = 100
    assert decode_snapshot(encode_snapshot([entry])) == [entry]


def test_a_producer_known_by_a_marker_alone_has_no_batch() -> None:
    entry = ProducerEntry(ProducerId(5))
    content = encode_snapshot([entry])
    assert content[10:].hex() == (
        "0000000000000005" "ffff" "ffffffff" "ffffffffffffffff" "00000000"
        "ffffffffffffffff" "ffffffff" "ffffffffffffffff"
    )  # fmt: skip
    assert decode_snapshot(content) == [entry]


def test_the_first_record_of_a_log_is_a_batch_like_any_other() -> None:
    entry = ProducerEntry(ProducerId(5))
    entry.batches = [Batch(0, 0, Offset(0), 0, 100)]
    entry.last_sequence, entry.last_timestamp_ms = 0, 100
    assert decode_snapshot(encode_snapshot([entry])) == [entry]


@given(st.data())
def test_a_damaged_snapshot_is_corrupt(data: st.DataObject) -> None:
    content = bytearray.fromhex(KAFKA_SNAPSHOT_11)
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptSnapshotError):
        decode_snapshot(bytes(content))
    with pytest.raises(CorruptSnapshotError):
        decode_snapshot(bytes.fromhex(KAFKA_SNAPSHOT_11)[:at])


def test_a_count_that_promises_too_much_is_corrupt() -> None:
    body = (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(CorruptSnapshotError, match="do not hold"):
        decode_snapshot(b"\0\1" + crc32c(body).to_bytes(4, "big") + body)


def offsets(*values: int) -> list[Offset]:
    return [Offset(value) for value in values]


def test_truncation_drops_snapshots_outside_the_log() -> None:
    assert outside(
        offsets(0, 5, 9, 10, 11), log_start_offset=Offset(5), log_end_offset=Offset(10)
    ) == offsets(0, 5, 11)


def test_strays_go_but_for_the_one_of_the_clean_shutdown() -> None:
    assert strays(offsets(5, 7, 10, 12), offsets(0, 5, 10)) == offsets(7)
    assert strays(offsets(5, 7), offsets(0, 5, 10)) == offsets(7)
    assert strays(offsets(11, 12), offsets(0, 10)) == offsets(11)
    assert strays(offsets(11), []) == []
    assert strays([], offsets(0)) == []
