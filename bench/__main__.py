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
from bench.word_count import measure_word_count

# What --only selects, and the section of the page that holds it: one each, so that a run of some
# leaves the figures of all others as they are.
TITLES = {
    "produce": "Small produce requests",
    "batches": "Batches",
    "fetch": "Fetches",
    "librdkafka": "librdkafka",
    "java": "Java's own clients",
    "transactions": "Exactly once",
    "start": "Start and memory",
    "groups": "Consumer groups",
    "spark_read": "Spark reads",
    "spark_write": "Spark writes",
    "word_count": "A long word count on Spark",
}


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a glance, in under three minutes")
    parser.add_argument("--scale", action="store_true", help="connections and partitions instead")
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help="how many for --scale")
    parser.add_argument(
        "--only", default=",".join(TITLES), help=f"comma-separated: {', '.join(TITLES)}"
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
    unknown = set(arguments.only.split(",")) - set(TITLES)
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
        for group, rows in compare(kinds, effort, groups, _say).items():
            sections[TITLES[group]] = rows
        if "start" in groups:
            sections[TITLES["start"]] = compare_starts(kinds, effort, _say)
        if "groups" in groups:
            sections[TITLES["groups"]] = compare_groups(kinds, effort, _say)
        if "spark_read" in groups:
            sections[TITLES["spark_read"]] = compare_spark_reads(Kind.OTTLA, effort, _say)
        if "spark_write" in groups:
            sections[TITLES["spark_write"]] = compare_spark_writes(Kind.OTTLA, effort, _say)
        if "word_count" in groups:
            sections[TITLES["word_count"]] = measure_word_count(effort, _say)
    facts["load average after"] = report.load_average()
    everything = [row for rows in sections.values() for row in rows]
    print(as_text(everything))
    is_complete = len(kinds) == 2 and arguments.only == ",".join(TITLES) and not arguments.quick
    if arguments.write or (arguments.write is None and is_complete):
        _write(facts, sections, is_scale=arguments.scale, is_complete=is_complete)
    return 1 if any(row.is_met is False for row in everything) else 0


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
