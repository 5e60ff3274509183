"""`python -m bench`: compare Ottla with Apache Kafka, print the table, write docs/benchmarks.md."""

import argparse
import sys
import time
from collections.abc import Sequence

from bench import loads, report
from bench.brokers import ROOT, Kind
from bench.groups import compare_groups
from bench.run import compare, compare_starts
from bench.scale import PARTITIONS, compare_scale
from bench.spark_read import compare_spark_reads
from bench.spark_write import compare_spark_writes
from bench.table import Row, as_text
from bench.transactions import is_transactional

GROUPS = (
    "produce",
    "batches",
    "fetch",
    "librdkafka",
    "java",
    "transactions",
    "start",
    "groups",
    "spark_read",
    "spark_write",
)
CLIENT_GROUPS = frozenset(("produce", "batches", "fetch", "librdkafka", "java", "transactions"))


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a glance, in under three minutes")
    parser.add_argument("--scale", action="store_true", help="connections and partitions instead")
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help="how many for --scale")
    parser.add_argument(
        "--only", default=",".join(GROUPS), help=f"comma-separated: {', '.join(GROUPS)}"
    )
    parser.add_argument(
        "--brokers", default="ottla,kafka", help="comma-separated: ottla, kafka (or one of them)"
    )
    parser.add_argument(
        "--write",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="write docs/benchmarks.md, or its sections that were measured (default: only after a "
        "full run of both brokers)",
    )
    arguments = parser.parse_args(argv)
    unknown = set(arguments.only.split(",")) - set(GROUPS)
    if unknown:
        parser.error(f"--only knows no {', '.join(sorted(unknown))}")
    return arguments


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def main(argv: Sequence[str]) -> int:
    """Run what was asked for; the exit code is 1 when a goal was missed."""
    arguments = _arguments(argv)
    kinds = [Kind(name) for name in arguments.brokers.split(",")]
    groups = arguments.only.split(",")
    effort = loads.QUICK if arguments.quick else loads.FULL
    facts = report.machine_facts()
    sections: dict[str, list[Row]] = {}
    if arguments.scale:
        sections["Scale"] = compare_scale(kinds, _say, partitions=arguments.partitions)
    else:
        if CLIENT_GROUPS & set(groups):
            rows, _notes = compare(kinds, effort, groups, _say)
            sections["Requests"] = [row for row in rows if _is_raw(row)]
            sections["Clients"] = [
                row for row in rows if not (_is_raw(row) or is_transactional(row))
            ]
            sections["Exactly once"] = [row for row in rows if is_transactional(row)]
        if "start" in groups:
            sections["Start and memory"] = compare_starts(kinds, effort, _say)
        if "groups" in groups:
            sections["Consumer groups"] = compare_groups(kinds, effort, _say)
        if "spark_read" in groups:
            sections["Spark reads"] = compare_spark_reads(Kind.OTTLA, effort, _say)
        if "spark_write" in groups:
            sections["Spark writes"] = compare_spark_writes(Kind.OTTLA, effort, _say)
    facts["load average after"] = report.load_average()
    everything = [row for rows in sections.values() for row in rows]
    print(as_text(everything))
    is_complete = len(kinds) == 2 and arguments.only == ",".join(GROUPS) and not arguments.quick
    if arguments.write or (arguments.write is None and is_complete):
        _write(facts, sections, is_scale=arguments.scale, is_complete=is_complete)
    return 1 if any(row.is_met is False for row in everything) else 0


def _is_raw(row: Row) -> bool:
    return row.load.startswith(("produce ", "fetch "))


def _write(
    facts: dict[str, str], sections: dict[str, list[Row]], *, is_scale: bool, is_complete: bool
) -> None:
    name = "benchmarks-scale.md" if is_scale else "benchmarks.md"
    path = ROOT / "docs" / name
    if is_scale or is_complete:
        path.write_text(report.markdown(facts, sections))
    else:
        path.write_text(report.with_sections(path.read_text(), facts, sections))
    _say(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
