"""Java's .properties text, read and written as Java does. Pure.

server.properties and meta.properties are written by people and by Kafka's own tools, and
their syntax is java.util.Properties': three separators, two comment signs, lines continued
by a backslash, and escapes that also hide separators. Splitting at the first `=` gets
`a\\=b: c` and Windows paths wrong without a word.

Invariant: `read(write(mapping)) == mapping` for every mapping of texts.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from ottla.config.definitions import ConfigError

# Far above any server.properties; keeps a wrong file (a log, a device) out of memory.
TEXT_CHARACTERS_MAX: Final = 4 * 1024 * 1024

_BLANK: Final = " \t\f"
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED: Final = {value: f"\\{name}" for name, value in _ESCAPES.items()}
_HEX_DIGITS: Final = frozenset("0123456789abcdefABCDEF")


def read(text: str) -> dict[str, str]:
    """The keys and values of a properties text; the last of a repeated key counts."""
    if len(text) > TEXT_CHARACTERS_MAX:
        raise ConfigError(f"a properties file must not exceed {TEXT_CHARACTERS_MAX} characters")
    mapping: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key_end, value_start = _split(line)
        mapping[_unescape(line[:key_end], number)] = _unescape(line[value_start:], number)
    return _joined_surrogates(mapping)


def write(mapping: Mapping[str, str], *, comment: str | None = None) -> str:
    """One line for each key, in the order of the mapping, in ASCII."""
    lines = []
    if comment is not None:
        lines += [f"#{_ascii(part)}" for part in _LINE_END.split(comment)]
    lines += [
        f"{_escape(key, is_key=True)}={_escape(value, is_key=False)}"
        for key, value in mapping.items()
    ]
    return "".join(f"{line}\n" for line in lines)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments and blank ones, continuations joined, with their first number."""
    lines = _LINE_END.split(text)
    if not lines[-1]:
        lines.pop()  # the last line end begins no further line
    position = 0
    while position < len(lines):
        number = position + 1
        line = lines[position].lstrip(_BLANK)
        position += 1
        # A comment cannot be continued, so this comes before the joining.
        if not line or line[0] in "#!":
            continue
        # A lone backslash continues nothing, so what follows it may be a comment again.
        if line == "\\" and position < len(lines):
            continue
        parts = []
        while _is_continued(line) and position < len(lines):
            parts.append(line[:-1])
            line = lines[position].lstrip(_BLANK)
            position += 1
        # The end of the text cannot continue: Java drops the backslash, and reads a line even
        # if nothing else was on it.
        is_cut_off = _is_continued(line)
        parts.append(line[:-1] if is_cut_off else line)
        joined = "".join(parts)
        if joined or is_cut_off:
            yield number, joined


def _is_continued(line: str) -> bool:
    """Whether an odd number of backslashes ends the line; an even number escapes itself."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[int, int]:
    """Where the key ends and where the value starts."""
    key_end = 0
    while key_end < len(line) and line[key_end] not in "=:" and line[key_end] not in _BLANK:
        key_end += 2 if line[key_end] == "\\" else 1
    key_end = min(key_end, len(line))
    value_start = key_end
    while value_start < len(line) and line[value_start] in _BLANK:
        value_start += 1
    if value_start < len(line) and line[value_start] in "=:":
        value_start += 1
        while value_start < len(line) and line[value_start] in _BLANK:
            value_start += 1
    return key_end, value_start


def _unescape(text: str, line_number: int) -> str:
    if "\\" not in text:
        return text
    out = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\":
            out.append(character)
            continue
        if position == len(text):
            break
        escaped = text[position]
        position += 1
        if escaped != "u":
            out.append(_ESCAPES.get(escaped, escaped))
            continue
        digits = text[position : position + 4]
        if len(digits) != 4 or not _HEX_DIGITS.issuperset(digits):
            raise ConfigError(f"line {line_number} must have four hexadecimal digits after \\u")
        out.append(chr(int(digits, 16)))
        position += 4
    return "".join(out)


def _joined_surrogates(mapping: dict[str, str]) -> dict[str, str]:
    r"""Pairs such as \uD83D\uDE00 as the one character that they mean."""

    def joined(text: str) -> str:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    return {
        key if key.isascii() else joined(key): value if value.isascii() else joined(value)
        for key, value in mapping.items()
    }


def _escape(text: str, *, is_key: bool) -> str:
    out = []
    for position, character in enumerate(text):
        if character == " ":
            # Inside a value only a leading blank would be taken for a separator.
            out.append("\\ " if is_key or position == 0 else " ")
        elif character in "\\=:#!":
            out.append(f"\\{character}")
        elif character in _ESCAPED:
            out.append(_ESCAPED[character])
        else:
            out.append(_ascii(character))
    return "".join(out)


def _ascii(text: str) -> str:
    out = []
    for character in text:
        if " " <= character <= "~":
            out.append(character)
            continue
        units = character.encode("utf-16-be", "surrogatepass")
        out += [f"\\u{units[at]:02X}{units[at + 1]:02X}" for at in range(0, len(units), 2)]
    return "".join(out)
