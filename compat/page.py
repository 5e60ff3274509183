"""`python -m compat.page`: docs/compatibility.md, from the allow-list and nothing else.

What the page claims is what `make compat` requires. A test holds the page against the list, so
neither can run ahead of the other.
"""

import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch

from bench.brokers import KAFKA_VERSION, ROOT

from compat import allow_list, groups, scenario, toolchains, transactions

PATH = ROOT / "docs" / "compatibility.md"

# What a client has no call for, or only with a package that is not installed here.
NOT_OFFERED: dict[str, tuple[str, ...]] = {
    "kcat": (
        "alter_configs",
        "describe_configs",
        "add_partitions",
        "delete_records",
        "delete_topic",
        "produce/edges",
        "transactions/*",
        "groups/consumer/*",
    ),
    "kafkajs": ("consume", "groups/cooperative/*", "groups/consumer/*", "groups/*/static restart"),
    "aiokafka": ("groups/cooperative/*", "groups/consumer/*"),
    "kafka-python": ("groups/consumer/*",),
    # A member that will be back says so without its instance id, so no broker knows it again.
    "franz-go": ("groups/consumer/static restart",),
}

CAPABILITIES: tuple[tuple[str, str], ...] = (
    ("create a topic", "create_topic"),
    ("describe it", "describe_topic"),
    *((f"produce, {codec}, acks 0, 1, all", f"produce/{codec}/*") for codec in scenario.CODECS),
    ("idempotent produce", "produce/idempotent"),
    ("null and empty keys and values", "produce/edges"),
    ("consume by assignment", "consume"),
    ("consume by group, commit", "group_consume"),
    ("a group lives: members come, go, crash, restart", "groups/eager/*"),
    ("the same with cooperative rebalancing", "groups/cooperative/*"),
    ("the same with the new protocol (KIP-848)", "groups/consumer/*"),
    ("first and last offsets", "list_offsets"),
    ("seek by time", "seek_by_time"),
    ("alter configs", "alter_configs"),
    ("describe configs", "describe_configs"),
    ("add partitions", "add_partitions"),
    ("delete records", "delete_records"),
    ("delete the topic", "delete_topic"),
    ("commit a transaction", "transactions/commit*"),
    ("abort one", "transactions/abort"),
    ("read committed, and uncommitted", "transactions/read *"),
    ("offsets in a transaction", "transactions/send offsets*"),
    ("resume after an abort", "transactions/resume *"),
    ("a zombie is fenced", "transactions/fence *"),
    ("a transaction times out", "transactions/time out"),
    ("nothing undone is ever seen", "transactions/nothing *"),
)
STEP_NAMES = (*scenario.STEP_NAMES, *transactions.STEP_NAMES, *groups.STEP_NAMES)

INTRODUCTION = f"""\
# Compatibility

What other people's clients, tools and brokers do against Ottla. Written by `python -m compat.page`
from `compat/allow_list.toml`; do not edit. `make compat` runs all of it on real processes and
fails when a line of it no longer passes. The same suite passes against Apache Kafka {KAFKA_VERSION}
(`OTTLA_COMPAT_BROKER=kafka make compat`), so what it expects is what Kafka does.
"""

TOOLS = f"""
`java` is Apache Kafka's own client. n/a: the client has no such call.

## Apache Kafka {KAFKA_VERSION}'s tools

| tool | what is checked |
|---|---|"""

DIRECTORIES = """
## Data directories

A directory that one broker wrote, opened by the other and handed back, each time with more
records of every codec from idempotent producers; configs and topic ids stay.
"""


def is_offered(client: str, step: str) -> bool:
    return not any(fnmatch(step, pattern) for pattern in NOT_OFFERED.get(client, ()))


def _cell(client: str, pattern: str, listed: Sequence[str]) -> str:
    steps = [step for step in STEP_NAMES if fnmatch(step, pattern)]
    offered = [step for step in steps if is_offered(client, step)]
    if not offered:
        return "n/a"
    if any(step not in listed for step in offered):
        return "not yet"
    missing = [step.rpartition("/")[2] for step in steps if step not in offered]
    return f"yes, no {', '.join(missing)}" if missing else "yes"


def render(listed: Mapping[str, Sequence[str]]) -> str:
    clients = list(toolchains.DRIVERS)
    lines = [INTRODUCTION, "## Clients\n"]
    lines.append("| | " + " | ".join(clients) + " |")
    lines.append("|---|" + "---|" * len(clients))
    for title, pattern in CAPABILITIES:
        cells = [_cell(client, pattern, listed.get(client, ())) for client in clients]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    lines.append(TOOLS)
    for section in sorted(listed):
        if section not in toolchains.DRIVERS and section != "directory-exchange":
            lines.append(f"| {section} | {', '.join(sorted(listed[section]))} |")
    lines.append(DIRECTORIES)
    lines += [f"- {case}" for case in sorted(listed.get("directory-exchange", ()))]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the page, or with `--check` say whether it is current."""
    text = render(allow_list.load())
    if "--check" in sys.argv[1:]:
        if PATH.exists() and PATH.read_text() == text:
            return 0
        print(f"{PATH} is out of date; run: python -m compat.page", file=sys.stderr)
        return 1
    PATH.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
