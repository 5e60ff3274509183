"""The page of configs is what the tables say."""

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_is_generated_from_the_tables() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "generate_config_docs.py"))
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page == tool["render_page"](), "run: python tools/generate_config_docs.py"
