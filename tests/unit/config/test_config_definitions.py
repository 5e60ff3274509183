"""The text of a value against what Java makes of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.config.definitions import (
    Between,
    ConfigError,
    ConfigKey,
    ConfigTable,
    ConfigType,
    ConfigValue,
    Elements,
    Importance,
    OneOf,
    Validator,
    parse_list,
    render,
)
from ottla.protocol.errors import ErrorCode


def key(config_type: ConfigType, validator: Validator | None = None) -> ConfigKey:
    return ConfigKey("some.key", config_type, None, validator, Importance.LOW, "Some key.")


@pytest.mark.parametrize(
    ("config_type", "text", "value"),
    [
        (ConfigType.INT, " +5 ", 5),
        (ConfigType.INT, "-2147483648", -(2**31)),
        (ConfigType.SHORT, "32767", 32767),
        (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
        (ConfigType.LONG, "007", 7),
        (ConfigType.BOOLEAN, " TRUE ", True),
        (ConfigType.BOOLEAN, "false", False),
        (ConfigType.DOUBLE, "1.5d", 1.5),
        (ConfigType.DOUBLE, ".5", 0.5),
        (ConfigType.DOUBLE, "1e400", float("inf")),
        (ConfigType.LIST, " a , b ", ("a", "b")),
        (ConfigType.LIST, "  ", ()),
        (ConfigType.STRING, "\x01 text \t", "text"),
        (ConfigType.PASSWORD, " secret ", "secret"),
    ],
)
def test_text_becomes_the_value_that_java_reads(
    config_type: ConfigType, text: str, value: ConfigValue
) -> None:
    assert key(config_type).parse(text) == value


@pytest.mark.parametrize(
    ("config_type", "text"),
    [
        (ConfigType.INT, "2147483648"),
        (ConfigType.INT, "1_000"),
        (ConfigType.INT, "1.0"),
        (ConfigType.INT, ""),
        (ConfigType.SHORT, "32768"),
        (ConfigType.LONG, "1L"),
        (ConfigType.LONG, "9" * 5000),
        (ConfigType.BOOLEAN, "yes"),
        (ConfigType.DOUBLE, "inf"),
        (ConfigType.DOUBLE, "1_0.0"),
    ],
)
def test_text_that_java_refuses_is_refused(config_type: ConfigType, text: str) -> None:
    with pytest.raises(ConfigError, match=r"^some\.key must be ") as refusal:
        key(config_type).parse(text)
    assert refusal.value.code is ErrorCode.INVALID_CONFIG
    assert len(str(refusal.value)) < 250


def test_a_refused_secret_is_not_repeated() -> None:
    class Nothing:
        def allows(self, value: ConfigValue) -> bool:
            return False

        def describe(self) -> str:
            return "be absent"

    with pytest.raises(ConfigError) as refusal:
        key(ConfigType.PASSWORD, Nothing()).parse("hunter2")
    assert "hunter2" not in str(refusal.value)


def test_a_refusal_names_the_allowed_range() -> None:
    with pytest.raises(ConfigError, match=r"^some\.key must be between 1 and 9, not '10'$"):
        key(ConfigType.INT, Between(1, 9)).parse("10")
    with pytest.raises(ConfigError, match=r"must be one of a, b, not 'c'$"):
        key(ConfigType.STRING, OneOf(("a", "b"))).parse("c")


def test_both_ends_of_a_range_are_allowed() -> None:
    ranged = key(ConfigType.INT, Between(1, 9))
    assert [ranged.parse(text) for text in ("1", "9")] == [1, 9]


def test_not_a_number_lies_in_no_range() -> None:
    assert not Between(0, 1).allows(float("nan"))
    assert not Between(0).allows(float("nan"))


def test_a_repeated_element_counts_once() -> None:
    assert key(ConfigType.LIST, Elements()).parse("b,a,b") == ("b", "a")


def test_an_empty_element_is_refused() -> None:
    with pytest.raises(ConfigError):
        key(ConfigType.LIST, Elements()).parse("a,,b")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (1e7, "1.0E7"),
        (12345678.5, "1.23456785E7"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (0.00012345, "1.2345E-4"),
        (-2.5e-10, "-2.5E-10"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (1e16, "1.0E16"),
        (123456789012345680.0, "1.2345678901234568E17"),
        (float("-inf"), "-Infinity"),
        (0.0, "0.0"),
        (True, "true"),
        (("a", "b"), "a,b"),
        ((), ""),
        (None, None),
    ],
)
def test_values_are_shown_as_java_shows_them(value: ConfigValue, text: str | None) -> None:
    assert render(value) == text


@given(st.floats(allow_nan=False))
def test_a_shown_number_reads_as_itself(value: float) -> None:
    text = render(value)
    assert text is not None
    assert key(ConfigType.DOUBLE).parse(text) == value


@given(st.lists(st.text(st.characters(codec="ascii", exclude_characters=","), min_size=1)))
def test_a_shown_list_reads_as_itself(elements: list[str]) -> None:
    value = tuple(stripped for element in elements if (stripped := element.strip(" \t\n\r\f\v")))
    value = tuple(element for element in value if element.isprintable())
    assert parse_list(render(value) or "") == value


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    table = ConfigTable.of("keys", [key(ConfigType.INT)])
    with pytest.raises(ConfigError, match=r"unknown key 'some\.kye'.*did you mean 'some\.key'"):
        table["some.kye"]
    with pytest.raises(ConfigError, match=r"among the keys$"):
        table["zookeeper"]


def test_a_key_cannot_be_defined_twice() -> None:
    with pytest.raises(ValueError, match="twice"):
        ConfigTable.of("keys", [key(ConfigType.INT)], [key(ConfigType.INT)])
