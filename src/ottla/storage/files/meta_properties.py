"""`meta.properties`: which node of which cluster a log directory belongs to.

A broker that starts with another's disk, or with one of another cluster, would serve the wrong
records; it compares this file first. Version 1 is what KRaft writes: cluster.id, node.id and
directory.id (KIP-858). Version 0 stems from ZooKeeper days and has broker.id.

Pure. The file is a Java properties file, escapes included.
"""

from collections.abc import Iterator, Mapping
from re import compile as compile_pattern
from typing import NamedTuple
from uuid import UUID

from ottla.protocol import uuids
from ottla.storage.files.malformed import MalformedFileError

FILE_NAME = "meta.properties"
VERSION = 1

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANK = " \t\f"
_CONTINUED = compile_pattern(r"(?:^|[^\\])(?:\\\\)*\\$")


class MetaProperties(NamedTuple):
    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: UUID | None


def encode_meta_properties(
    properties: MetaProperties, *, comments: tuple[str, ...] = ("",)
) -> bytes:
    """The file's content, its keys in the order in which Java's hash table has them.

    Apache Kafka writes an empty comment and one with the date, as `#Mon Nov 16 11:26:54 UTC 2026`.
    """
    fields: dict[str, str] = {}
    if properties.node_id is not None:
        name = "broker.id" if properties.version == 0 else "node.id"
        fields[name] = str(properties.node_id)
    if properties.directory_id is not None:
        fields["directory.id"] = uuids.encode(properties.directory_id)
    fields["version"] = str(properties.version)
    if properties.cluster_id is not None:
        fields["cluster.id"] = properties.cluster_id
    lines = [f"#{comment}" for comment in comments]
    lines += [f"{_escape(name, is_key=True)}={_escape(value)}" for name, value in fields.items()]
    return "\n".join([*lines, ""]).encode("latin-1")


def decode_meta_properties(data: bytes, path: str) -> MetaProperties:
    """What the file says; MalformedFileError if it lacks what its version must have."""
    fields = dict(_properties(data.decode("latin-1"), path))
    version = _int_of(fields, "version", path) if "version" in fields else 0
    if version not in (0, VERSION):
        raise MalformedFileError(path, f"version {version} is unknown")
    node_key = "broker.id" if version == 0 else "node.id"
    if version == VERSION:
        for name in ("cluster.id", node_key):
            if name not in fields:
                raise MalformedFileError(path, f"{name} was not found")
    directory_id = None
    if "directory.id" in fields:
        try:
            directory_id = uuids.decode(fields["directory.id"])
        except ValueError as error:
            raise MalformedFileError(path, f"directory.id: {error}") from error
    return MetaProperties(
        version,
        fields.get("cluster.id"),
        _int_of(fields, node_key, path) if node_key in fields else None,
        directory_id,
    )


def _int_of(fields: Mapping[str, str], name: str, path: str) -> int:
    try:
        return int(fields[name])
    except ValueError as error:
        raise MalformedFileError(path, f"{name} {fields[name]!r} is not a number") from error


def _escape(text: str, *, is_key: bool = False) -> str:
    escaped = []
    for at, char in enumerate(text):
        if char == " ":
            escaped.append("\\ " if is_key or at == 0 else " ")
        elif char in "\\=:#!":
            escaped.append("\\" + char)
        elif char in "\t\n\r\f":
            escaped.append({"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}[char])
        elif not " " <= char <= "~":
            units = char.encode("utf-16-be")
            escaped += [
                f"\\u{int.from_bytes(units[i : i + 2], 'big'):04X}" for i in range(0, len(units), 2)
            ]
        else:
            escaped.append(char)
    return "".join(escaped)


def _properties(text: str, path: str) -> Iterator[tuple[str, str]]:
    for number, line in _logical_lines(text):
        key_end = 0
        while key_end < len(line) and line[key_end] not in "=: \t\f":
            key_end += 2 if line[key_end] == "\\" else 1
        rest = line[key_end:].lstrip(_BLANK)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_BLANK)
        yield _unescape(line[:key_end], path, number), _unescape(rest, path, number)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines joined where they end in a backslash; without comments and empty ones."""
    parts: list[str] = []
    start = 0
    for number, raw in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = raw.lstrip(_BLANK)
        if not parts:
            if not line or line[0] in "#!":
                continue
            start = number
        if _CONTINUED.search(line):
            parts.append(line[:-1])
            continue
        yield start, "".join([*parts, line])
        parts = []
    if parts:
        yield start, "".join(parts)


def _unescape(text: str, path: str, line: int) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    chars = iter(text)
    for char in chars:
        if char != "\\":
            out.append(char)
            continue
        escaped = next(chars, "")
        if escaped != "u":
            out.append(_ESCAPES.get(escaped, escaped))
            continue
        digits = "".join(next(chars, "") for _ in range(4))
        try:
            out.append(chr(int(digits, 16)))
        except ValueError as error:
            raise MalformedFileError(path, f"\\u{digits} is no character", line=line) from error
    return "".join(out).encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")
