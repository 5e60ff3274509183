"""A CRC that follows a change against one that is computed anew."""

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.crc_change import changed_crc

heads = st.integers(0, 64).flatmap(
    lambda size: st.tuples(*[st.binary(min_size=size, max_size=size)] * 2)
)


@given(heads, st.binary(max_size=300), st.integers(0, 5000))
def test_a_changed_crc_is_that_of_the_changed_message(
    change: tuple[bytes, bytes], tail: bytes, repeated: int
) -> None:
    before, after = change
    rest = tail * (repeated // max(1, len(tail)))
    found = changed_crc(crc32c(before + rest), before, after, bytes_behind=len(rest))
    assert found == crc32c(after + rest)


def test_damage_behind_the_change_stays_visible() -> None:
    whole = bytearray(b"head" + b"records" * 1000)
    crc = crc32c(whole)
    whole[500] ^= 1
    assert changed_crc(crc, b"head", b"HEAD", bytes_behind=7000) != crc32c(b"HEAD" + whole[4:])


def test_the_change_must_have_one_length() -> None:
    with pytest.raises(ValueError, match="3 bytes"):
        changed_crc(0, b"four", b"two", bytes_behind=1)
