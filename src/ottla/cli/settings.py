"""Which cluster does a command talk to, and with which client settings?

Flags win over the environment, and the environment over the file of contexts. A context that was
named by a flag therefore also wins over OTTLA_BROKERS: whoever types `--context prod` means it.
A context's client settings hold credentials, so they go to its own brokers alone, and to others
only where a flag named both.

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
    given = brokers.value if brokers.is_flag or not context.is_flag else None
    chosen_name = context.value or contexts.current
    is_used = bool(chosen_name) and (context.is_flag or not given)
    chosen = contexts.get(chosen_name or "") if is_used else Context("")
    client = {"bootstrap.servers": given or chosen.brokers or DEFAULT_BROKERS}
    return Connection({**client, **chosen.client, **overrides}, timeout_s)


def config_path() -> Path:
    """Where the contexts live: $XDG_CONFIG_HOME/ottla/config.toml or its usual place."""
    return Path(click.get_app_dir("ottla", force_posix=False)) / "config.toml"


def load(path: Path) -> Contexts:
    """Read the contexts; a missing file is no contexts."""
    import tomllib

    try:
        return _contexts_from(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Contexts()
    except ValueError as error:  # not UTF-8, not TOML, or not contexts
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
    current = document.get("current")
    if current is not None and not isinstance(current, str):
        raise ValueError("current must be the name of a context")
    contexts = Contexts(current)
    for name, table in _table(document, "contexts").items():
        if not isinstance(table, dict) or not isinstance(table.get("brokers"), str):
            raise ValueError(f"context '{name}' names no brokers")
        client = {key: _plain(value) for key, value in _table(table, "client").items()}
        contexts.named[name] = Context(table["brokers"], client)
    return contexts


def _table(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name, {})
    if not isinstance(found, dict):
        raise ValueError(f"{name} must be a table")
    return found


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
