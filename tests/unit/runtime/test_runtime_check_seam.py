"""tools/check_seam.py finds the ways past the runtime, and only those."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def seam() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_seam", ROOT / "tools" / "check_seam.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import time", "time"),
        ("import os.path", "os"),
        ("import os as system", "os"),
        ("from os import path", "os"),
        ("from pathlib import Path", "pathlib"),
        ("def f():\n    import random", "random"),
        ("from concurrent.futures import ThreadPoolExecutor", "concurrent.futures"),
        ("from concurrent import futures", "concurrent.futures"),
        ("import multiprocessing.pool", "multiprocessing"),
        ("open('x')", "open"),
        ("from datetime import datetime\ndatetime.now()", "datetime.datetime.now"),
        ("import datetime\ndatetime.datetime.now()", "datetime.datetime.now"),
        ("import datetime as d\nnow = d.datetime.utcnow", "datetime.datetime.utcnow"),
        ("from uuid import uuid4", "uuid.uuid4"),
        ("import uuid\nuuid.uuid4()", "uuid.uuid4"),
        ("import asyncio\nasyncio.open_connection('a', 1)", "asyncio.open_connection"),
        ("from asyncio import to_thread", "asyncio.to_thread"),
        ("import asyncio\nasyncio.get_running_loop().create_server(f)", "loop.create_server"),
        ("self._loop.run_in_executor(None, f)", "loop.run_in_executor"),
        ("import importlib\nimportlib.import_module('socket')", "socket"),
        ("__import__('time')", "__import__"),
    ],
)
def test_a_way_past_the_seam_is_named(seam: ModuleType, source: str, name: str) -> None:
    lines = source.split("\n")
    assert [tuple(breach) for breach in seam.breaches(source)] == [(len(lines), name)]


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio\nasyncio.create_task(f())\nasyncio.get_running_loop().call_later(1, f)",
        "from uuid import UUID\nUUID(int=3)",
        "from datetime import datetime, timedelta\ndatetime.fromtimestamp(0)",
        "disk.open('x')\nself.open()",
        "from ottla.runtime import interfaces\nimport ottla.storage.time_index",
        "from . import time",
        "self.network.create_connection()",
        "def open(path): ...\nopen('x')",
    ],
)
def test_what_stays_inside_is_let_through(seam: ModuleType, source: str) -> None:
    assert list(seam.breaches(source)) == []


def test_messages_carry_file_and_line_and_rooms_their_exemptions(
    seam: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for room, source in {
        "runtime": "import os",
        "cli": "import os\nimport socket",
        "storage": "\n\nimport os",
    }.items():
        (tmp_path / room).mkdir()
        (tmp_path / room / "module.py").write_text(source)
    assert seam.main([str(tmp_path)]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"{tmp_path}/cli/module.py:2: socket goes past ottla.runtime",
        f"{tmp_path}/storage/module.py:3: os goes past ottla.runtime",
    ]
    (tmp_path / "storage" / "module.py").write_text("")
    (tmp_path / "cli" / "module.py").write_text("import os")
    assert seam.main([str(tmp_path)]) == 0


def test_every_exemption_has_a_reason(seam: ModuleType) -> None:
    assert all(exemption.reason for exemption in seam.EXEMPTIONS.values())
