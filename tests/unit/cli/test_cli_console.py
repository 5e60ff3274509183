"""The console where the packages that it needs are not installed."""

import importlib.util
from typing import Any

import pytest

from ottla.cli.main import run


def test_a_missing_extra_is_named_with_the_way_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = importlib.util.find_spec

    def find_spec(name: str, package: str | None = None) -> Any:
        return None if name == "starlette" else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    assert run(["console", "--port", "0"]) == 1
    assert capsys.readouterr().err == (
        "Error: The console needs starlette; install it with: pip install 'ottla[console]'\n"
    )
