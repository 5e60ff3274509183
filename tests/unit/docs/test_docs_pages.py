"""Pages that are made from the code, and a map that people draw, against the code."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import ottla

ROOT = Path(__file__).resolve().parents[3]
SOURCE = Path(ottla.__file__).parent
TOOLS = ("generate_config_docs.py", "generate_protocol_docs.py")


@pytest.mark.parametrize("tool", TOOLS)
def test_a_check_compares_the_page_and_changes_nothing(
    tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    found = runpy.run_path(str(ROOT / "tools" / tool))
    page, text, write_or_check = found["PAGE"], found["render_page"](), found["write_or_check"]
    assert page.read_text(encoding="utf-8") == text, f"run: python tools/{tool}"
    stale = tmp_path / page.name
    stale.write_text("stale")
    assert write_or_check(stale, text, ["--check"]) == 1
    assert stale.read_text() == "stale"
    assert write_or_check(stale, text, []) == 0
    assert write_or_check(stale, text, ["--check"]) == 0
    assert write_or_check(stale, text, ["--chek"]) == 2


@pytest.mark.parametrize("tool", TOOLS)
def test_the_command_that_make_runs_agrees_with_the_page(tool: str) -> None:
    command = [sys.executable, str(ROOT / "tools" / tool), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_map_in_the_architecture_page_shows_every_room_from_top_to_bottom() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    drawn = re.findall(r"^  (\w+)/ ", page, re.MULTILINE)
    rooms = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert set(drawn) == rooms
    layers = re.search(r"^layers = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(), re.S | re.M)
    assert layers is not None
    assert drawn == re.findall(r'"(\w+)"', layers[1])


def test_every_module_that_the_pages_name_exists() -> None:
    modules = [f"/{path.relative_to(ROOT)}" for path in (*SOURCE.rglob("*.py"), *ROOT.glob("*/*"))]
    for page in ("ARCHITECTURE.md", "CONTRIBUTING.md", "docs/non-obvious.md"):
        for name in re.findall(r"`((?:\w+/)*\w+\.py)`", (ROOT / page).read_text()):
            assert any(module.endswith(f"/{name}") for module in modules), (page, name)
