"""Which records does a person mean? A small language, and plain search. Pure.

    value.amount > 100 and key startswith "eu-"
    headers.trace == "a1" or not value.customer.email
    value.items[0].sku in ("A1", "B2") and partition != 3

Running JavaScript or Python that a page sent would hand the console's machine to whoever can reach
it, and regular expressions can be made to run for years. This language has comparisons, `and`,
`or`, `not`, parentheses and paths into JSON; it always ends. Numbers are compared exactly, not as
floating point. A path that leads nowhere is not equal to anything and not greater than anything.

Invariant: a compiled filter never raises, whatever the record holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from ottla.console.payloads import Number, Pairs, parse_json
from ottla.console.records import Predicate, Record

EXPRESSION_CHARACTERS_MAX = 2_000
DEPTH_MAX = 40
# A value longer than this is not parsed for a filter: one record must not stop the search.
PARSED_BYTES_MAX = 1024 * 1024
# Digits and exponents beyond this are compared as text: a hostile exponent is a huge number.
NUMBER_CHARACTERS_MAX = 64

Operand = Callable[["Reading"], object]

FIELDS = ("key", "value", "headers", "partition", "offset", "timestamp", "size")
_WORD_OPERATORS = ("contains", "startswith", "endswith", "in")
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    | (?P<operator>==|!=|<=|>=|&&|\|\||[=<>!(),.\[\]])
    | (?P<word>[A-Za-z_][\w-]*)
    )""",
    re.VERBOSE,
)
_SYNONYMS = {"&&": "and", "||": "or", "!": "not", "=": "=="}


class FilterError(ValueError):
    """An expression that cannot be read; the sentence says where."""


class Missing:
    """What a path that leads nowhere gives."""

    def __repr__(self) -> str:
        return "missing"


MISSING = Missing()


class Token(NamedTuple):
    kind: str
    text: str
    position: int


class Reading:
    """One record while a filter looks at it; its JSON is parsed once, and only if asked for."""

    __slots__ = ("_parsed", "record")

    def __init__(self, record: Record) -> None:
        self.record = record
        self._parsed: dict[str, object] = {}

    def payload(self, field: str) -> object:
        """The key or value: parsed JSON, else text, else bytes."""
        if field not in self._parsed:
            data = self.record.key if field == "key" else self.record.value
            self._parsed[field] = _parsed(data)
        return self._parsed[field]


def compile_filter(expression: str) -> Predicate:
    """The predicate of an expression; FilterError if it cannot be read."""
    if len(expression) > EXPRESSION_CHARACTERS_MAX:
        raise FilterError(f"A filter has at most {EXPRESSION_CHARACTERS_MAX} characters.")
    tokens = list(_tokens(expression))
    operand = _Parser(tokens).whole()
    return lambda record: _is_true(operand(Reading(record)))


def compile_search(text: str) -> Predicate:
    """Whether the text occurs in the key, the value or a header, whatever the case."""
    wanted = text.casefold().encode()

    def found(record: Record) -> bool:
        parts = [record.key, record.value]
        for name, value in record.headers:
            parts += [name.encode(), value]
        return any(part is not None and wanted in _folded(part) for part in parts)

    return found


def _folded(data: bytes) -> bytes:
    try:
        return data.decode().casefold().encode()
    except UnicodeDecodeError:
        return data.lower()


def _parsed(data: bytes | None) -> object:
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data
    if len(data) <= PARSED_BYTES_MAX:
        try:
            return parse_json(text)
        except ValueError:
            pass
    return text


def _tokens(expression: str) -> Sequence[Token]:
    tokens: list[Token] = []
    position = 0
    end = len(expression.rstrip())
    while position < end:
        found = _TOKEN.match(expression, position)
        if found is None:
            shown = expression[position:].strip()[:12]
            raise FilterError(f"Character {position + 1}: '{shown}' is not understood.")
        kind = found.lastgroup or ""
        text = found[kind]
        start = found.start(kind)
        position = found.end()
        if kind in ("operator", "word"):
            text = _SYNONYMS.get(text, text)
            if text in ("and", "or", "not", *_WORD_OPERATORS):
                kind = "operator"
        tokens.append(Token(kind, text, start))
    return tokens


class _Parser:
    """Recursive descent, bounded in depth."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._next = 0
        self._depth = 0

    def whole(self) -> Operand:
        operand = self._either()
        if self._next < len(self._tokens):
            raise self._unexpected()
        return operand

    def _either(self) -> Operand:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise FilterError("The filter is nested too deeply.")
        sides = [self._both()]
        while self._take("or"):
            sides.append(self._both())
        self._depth -= 1
        if len(sides) == 1:
            return sides[0]
        return lambda reading: any(_is_true(side(reading)) for side in sides)

    def _both(self) -> Operand:
        sides = [self._negation()]
        while self._take("and"):
            sides.append(self._negation())
        if len(sides) == 1:
            return sides[0]
        return lambda reading: all(_is_true(side(reading)) for side in sides)

    def _negation(self) -> Operand:
        is_negated = False
        while self._take("not"):
            is_negated = not is_negated
        operand = self._comparison()
        return (lambda reading: not _is_true(operand(reading))) if is_negated else operand

    def _comparison(self) -> Operand:
        left = self._operand()
        for operator, compare in _COMPARISONS.items():
            if self._take(operator):
                right = self._operand()
                return lambda reading: compare(left(reading), right(reading))
        if self._take("in"):
            choices = self._choices()
            return lambda reading: _is_one_of(left(reading), [c(reading) for c in choices])
        return left

    def _choices(self) -> list[Operand]:
        self._expect("(")
        choices = [self._operand()]
        while self._take(","):
            choices.append(self._operand())
        self._expect(")")
        return choices

    def _operand(self) -> Operand:
        if self._take("("):
            inner = self._either()
            self._expect(")")
            return inner
        if self._next >= len(self._tokens):
            raise self._unexpected()
        token = self._tokens[self._next]
        self._next += 1
        if token.kind == "string":
            return _constant(_unquoted(token.text))
        if token.kind == "number":
            return _constant(Number(token.text))
        if token.kind == "word":
            if token.text in _CONSTANTS:
                return _constant(_CONSTANTS[token.text])
            if token.text in FIELDS:
                return _field(token.text, self._path())
        self._next -= 1
        raise self._unexpected()

    def _path(self) -> list[str | int]:
        path: list[str | int] = []
        while True:
            if self._take("."):
                path.append(self._kind("word", "operator", "number"))
            elif self._take("["):
                token = self._kind("number", "string")
                if token.isdecimal():
                    path.append(int(token[:9]))
                else:
                    path.append(_unquoted(token))
                self._expect("]")
            else:
                return path

    def _kind(self, *kinds: str) -> str:
        if self._next < len(self._tokens) and self._tokens[self._next].kind in kinds:
            self._next += 1
            return self._tokens[self._next - 1].text
        raise self._unexpected()

    def _take(self, text: str) -> bool:
        if self._next < len(self._tokens):
            token = self._tokens[self._next]
            if token.kind == "operator" and token.text == text:
                self._next += 1
                return True
        return False

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise self._unexpected(f"'{text}' is missing")

    def _unexpected(self, what: str | None = None) -> FilterError:
        if self._next >= len(self._tokens):
            return FilterError(f"The filter ends too early{': ' + what if what else ''}.")
        token = self._tokens[self._next]
        if what is None and token.kind == "word":
            what = f"'{token.text}' is not one of {', '.join(FIELDS)}"
        return FilterError(
            f"Character {token.position + 1}: {what or f'unexpected {token.text!r}'}."
        )


_CONSTANTS = {"true": True, "false": False, "null": None}


def _constant(value: object) -> Operand:
    return lambda _reading: value


def _field(field: str, path: list[str | int]) -> Operand:
    if field in ("key", "value"):
        return lambda reading: _walk(reading.payload(field), path)
    if field == "headers":
        if not path:
            return lambda reading: " ".join(name for name, _ in reading.record.headers)
        name = str(path[0])
        return lambda reading: _header(reading.record, name, path[1:])
    if field == "timestamp":
        return lambda reading: Number(reading.record.timestamp_ms)
    return lambda reading: Number(getattr(reading.record, field))


def _header(record: Record, name: str, path: Sequence[str | int]) -> object:
    for header, value in reversed(record.headers):
        if header == name:
            return _walk(_parsed(value), path)
    return MISSING


def _walk(value: object, path: Sequence[str | int]) -> object:
    for step in path:
        if isinstance(value, Pairs):
            value = next((item for key, item in reversed(value) if key == str(step)), MISSING)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return MISSING
    return value


def _is_true(value: object) -> bool:
    """Whether something is there: not missing, null, false, zero or empty."""
    if isinstance(value, Number):
        return _number(value) != 0
    return value is not MISSING and bool(value)


def _number(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, str):
        return None
    if len(value) > NUMBER_CHARACTERS_MAX:
        return None
    try:
        number = Decimal(value)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _equal(left: object, right: object) -> bool:
    if left is MISSING or right is MISSING:
        return False
    if isinstance(left, Number) or isinstance(right, Number):
        one, other = _number(left), _number(right)
        if one is not None and other is not None:
            return one == other
        return (
            str(left) == str(right) if isinstance(left, str) and isinstance(right, str) else False
        )
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return left == right


def _ordered(compare: Callable[[Decimal, Decimal], bool]) -> Callable[[object, object], bool]:
    def ordered(left: object, right: object) -> bool:
        one, other = _number(left), _number(right)
        return one is not None and other is not None and compare(one, other)

    return ordered


def _text_test(test: Callable[[str, str], bool]) -> Callable[[object, object], bool]:
    def tested(left: object, right: object) -> bool:
        if isinstance(left, list):
            return any(_equal(item, right) for item in left)
        return isinstance(left, str) and isinstance(right, str) and test(left, right)

    return tested


def _is_one_of(value: object, choices: Sequence[object]) -> bool:
    return any(_equal(value, choice) for choice in choices)


_COMPARISONS: dict[str, Callable[[object, object], bool]] = {
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "<=": _ordered(lambda one, other: one <= other),
    ">=": _ordered(lambda one, other: one >= other),
    "<": _ordered(lambda one, other: one < other),
    ">": _ordered(lambda one, other: one > other),
    "contains": _text_test(lambda text, part: part in text),
    "startswith": _text_test(lambda text, part: text.startswith(part)),
    "endswith": _text_test(lambda text, part: text.endswith(part)),
}


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text[:1] in "\"'" else text
