"""A page under docs/ that is made from the code: written, or only compared.

`--check` is for `make check`: it changes nothing, and fails while the page differs.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"


def write_or_check(page: Path, text: str, arguments: Sequence[str]) -> int:
    """The exit code of a generator that was called with these arguments."""
    if list(arguments) not in ([], ["--check"]):
        print(f"usage: {Path(sys.argv[0]).name} [--check]", file=sys.stderr)
        return 2
    if not arguments:
        page.write_text(text, encoding="utf-8")
        return 0
    if page.exists() and page.read_text(encoding="utf-8") == text:
        return 0
    print(f"{page} is out of date; run: python tools/{Path(sys.argv[0]).name}", file=sys.stderr)
    return 1
