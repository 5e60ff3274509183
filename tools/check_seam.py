"""Does every effect pass through `ottla.runtime`?

The simulation is worth nothing if a module reads the real clock or opens a real file beside
it, and such a call looks harmless in review. This reads the syntax tree of every module under
src/ottla outside of runtime/ and names each way past the seam, as file:line.

    python tools/check_seam.py [SOURCE_DIRECTORY]
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# Modules whose every use is an effect, or cannot be told from one.
FORBIDDEN_MODULES = frozenset(
    {
        "concurrent.futures",
        "fcntl",
        "ftplib",
        "glob",
        "http.client",
        "http.server",
        "mmap",
        "multiprocessing",
        "os",
        "pathlib",
        "posix",
        "queue",
        "random",
        "secrets",
        "select",
        "selectors",
        "shutil",
        "signal",
        "socket",
        "socketserver",
        "sched",
        "subprocess",
        "tempfile",
        "threading",
        "time",
        "urllib.request",
        "uvloop",
        "_thread",
    }
)

# Names that are effects though their module is harmless.
FORBIDDEN_NAMES = frozenset(
    {
        "asyncio.create_subprocess_exec",
        "asyncio.create_subprocess_shell",
        "asyncio.open_connection",
        "asyncio.open_unix_connection",
        "asyncio.run",
        "asyncio.start_server",
        "asyncio.start_unix_server",
        "asyncio.to_thread",
        "codecs.open",
        "datetime.date.today",
        "datetime.datetime.now",
        "datetime.datetime.today",
        "datetime.datetime.utcnow",
        "gzip.open",
        "io.FileIO",
        "io.open",
        "io.open_code",
        "uuid.getnode",
        "uuid.uuid1",
        "uuid.uuid4",
    }
)

# Methods of an event loop that reach the machine, whatever the loop is called.
FORBIDDEN_LOOP_METHODS = frozenset(
    {
        "add_reader",
        "add_signal_handler",
        "add_writer",
        "create_connection",
        "create_datagram_endpoint",
        "create_server",
        "getaddrinfo",
        "run_in_executor",
        "sock_accept",
        "sock_connect",
        "sock_recv",
        "sock_sendall",
        "sock_sendfile",
    }
)

FORBIDDEN_BUILTINS = frozenset({"open", "input", "breakpoint"})

ROOM_BEHIND_THE_SEAM = "runtime"


class Exemption(NamedTuple):
    names: frozenset[str]
    reason: str


# By folder (ending in a slash) or file below src/ottla; the longest match counts.
EXEMPTIONS = {
    "cli/": Exemption(
        frozenset(
            {
                "asyncio.open_connection",
                "asyncio.run",
                "concurrent.futures",
                "datetime.datetime.now",
                "loop.add_signal_handler",
                "mmap",
                "os",
                "pathlib",
                "signal",
                "time",
                "uuid.uuid4",
            }
        ),
        "a command is a program on the user's machine: its terminal, files, signals and sockets",
    ),
    "testing/": Exemption(
        frozenset(
            {"concurrent.futures", "os", "pathlib", "shutil", "tempfile", "threading", "time"}
        ),
        "fixtures run inside a user's test: a thread beside it, a directory that goes away",
    ),
}


# Rooms that are clients of a cluster, never a part of a broker: the simulation does not run them.
CLIENT_ROOMS = ("console/", "spark/", "client/")


class Breach(NamedTuple):
    line: int
    name: str


def breaches(source: str) -> Iterator[Breach]:
    """Every way past the seam in one module, by line."""
    tree = ast.parse(source)
    aliases = _aliases(tree)
    found: set[Breach] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if module := _forbidden_module(alias.name):
                    found.add(Breach(node.lineno, module))
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                dotted = f"{node.module}.{alias.name}"
                name = _forbidden_module(node.module) or _forbidden_module(dotted)
                if name or dotted in FORBIDDEN_NAMES:
                    found.add(Breach(node.lineno, name or dotted))
        elif isinstance(node, ast.Attribute):
            dotted = _dotted(node, aliases)
            if dotted in FORBIDDEN_NAMES:
                found.add(Breach(node.lineno, dotted))
        elif isinstance(node, ast.Call) and (name := _forbidden_call(node, aliases)):
            found.add(Breach(node.lineno, name))
    yield from sorted(found)


def _forbidden_call(node: ast.Call, aliases: dict[str, str]) -> str | None:
    function = node.func
    if isinstance(function, ast.Name):
        if function.id in FORBIDDEN_BUILTINS and function.id not in aliases:
            return function.id
        if function.id == "__import__":
            return "__import__"
    if isinstance(function, ast.Attribute) and function.attr in FORBIDDEN_LOOP_METHODS:
        owner = _dotted(function.value, aliases).rpartition(".")[2].lower()
        if "loop" in owner:
            return f"loop.{function.attr}"
    if _dotted(function, aliases) == "importlib.import_module" and node.args:
        first = node.args[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            return _forbidden_module(first.value)
    return None


def _forbidden_module(name: str) -> str | None:
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        if (prefix := ".".join(parts[:length])) in FORBIDDEN_MODULES:
            return prefix
    return None


def _aliases(tree: ast.AST) -> dict[str, str]:
    """What each imported name stands for."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                target = alias.name if alias.asname else alias.name.partition(".")[0]
                known[alias.asname or target] = target
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            known.setdefault(node.name, node.name)
    return known


def _dotted(node: ast.expr, aliases: dict[str, str]) -> str:
    """`datetime.now` as `datetime.datetime.now`; calls are seen through, as in f().now."""
    if isinstance(node, ast.Name):
        return aliases.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value, aliases)}.{node.attr}"
    if isinstance(node, ast.Call):
        return _dotted(node.func, aliases)
    return "?"


def is_exempt(path: str, name: str) -> bool:
    if path.startswith(CLIENT_ROOMS):
        return True
    matches = [
        key for key in EXEMPTIONS if path == key or (key[-1] == "/" and path.startswith(key))
    ]
    return bool(matches) and name in EXEMPTIONS[max(matches, key=len)].names


def check(root: Path) -> list[str]:
    """One message for each breach below `root`, the folder of the package."""
    messages = []
    for file in sorted(root.rglob("*.py")):
        path = file.relative_to(root).as_posix()
        if path.startswith(f"{ROOM_BEHIND_THE_SEAM}/"):
            continue
        for line, name in breaches(file.read_text()):
            if not is_exempt(path, name):
                messages.append(f"{file}:{line}: {name} goes past ottla.runtime")
    return messages


def main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else Path(__file__).parent.parent / "src" / "ottla"
    messages = check(root)
    for message in messages:
        print(message, file=sys.stderr)
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
