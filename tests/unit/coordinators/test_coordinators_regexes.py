"""Expressions of clients: what they match, what is refused, and that none takes the loop along.

What is here was answered alike by RE2/J 1.8, which Apache Kafka 4.3 runs.
"""

import pytest

from ottla.coordinators.group.consumer.changes import is_concerned
from ottla.coordinators.group.consumer.group import ConsumerGroup
from ottla.coordinators.group.consumer.member import ConsumerMember
from ottla.coordinators.group.consumer.records import MemberRecord
from ottla.coordinators.group.consumer.topics import matching_topics
from ottla.coordinators.regexes import compile_regex
from ottla.metadata.image import EMPTY_IMAGE
from ottla.protocol.errors import ErrorCode, KafkaError


@pytest.mark.parametrize(
    ("regex", "matching", "other"),
    [
        ("orders.*", "orders-eu", "my-orders"),
        (r"\Qa.b\E[0-9]+", "a.b12", "axb1"),
        (r"[\pL_]+", "a_b", "a1"),
        ("[[:alpha:]]+", "ab", "a1"),
        ("(?<x>a|b)c", "bc", "cc"),
        ("[]a]+", "]a", "b"),
        (r"a\z", "a", "b"),
        ("(eu|us)*.orders", "euus.orders", "de.orders"),
        ("(?:foo|bar)+", "foobarfoo", "foobaz"),
        ("(a|b){1,2}", "ba", "aba"),
        ("(a|a)*b", "aab", "aa"),
        ("((x*))+", "xx", "y"),
        ("(?i)ORDERS", "orders", "order"),
        (".{1000}", "x" * 1000, "x" * 999),
        ("é+", "éé", "e"),
    ],
)
def test_expressions_match_whole_names(regex: str, matching: str, other: str) -> None:
    assert compile_regex(regex).matches(matching)
    assert not compile_regex(regex).matches(other)


@pytest.mark.parametrize(
    "regex",
    ["[", "(", "*", "a**", "a*+", "(?=a)", r"(a)\1", r"\p{Alpha}", "a{1001}", "x" * 5000, "\\"],
)
def test_wrong_expressions_are_refused(regex: str) -> None:
    with pytest.raises(KafkaError) as raised:
        compile_regex(regex)
    assert raised.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize(
    "regex",
    [
        ".*x.*x.*x.*x.*x.*x.*x.*x.*x.*y",
        "(x+x+)+y",
        "(x|x)*y",
        "(a|b|x)*x(a|b|x){200}",
        "(.*x){100}y",
    ],
)
def test_no_expression_takes_more_than_linear_time(regex: str) -> None:
    """An engine that goes back would take minutes, or years, and the test its time limit."""
    pattern = compile_regex(regex)
    for _ in range(20):
        pattern.matches("x" * 249)


def test_an_expression_too_large_to_run_is_refused() -> None:
    with pytest.raises(KafkaError):
        compile_regex(r"(.*\pL){40}(\w{300})*")


def test_an_expression_that_another_broker_accepted_matches_nothing_here() -> None:
    """The log may hold one that RE2/J takes and RE2 does not: no heartbeat fails for it."""
    stored = "(x{32}){32}"
    group = ConsumerGroup("g")
    group.replay(MemberRecord("g", "m", ConsumerMember("m", regex=stored)))
    assert matching_topics(stored, EMPTY_IMAGE) == frozenset()
    assert not is_concerned(group, ["orders"])
