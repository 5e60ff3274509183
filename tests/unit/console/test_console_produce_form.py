"""A record that goes through the form of a browser comes back byte for byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.console.errors import BadRequestError
from ottla.console.produce_form import Fields, fields_of, written_of
from ottla.console.records import Record

BYTES = (
    st.none()
    | st.binary(max_size=12)
    | st.text(max_size=8).map(str.encode)
    | st.text(alphabet="a\n\r\t ", max_size=6).map(str.encode)
)
NAMES = st.text(
    alphabet=st.characters(blacklist_categories=("Cc", "Cs"), blacklist_characters="\ufffd"),
    max_size=4,
)


def line(text: str) -> str:
    """What a field of one line gives back."""
    return text.replace("\r", "").replace("\n", "")


def area(text: str) -> str:
    """What a text area gives back of a value that the page writes after a line end of its own."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def sent(fields: Fields) -> dict[str, list[str]]:
    return {
        "key": [line(fields.key.text)],
        "key_as": [fields.key.written_as],
        "value": [area(fields.value.text).replace("\n", "\r\n")],
        "value_as": [fields.value.written_as],
        "header_name": [line(one.name) for one in fields.headers],
        "header_value": [line(one.value.text) for one in fields.headers],
        "header_as": [one.value.written_as for one in fields.headers],
    }


@given(BYTES, BYTES, st.lists(st.tuples(NAMES, BYTES), max_size=3))
def test_a_copy_is_the_same_record(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    record = Record(0, 0, 0, False, key, value, tuple(headers))
    written = written_of(sent(fields_of(record)))
    assert (written.key, written.value, written.headers) == (key, value, headers)


@pytest.mark.parametrize(
    ("data", "written_as"),
    [
        (b"plain", "text"),
        ((4711).to_bytes(8, "big"), "hex"),  # UTF-8, and still not text
        (b"two\nlines", "hex"),
        (b"", "empty"),
        (None, "null"),
    ],
)
def test_a_key_is_offered_as_what_it_is(data: bytes | None, written_as: str) -> None:
    fields = fields_of(Record(0, 0, 0, False, data, None, ()))
    assert fields.key.written_as == written_as


def test_a_form_as_a_person_fills_it() -> None:
    written = written_of({"key": [""], "value": ["a\r\nb"], "header_name": [""],
                          "header_value": [""], "header_as": ["text"]})  # fmt: skip
    assert written == (None, b"a\nb", [])


def test_a_header_name_that_is_not_text_is_not_copied_wrongly() -> None:
    with pytest.raises(BadRequestError, match="header"):
        fields_of(Record(0, 0, 0, False, None, None, (("\ufffd", b"x"),)))


@pytest.mark.parametrize(
    "form", [{"key": ["xyz"], "key_as": ["hex"]}, {"header_name": ["a"], "header_value": []}]
)
def test_what_cannot_be_read_is_refused(form: dict[str, list[str]]) -> None:
    with pytest.raises(BadRequestError):
        written_of(form)
