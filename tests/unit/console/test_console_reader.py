"""Records out of fetched batches: what is shown, what is passed over, where to go on."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from ottla.client.fetch_response import AbortedTransaction, FetchedPartition
from ottla.console.hanging import compare
from ottla.console.kafka.model import ProducerView, TransactionView
from ottla.console.kafka.questions import parse_assignment
from ottla.console.kafka.reader import read_batches
from ottla.protocol.batches import ControlType, Record, build_batch, control_batch


def batch(base: int, count: int, *, producer: int = -1) -> bytes:
    records = [Record(base + n, 1000 + n, None, b"v%d" % (base + n), ()) for n in range(count)]
    return bytes(
        build_batch(records, base_offset=base, producer_id=producer, is_transactional=producer >= 0)
    )


def marker(offset: int, producer: int) -> bytes:
    return bytes(
        control_batch(
            ControlType.ABORT, base_offset=offset, producer_id=producer, producer_epoch=0,
            timestamp_ms=1, coordinator_epoch=0, leader_epoch=0,
        )
    )  # fmt: skip


def read(data: bytes, offset: int, *aborted: AbortedTransaction) -> tuple[list[int], int]:
    answer = FetchedPartition(3, 0, 99, 99, 0, aborted, -1, memoryview(data))
    shown, following = [], offset
    for record, after in read_batches(answer, offset):
        if record is not None:
            shown.append(record.offset)
        following = after
    return shown, following


def test_records_before_the_offset_are_passed_over_and_a_cut_batch_is_left() -> None:
    data = batch(0, 5) + batch(5, 3)
    assert read(data, 3) == ([3, 4, 5, 6, 7], 8)
    assert read(data[:-1], 3) == ([3, 4], 5)
    assert read(data[:40], 3) == ([], 3)


def test_aborted_transactions_and_markers_are_not_shown_to_who_reads_committed() -> None:
    data = batch(0, 2, producer=7) + batch(2, 2) + marker(4, 7) + batch(5, 1, producer=7)
    assert read(data, 0) == ([0, 1, 2, 3, 5], 6)
    assert read(data, 0, AbortedTransaction(7, 0)) == ([2, 3, 5], 6)


def test_an_assignment_is_read_and_a_lie_in_it_is_nothing() -> None:
    data = struct.pack(">hi", 1, 1) + struct.pack(">h", 1) + b"t" + struct.pack(">iii", 2, 4, 0)
    assert parse_assignment(data) == (("t", 0), ("t", 4))
    huge = struct.pack(">hi", 1, 1) + struct.pack(">h", 1) + b"t" + struct.pack(">i", 2**31 - 1)
    assert parse_assignment(huge) == ()


@given(st.binary(max_size=80))
def test_no_bytes_of_a_member_make_an_assignment_fail(data: bytes) -> None:
    parse_assignment(data)


def test_a_transaction_hangs_where_its_coordinator_does_not_know_it() -> None:
    producers = [
        ProducerView(0, 11, 0, 5, 1, 40),  # known
        ProducerView(1, 11, 0, 5, 1, 41),  # known, but not there
        ProducerView(0, 12, 0, 5, 1, 42),  # unknown
        ProducerView(0, 13, 0, 5, 1, -1),  # nothing open
    ]
    known = [TransactionView("x", 11, 0, "Ongoing", 60_000, 1, (("t", 0), ("other", 1)), 1)]
    found = [(one.partition, one.producer_id) for one in compare("t", producers, known)]
    assert found == [(1, 11), (0, 12)]
