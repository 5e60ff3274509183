"""A pipeline from whatever names it: a TOML file, or a Python file that makes a `Pipeline`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ottla.spark.pipelines.builder import Pipeline
from ottla.spark.pipelines.check import Problem
from ottla.spark.pipelines.definition import Definition
from ottla.spark.pipelines.toml_file import PipelineError, load_module, load_toml
from ottla.spark.pipelines.toml_lines import line_of, lines_of


def load_pipeline(reference: str, environment: Mapping[str, str]) -> Definition:
    """The definition in FILE.toml, FILE.py or FILE.py:name; PipelineError with the reason."""
    place, _, name = reference.partition(".py:")
    if name or reference.endswith(".py"):
        path = Path(f"{place}.py" if name else reference)
        if not path.exists():
            raise PipelineError([f"{path}: there is no such file"])
        return _from_python(path, name)
    return load_toml(Path(reference), environment)


def _from_python(path: Path, name: str) -> Definition:
    module = load_module(path.name, path.parent.absolute())
    made = {key: value for key, value in vars(module).items() if isinstance(value, Pipeline)}
    if name:
        if name not in made:
            raise PipelineError([f"{path}: '{name}' is not a Pipeline"])
        return made[name].definition
    if len(made) != 1:
        names = f": {', '.join(made)}; name one, as {path}:NAME" if made else ""
        raise PipelineError([f"{path}: it makes {len(made) or 'no'} pipelines{names}"])
    return next(iter(made.values())).definition


def placed(reference: str, problems: Sequence[Problem]) -> list[str]:
    """Problems that were found after loading, with their lines where the file has lines."""
    if not reference.endswith(".toml"):
        return [f"{reference}: {'.'.join(one.path)}: {one.reason}" for one in problems]
    lines = lines_of(Path(reference).read_text())
    return [f"{reference}:{line_of(lines, one.path)}: {one.reason}" for one in problems]
