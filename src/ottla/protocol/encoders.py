"""Turns a schema into a function that encodes plain dicts. Pure.

kio's own encoder wants a tree of validated dataclasses and then looks every field up at run
time: 8 ms for the metadata of a thousand partitions. What the fields of a schema are is known
once, so here a schema becomes, once, the source of a straight function: fields of fixed size
that follow each other are one `struct.pack`, the rest is unrolled. It is about four times as
fast and takes what handlers have at hand: dicts, ints in milliseconds, `None` for null.

A field that the dict lacks takes its schema's default; without one, null if it may be null,
otherwise zero or empty. Keys that the schema lacks are dropped, so that a handler can fill in
what the newest version has and need not ask which one is spoken.

Invariant: the bytes are those of kio's `entity_writer`; the tests compare every schema.
"""

from collections.abc import Callable, Mapping
from functools import cache
from struct import Struct, pack
from typing import Any

from ottla.protocol.primitives import unsigned_varint
from ottla.protocol.schemas import (
    FIXED_FORMATS,
    Kind,
    duration_ms,
    kinds_of,
    timestamp_ms,
    uuid_bytes,
)

Append = Callable[[bytes], None]
Encoder = Callable[[Mapping[str, Any], Append], None]


@cache
def encoder_of(schema: Any) -> Encoder:
    """The encoder of dicts for a dataclass in kio's style, made on first use."""
    return _Source(schema.__qualname__, from_entities=False).compile(schema)


@cache
def entity_encoder_of(schema: Any) -> Callable[[Any, Append], None]:
    """The encoder of entities: of instances of the dataclass itself."""
    return _Source(schema.__qualname__, from_entities=True).compile(schema)


class _Source:
    """The source of one encoder, written field by field."""

    def __init__(self, name: str, *, from_entities: bool) -> None:
        self._name = name
        self._from_entities = from_entities
        self._lines = ["def encode(f, out):"]
        self._names: dict[str, Any] = {
            "duration_ms": duration_ms,
            "pack": pack,
            "timestamp_ms": timestamp_ms,
            "uuid_bytes": uuid_bytes,
            "uvarint": unsigned_varint,
        }
        self._formats = ""
        self._values: list[str] = []

    def compile(self, schema: Any) -> Callable[[Any, Append], None]:
        kinds, tagged = kinds_of(schema)
        if not self._from_entities:
            self._line("get = f.get")
        for kind in kinds:
            if self._from_entities:
                self._write(kind, f"f.{kind.name}", schema.__flexible__)
            else:
                default = self._constant(kind.default)
                self._write(kind, f"get({kind.name!r}, {default})", schema.__flexible__)
        if schema.__flexible__:
            self._write_tags(tagged)
        return self._compiled()

    def compile_value(self, kind: Kind) -> Callable[[Any, Append], None]:
        """An encoder of a tagged field's value alone."""
        self._write(kind, "f", True)
        return self._compiled()

    def _compiled(self) -> Callable[[Any, Append], None]:
        self._flush()
        self._line("return None")
        exec(compile("\n".join(self._lines), f"<encoder of {self._name}>", "exec"), self._names)
        encoder: Callable[[Any, Append], None] = self._names["encode"]
        return encoder

    def _write(self, kind: Kind, value: str, flexible: bool) -> None:
        """Write what the expression `value` yields."""
        if kind.is_array:
            self._write_array(kind, value, flexible)
        elif kind.entity:
            self._flush()
            encode = self._nested(kind.entity)
            if kind.nullable:
                # KIP-893 spells null -1, or 0 in a tagged field, and writes 1 before a value.
                null = "\\xff" if kind.tag is None else "\\0"
                self._line(f"v = {value}")
                self._line(f"if v is None: out(b'{null}')")
                self._line(f"else: out(b'\\1'); {encode}(v, out)")
            else:
                self._line(f"{encode}({value}, out)")
        elif kind.wire in FIXED_FORMATS:
            self._fix(FIXED_FORMATS[kind.wire], self._fixed_value(kind, value))
        elif flexible:
            self._write_compact(kind, value)
        else:
            self._write_legacy(kind, value)

    def _fixed_value(self, kind: Kind, value: str) -> str:
        if kind.wire == "uuid":
            return f"uuid_bytes({value})"
        if self._from_entities:
            if kind.wire.startswith("timedelta"):
                return f"duration_ms({value})"
            if kind.wire == "datetime_i64":
                return f"timestamp_ms({value})"
        elif kind.wire == "datetime_i64" and kind.nullable:
            return f"(-1 if (t := {value}) is None else t)"
        return value

    def _write_compact(self, kind: Kind, value: str) -> None:
        self._flush()
        encode = "v = v.encode(); " if kind.wire == "string" else ""
        self._line(f"v = {value}")
        if kind.nullable:
            self._line("if v is None: out(b'\\0')")
            self._line(f"else: {encode}out(uvarint(len(v) + 1)); out(v)")
        else:
            self._line(f"{encode}out(uvarint(len(v) + 1)); out(v)")

    def _write_legacy(self, kind: Kind, value: str) -> None:
        encode = ".encode()" if kind.wire == "string" else ""
        code = "h" if kind.wire == "string" else "i"
        if kind.nullable:
            self._line(f"v = {value}")
            self._line(f"b = None if v is None else v{encode}")
            self._fix(code, "-1 if b is None else len(b)")
        else:
            self._line(f"b = {value}{encode}")
            self._fix(code, "len(b)")
        self._flush()
        self._line("if b: out(b)")

    def _write_array(self, kind: Kind, value: str, flexible: bool) -> None:
        self._line(f"v = {value}")
        if flexible:
            self._flush()
            null = "b'\\0' if v is None else " if kind.nullable else ""
            self._line(f"out({null}uvarint(len(v) + 1))")
        else:
            self._fix("i", "-1 if v is None else len(v)" if kind.nullable else "len(v)")
            self._flush()
        self._line("if v:")
        if kind.entity:
            self._line(f"for e in v: {self._nested(kind.entity)}(e, out)", 2)
        elif kind.wire == "uuid":
            self._line("for e in v: out(uuid_bytes(e))", 2)
        elif kind.wire == "string":
            prefix = "uvarint(len(e) + 1)" if flexible else "pack('>h', len(e))"
            self._line(f"for e in v: e = e.encode(); out({prefix}); out(e)", 2)
        else:
            self._line(f"out(pack('>%d{FIXED_FORMATS[kind.wire]}' % len(v), *v))", 2)

    def _write_tags(self, tagged: list[Kind]) -> None:
        """Write the tagged fields whose bytes differ from those of their default."""
        if not tagged:
            self._fix("x", None)
            return
        self._flush()
        self._line("tags = []")
        for kind in tagged:
            plain_encode = _Source(kind.name, from_entities=False).compile_value(kind)
            encode = _Source(kind.name, from_entities=self._from_entities).compile_value(kind)
            default: list[bytes] = []
            plain_encode(kind.default, default.append)
            depth = 1
            value = f"f.{kind.name}"
            if not self._from_entities:
                self._line(f"if {kind.name!r} in f:")
                value = f"f[{kind.name!r}]"
                depth = 2
            self._line(f"t = []; {self._constant(encode)}({value}, t.append)", depth)
            self._line("t = b''.join(t)", depth)
            self._line(f"if t != {b''.join(default)!r}:", depth)
            tag = unsigned_varint(kind.tag or 0)
            self._line(f"tags += ({tag!r}, uvarint(len(t)), t)", depth + 1)
        self._line("out(uvarint(len(tags) // 3))")
        self._line("if tags: out(b''.join(tags))")

    def _nested(self, schema: Any) -> str:
        return self._constant((entity_encoder_of if self._from_entities else encoder_of)(schema))

    def _fix(self, code: str, expression: str | None) -> None:
        """Add a value of fixed size to the next pack; without an expression, a zero byte."""
        self._formats += code
        if expression is not None:
            self._values.append(expression)

    def _flush(self) -> None:
        if not self._formats:
            return
        if self._values:
            packer = self._constant(Struct(">" + self._formats).pack)
            self._line(f"out({packer}({', '.join(self._values)}))")
        else:
            self._line(f"out({bytes(len(self._formats))!r})")
        self._formats = ""
        self._values = []

    def _line(self, text: str, depth: int = 1) -> None:
        self._lines.append("    " * depth + text)

    def _constant(self, value: Any) -> str:
        """An expression for a constant."""
        if value is None or isinstance(value, bool | int | float | str | bytes):
            return repr(value)
        name = f"c{len(self._names)}"
        self._names[name] = value
        return name
