"""Filters against Python itself as the oracle, and against hostile records and expressions."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.console.filters import FilterError, compile_filter, compile_search
from ottla.console.records import Record


def record(value: object = None, key: bytes | None = None, **headers: bytes | None) -> Record:
    data = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
    return Record(3, 41, 1_700_000_000_000, False, key, data, tuple(headers.items()))


NUMBERS = st.integers(-(2**64), 2**64)
OPERATORS = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


@given(NUMBERS, NUMBERS, st.sampled_from(sorted(OPERATORS)))
def test_numbers_compare_exactly(one: int, other: int, operator: str) -> None:
    matches = compile_filter(f"value.n {operator} {other}")
    assert matches(record({"n": one})) is OPERATORS[operator](one, other)


@given(
    st.recursive(
        st.booleans(),
        lambda inner: st.one_of(
            st.tuples(st.just("not"), inner),
            st.tuples(st.sampled_from(["and", "or"]), inner, inner),
        ),
        max_leaves=12,
    )
)
def test_logic_agrees_with_python(tree: object) -> None:
    def written(node: object) -> str:
        if isinstance(node, bool):
            return "true" if node else "false"
        assert isinstance(node, tuple)
        if node[0] == "not":
            return f"not ({written(node[1])})"
        return f"({written(node[1])}) {node[0]} ({written(node[2])})"

    text = written(tree)
    assert compile_filter(text)(record()) is eval(
        text.replace("true", "True").replace("false", "False")
    )


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("value.a.b[1].c == 'x'", True),
        ("value.a.b[9].c == 'x'", False),
        ("value.a.b[9].c != 'x'", True),
        ("value.missing", False),
        ("not value.missing", True),
        ("value.missing == null", False),
        ("value.nothing == null", True),
        ("value.big == 9007199254740993", True),
        ("value.big == 9007199254740992", False),
        ("value.price > 9.99 and value.price < 10.01", True),
        ("value.tags contains 'red'", True),
        ('value.name contains "O\'B"', True),
        ("value.name startswith 'O' && !(value.name endswith 'z')", True),
        ("value.name in ('x', \"O'Brien\")", True),
        ("key startswith 'eu-' || key == 'us'", True),
        ("headers.source == 'web'", True),
        ("headers['trace-id'] == 7", True),
        ("headers.nope == 'web'", False),
        ("partition == 3 and offset >= 41 and timestamp > 1600000000000", True),
        ("value.flag == true", True),
        ("value.flag == 1", False),
        ("value['odd key'] = 'v'", True),
    ],
)
def test_expressions(expression: str, expected: bool) -> None:
    one = record(
        {
            "a": {"b": [{}, {"c": "x"}]},
            "big": 9007199254740993,
            "price": 10.0,
            "tags": ["red", "blue"],
            "name": "O'Brien",
            "nothing": None,
            "flag": True,
            "odd key": "v",
        },
        b"eu-1",
        source=b"web",
        **{"trace-id": b"7"},
    )
    assert compile_filter(expression)(one) is expected


@pytest.mark.parametrize(
    "expression",
    [
        "", "and", "value ==", "value == 1 2", "(value", "value)", "nosuch == 1", "value.",
        "value[", "value[]", "'open", "value == @", "value in 'x'", "value in (",
        "__import__('os')", "(" * 100 + "value" + ")" * 100, "value == " + "1" * 3000,
    ],
)  # fmt: skip
def test_what_is_not_a_filter_is_told_in_words(expression: str) -> None:
    with pytest.raises(FilterError) as caught:
        compile_filter(expression)
    assert str(caught.value).endswith(".")


@given(st.binary(max_size=60) | st.text(max_size=40).map(str.encode), st.binary(max_size=20))
def test_no_record_makes_a_filter_fail(value: bytes, header: bytes) -> None:
    matches = compile_filter(
        "value.a > 1 or value contains 'x' or key == 2 or headers.h < 3 or value[0].b in (1, null)"
    )
    assert matches(record(value, value, h=header)) in (True, False)


@pytest.mark.parametrize(
    "value", [b"1e999999999", b'{"a": 1e999999999}', b"[" * 5000, b"NaN", b"1" * 9999]
)
def test_hostile_numbers_and_depth_end_quickly(value: bytes) -> None:
    assert compile_filter("value.a > 1 or value > 1")(record(value)) in (True, False)


def test_the_last_of_duplicate_members_and_headers_counts() -> None:
    twice = record(b'{"a": 1, "a": 2}')._replace(headers=(("h", b"1"), ("h", b"2")))
    assert compile_filter("value.a == 2 and headers.h == 2")(twice)


def test_search_finds_text_in_key_value_and_headers_whatever_the_case() -> None:
    assert compile_search("PRAHA")(record({"city": "Praha"}))
    assert compile_search("k1")(record(None, b"K1"))
    assert compile_search("trace")(record(None, None, Trace=b"1"))
    assert compile_search("abc")(record(None, None, h=b"xABCx"))
    assert compile_search("dvořák")(record("Dvořák".encode()))
    assert not compile_search("x")(record(None))
