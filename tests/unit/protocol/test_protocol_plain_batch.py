"""The short way to build a coordinator's batch against the long one."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.batches import Record, build_batch, check_batch, count_records, plain_batch

FIELDS = st.tuples(st.binary(max_size=200), st.none() | st.binary(max_size=200))


@given(st.lists(FIELDS, min_size=1, max_size=70), st.integers(0, 2**60))
def test_a_plain_batch_has_the_bytes_of_a_built_one(
    fields: list[tuple[bytes, bytes | None]], timestamp_ms: int
) -> None:
    records = [Record(at, timestamp_ms, *one) for at, one in enumerate(fields)]
    batch = plain_batch(fields, timestamp_ms)
    assert batch == build_batch(records)
    check_batch(batch, 0, len(batch))
    assert count_records(batch) == len(fields)
