"""A staged batch gets a producer; whatever happened to it before stays visible."""

import pytest

from ottla.client.transactions import claim_batch
from ottla.protocol.batches import (
    ATTRIBUTES_AT,
    HEADER_BYTES,
    Record,
    build_batch,
    check_batch,
    iter_records,
)
from ottla.protocol.errors import ErrorCode, KafkaError

RECORDS = [Record(0, 5, b"k", b"v"), Record(1, 6, None, None)]


def test_a_claimed_batch_names_its_producer_and_keeps_its_records() -> None:
    data = memoryview(build_batch(RECORDS))
    count = claim_batch(
        data, producer_id=7, producer_epoch=3, base_sequence=40, is_transactional=True
    )
    header = check_batch(data, 0, len(data))
    assert count == 2
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 40)
    assert header.is_transactional
    assert [(r.key, r.value) for r in iter_records(data)] == [(b"k", b"v"), (None, None)]
    claim_batch(data, producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=False)
    assert not check_batch(data, 0, len(data)).is_transactional


def claim(data: bytearray) -> None:
    claim_batch(
        memoryview(data), producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
    )


@pytest.mark.parametrize("change", ["short", "long"])
def test_a_batch_of_another_length_is_refused(change: str) -> None:
    data = build_batch(RECORDS)
    if change == "short":
        del data[-1]
    else:
        data += b"x"
    with pytest.raises(KafkaError) as caught:
        claim(data)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("place", [-1, HEADER_BYTES, HEADER_BYTES - 1, ATTRIBUTES_AT])
def test_a_batch_that_was_damaged_on_its_way_does_not_become_sound(place: int) -> None:
    data = build_batch(RECORDS)
    data[place] ^= 1
    claim(data)
    with pytest.raises(KafkaError) as caught:
        check_batch(data, 0, len(data))  # as a broker does
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
