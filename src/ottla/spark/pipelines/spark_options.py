"""What Spark's readers and writers are told of a source or sink, and what is wrong with it. Pure.

Each sink is a query of its own. So what belongs to a query (the group that shows its progress, the
file that keeps where it began) carries the sink's name beside the source's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from urllib.parse import urlsplit

from ottla.client.config import PROPERTIES, ClientConfig
from ottla.spark.option_values import GivenOptions, OptionError
from ottla.spark.options import (
    POLL_TIMEOUT_MS,
    check_batch_options,
    check_stream_options,
    parse_source_options,
)
from ottla.spark.pipelines.definition import Definition, Sink, Source, SourceKind
from ottla.spark.sink_options import parse_sink_options

NETWORK_TIMEOUT = "spark.network.timeout"
# The settings of a file that stand for an option.
_SETTINGS = {
    "startingoffsets": "starting",
    "subscribe": "topic",
    "bootstrap.servers": "bootstrap",
    "delivery": "delivery",
}


def source_options(
    definition: Definition,
    source: Source,
    sink: str,
    checkpoint: str | None = None,
    network_timeout: str | None = None,
) -> dict[str, str]:
    """The options of a topic as `sink` reads it; the source's own come last.

    `network_timeout` is the session's NETWORK_TIMEOUT, for as long as which tasks wait for records.
    Spark does not tell it to sources in Python.
    """
    options = {
        "kafka.bootstrap.servers": definition.bootstrap_of(source) or "",
        "subscribe": source.topic or "",
        "kafka.isolation.level": "read_committed",
    }
    if network_timeout is not None:
        given = GivenOptions({NETWORK_TIMEOUT: network_timeout})
        timeout_ms = given.duration_ms(NETWORK_TIMEOUT, POLL_TIMEOUT_MS, unit="s")
        options["kafkaConsumer.pollTimeoutMs"] = str(timeout_ms)
    if source.kind is SourceKind.TOPIC:
        options["startingOffsets"] = source.starting
        options["kafka.group.id"] = f"{definition.name}-{sink}-{source.name}"
        if checkpoint is not None:
            options["checkpointLocation"] = f"{checkpoint}/sources/{sink}/{source.name}"
    return {**options, **source.options}


def groups_of(definition: Definition, sink: Sink) -> list[str]:
    """The consumer groups that show how far `sink` has read its topics."""
    read = (
        parse_source_options(source_options(definition, source, sink.name))
        for source in definition.needed_by(sink)[0]
        if source.kind is SourceKind.TOPIC
    )
    return [options.group_id for options in read if options.group_id is not None]


def sink_options(
    definition: Definition, sink: Sink, checkpoint: str | None = None
) -> dict[str, str]:
    """The options of a topic that is written to; the sink's own come last."""
    options = {
        "kafka.bootstrap.servers": definition.bootstrap_of(sink) or "",
        "delivery": sink.delivery,
    }
    if sink.topic is not None:
        options["topic"] = sink.topic
    if checkpoint is not None and urlsplit(checkpoint).scheme in ("", "file"):
        options["stageDirectory"] = f"{urlsplit(checkpoint).path}-stage"
    return {**options, **sink.options}


def problems_of_source(definition: Definition, source: Source) -> Iterator[tuple[str, str]]:
    """What is wrong with the options of a topic that is read: the setting, and why."""
    try:
        parsed = parse_source_options(source_options(definition, source, ""))
        if source.kind is SourceKind.TOPIC:
            check_stream_options(parsed)
        else:
            check_batch_options(parsed)
    except OptionError as error:
        yield _setting_of(str(error), source.options), str(error).rstrip(".")
    else:
        yield from _unknown(parsed.client, source.options)


def problems_of_sink(definition: Definition, sink: Sink) -> Iterator[tuple[str, str]]:
    """What is wrong with the options of a topic that is written: the setting, and why."""
    try:
        parsed = parse_sink_options(sink_options(definition, sink))
    except OptionError as error:
        yield _setting_of(str(error), sink.options), str(error).rstrip(".")
    else:
        yield from _unknown(parsed.client, sink.options)


def _unknown(config: ClientConfig, options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name in config.unused:
        close = get_close_matches(name, PROPERTIES, 1)
        meant = f"; is {close[0]} meant?" if close else ""
        yield _setting_of(name, options), f"'{name}' is not a property of Kafka's clients{meant}"


def _setting_of(reason: str, options: Mapping[str, str]) -> str:
    """The option that a reason names, as it is written in the file, or the setting for it."""
    said = reason.lower()
    written = [name for name in options if name.lower().removeprefix("kafka.") in said]
    if written:
        return f"options.{max(written, key=len)}"
    return next((setting for name, setting in _SETTINGS.items() if name in said), "")
