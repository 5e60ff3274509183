"""What docs/benchmarks.md says: the machine, the versions, the command, the tables."""

import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import psutil

from bench.brokers import KAFKA_VERSION, ROOT
from bench.generators import tool_version
from bench.table import Row, as_markdown

INTRODUCTION = """\
# Benchmarks

Ottla beside Apache Kafka {kafka}, one broker each, on one machine, in one run, under the same
load. Written by `make bench`; do not edit. Every figure is a median of several samples which the
two brokers took in turns. Absolute figures move with the machine and with what else runs on it
(see the load averages: a run by itself ends with about 2); ratios move less. The broker's CPU per
request, read from the process, is the steadiest.
"""


def _cpu_model() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def _commit() -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )
    return done.stdout.strip() or "unknown"


def load_average() -> str:
    """Over 1, 5 and 15 minutes: how many processes wanted a core, the measured ones included."""
    return " ".join(f"{value:.1f}" for value in os.getloadavg())


def machine_facts() -> dict[str, str]:
    memory_gb = psutil.virtual_memory().total / 1e9
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": shlex.join([Path(sys.executable).name, "-m", "bench", *sys.argv[1:]]),
        "machine": f"{os.cpu_count()} cores, {_cpu_model()}, {memory_gb:.0f} GB",
        "kernel": f"{platform.system()} {platform.release()}",
        "load average before": load_average(),
        "Ottla": f"{importlib.metadata.version('ottla')} ({_commit()})",
        "Apache Kafka": f"{KAFKA_VERSION}, 1 GB heap, its start script's options",
        "Python": platform.python_version(),
        "Java": tool_version(["java", "-version"], 1),
        "Go": tool_version(["go", "version"]),
        "kcat": tool_version(["kcat", "-V"], 3),
    }


def markdown(facts: Mapping[str, str], sections: Mapping[str, Sequence[Row]]) -> str:
    parts = [INTRODUCTION.format(kafka=KAFKA_VERSION)]
    lines = ["| | |", "|---|---|", *(f"| {name} | {fact} |" for name, fact in facts.items())]
    parts.append("\n".join(lines) + "\n")
    for title, rows in sections.items():
        if rows:
            parts.append(f"## {title}\n\n{as_markdown(rows)}\n")
    return "\n".join(parts)


def with_sections(
    page: str, facts: Mapping[str, str], sections: Mapping[str, Sequence[Row]]
) -> str:
    """The page with these sections measured anew; each says when, as the page's head does not."""
    head, *parts = page.split("\n## ")
    known = dict(part.split("\n", 1) for part in parts)
    when = (
        f"Measured by itself on {facts['date']}, Ottla {facts['Ottla']}, `{facts['command']}`, "
        f"load average before {facts['load average before']}, after {facts['load average after']}."
    )
    for title, rows in sections.items():
        if rows:
            known[title] = f"\n{when}\n\n{as_markdown(rows)}\n"
    return "\n## ".join([head, *(f"{title}\n{body}" for title, body in known.items())])
