"""Which cluster does a command talk to, and with which client settings?

Flags win over the environment, and the environment over the file of contexts. A context that was
named by a flag therefore also wins over OTTLA_BROKERS: whoever types `--context prod` means it.

The file is TOML and may hold passwords, so it is written readable for its owner alone.
`Contexts` and `resolve` are pure; `load` and `save` touch the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from ottla.cli.errors import CliError, ExitCode

DEFAULT_BROKERS = "127.0.0.1:9092"
# A person waits this long before they think that the tool hangs.
DEFAULT_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Context:
    """A named cluster: its brokers, and librdkafka settings such as `security.protocol`."""

    brokers: str
    client: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Contexts:
    current: str | None = None
    named: dict[str, Context] = field(default_factory=dict)

    def get(self, name: str) -> Context:
        """The context of that name, or an error that lists those there are."""
        if name not in self.named:
            known = ", ".join(sorted(self.named)) or "none"
            raise CliError(
                f"There is no context '{name}' (known: {known}); "
                f"create it with 'ottla context create {name} -b HOST:PORT'.",
                ExitCode.NOT_FOUND,
            )
        return self.named[name]


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach a cluster: librdkafka settings, and how long to wait for an answer."""

    client: Mapping[str, str]
    timeout_s: float = DEFAULT_TIMEOUT_S

    @property
    def brokers(self) -> str:
        """The bootstrap servers."""
        return self.client["bootstrap.servers"]


@dataclass(frozen=True, slots=True)
class Choice:
    """A value that was given, and whether on the command line rather than in the environment."""

    value: str | None
    is_flag: bool


def resolve(
    contexts: Contexts,
    *,
    brokers: Choice,
    context: Choice,
    overrides: Mapping[str, str],
    timeout_s: float,
) -> Connection:
    """Settle brokers and client settings: flag, then environment, then file, then default."""
    chosen_name = context.value or contexts.current
    chosen = contexts.get(chosen_name) if chosen_name else None
    candidates = (
        brokers.value if brokers.is_flag else None,
        chosen.brokers if chosen and context.is_flag else None,
        brokers.value,
        chosen.brokers if chosen else None,
        DEFAULT_BROKERS,
    )
    client = {"bootstrap.servers": next(c for c in candidates if c)}
    if chosen:
        client.update(chosen.client)
    client.update(overrides)
    return Connection(client, timeout_s)


def config_path() -> Path:
    """Where the contexts live: $XDG_CONFIG_HOME/ottla/config.toml or its usual place."""
    return Path(click.get_app_dir("ottla", force_posix=False)) / "config.toml"


def load(path: Path) -> Contexts:
    """Read the contexts; a missing file is no contexts."""
    import tomllib

    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Contexts()
    try:
        return _contexts_from(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, TypeError, ValueError) as error:
        raise CliError(f"{path} cannot be read ({error}); repair it or delete it.") from error


def save(path: Path, contexts: Contexts) -> None:
    """Replace the file, readable for its owner alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".toml.new")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    draft.write_text(to_toml(contexts), encoding="utf-8")
    draft.replace(path)


def to_toml(contexts: Contexts) -> str:
    """The contexts as TOML."""
    lines = []
    if contexts.current is not None:
        lines.append(f"current = {_quoted(contexts.current)}")
    for name, context in sorted(contexts.named.items()):
        lines += ["", f"[contexts.{_quoted(name)}]", f"brokers = {_quoted(context.brokers)}"]
        if context.client:
            lines.append(f"[contexts.{_quoted(name)}.client]")
            lines += [f"{_quoted(k)} = {_quoted(v)}" for k, v in sorted(context.client.items())]
    return "\n".join(lines).lstrip("\n") + "\n"


def _quoted(text: str) -> str:
    import json

    # TOML's basic strings are JSON's, save that TOML also wants DEL escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _contexts_from(document: Mapping[str, Any]) -> Contexts:
    contexts = Contexts(current=document.get("current"))
    for name, table in document.get("contexts", {}).items():
        if not isinstance(table, dict) or not isinstance(table.get("brokers"), str):
            raise ValueError(f"context '{name}' names no brokers")
        client = {str(key): _plain(value) for key, value in table.get("client", {}).items()}
        contexts.named[name] = Context(table["brokers"], client)
    return contexts


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
