"""Properties texts as java.util.Properties reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.config.definitions import ConfigError
from ottla.config.properties import TEXT_CHARACTERS_MAX, read, write


@pytest.mark.parametrize(
    ("text", "mapping"),
    [
        ("a=1\nb:2\nc 3\nd\te\n", {"a": "1", "b": "2", "c": "3", "d": "e"}),
        ("  a  =  1  \n", {"a": "1  "}),
        ("# a=1\n ! b=2\n\n   \nc=3", {"c": "3"}),
        ("a=1,\\\n   2,\\\n\t3\n", {"a": "1,2,3"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a\\ b\\=c\\:d = e", {"a b=c:d": "e"}),
        ("path=C\\:\\\\kafka\\tlogs", {"path": "C:\\kafka\tlogs"}),
        ("a=\\u00e9\\u20AC", {"a": "é€"}),
        ("a=\\uD83D\\uDE00", {"a": "\U0001f600"}),
        ("a=b=c:d", {"a": "b=c:d"}),
        ("a", {"a": ""}),
        ("=v", {"": "v"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("# comment \\\na=1", {"a": "1"}),
        ("a=x\\\n# no comment\nb=1", {"a": "x# no comment", "b": "1"}),
        ("a=\\z\\'", {"a": "z'"}),
        ("a=1\\", {"a": "1"}),
        ("\\", {"": ""}),
        ("\\\n# a=1", {}),
        ("a = ${b}", {"a": "${b}"}),
        ("", {}),
    ],
)
def test_text_is_read_as_java_reads_it(text: str, mapping: dict[str, str]) -> None:
    assert read(text) == mapping


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12g4", "a=\\u+123"])
def test_a_broken_unicode_escape_names_its_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^line 3 must have four hexadecimal digits"):
        read(f"x=1\n\n{text}\n")


def test_a_text_of_any_size_is_not_read() -> None:
    with pytest.raises(ConfigError, match="must not exceed"):
        read("a" * (TEXT_CHARACTERS_MAX + 1))


def test_a_comment_stays_one_for_every_line_of_it() -> None:
    assert write({"a": "1"}, comment="one\ntwo=2") == "#one\n#two=2\na=1\n"


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.dictionaries(TEXTS, TEXTS), TEXTS)
def test_what_is_written_is_read_back(mapping: dict[str, str], comment: str) -> None:
    text = write(mapping, comment=comment)
    assert text.isascii()
    assert read(text) == mapping
