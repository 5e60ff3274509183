"""One topic: the frame of its pages, partitions, settings, consumers, producing, deleting."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from ottla.console.errors import BadRequestError
from ottla.console.kafka.model import PartitionView, TopicPartition
from ottla.console.kafka.questions import DEBUGGING_REPLICA, LATEST, TOPIC_RESOURCE
from ottla.console.web.answers import done, refused
from ottla.console.web.parameters import first, integer, read_form
from ottla.console.web.rendering import context_of, page
from ottla.protocol.errors import KafkaError

TABS = (
    ("messages", "Messages", ""),
    ("partitions", "Partitions", "/partitions"),
    ("configs", "Settings", "/configs"),
    ("consumers", "Consumers", "/consumers"),
    ("produce", "Produce", "/produce"),
)

Offsets = dict[TopicPartition, tuple[int, int]]


class PartitionRow(NamedTuple):
    partition: PartitionView
    start_offset: int | None
    high_watermark: int | None
    last_stable_offset: int | None
    log_end_offset: int | None
    size_bytes: int | None
    rate: float

    @property
    def record_count(self) -> int | None:
        if self.start_offset is None or self.high_watermark is None:
            return None
        return self.high_watermark - self.start_offset


def topic_page(
    request: Request,
    template: str,
    values: Mapping[str, Any],
    *,
    tab: str,
    status: int = 200,
) -> Response:
    """A page of one topic, or the page that says there is none."""
    console = context_of(request)
    topic = request.path_params["topic"]
    row = console.digest.topics.get(topic)
    if row is None:
        return page(
            request,
            "missing.html",
            {"what": "topic", "name": topic, "back": "/topics"},
            section="topics",
            status=404,
        )
    known = {
        "topic": topic,
        "row": row,
        "view": console.sampler.view.metadata.topics[topic],
        "tab": tab,
        "tabs": TABS,
        "rates": console.sampler.topic_rates.recent(topic, 60),
    }
    return page(request, template, {**known, **values}, section="topics", status=status)


async def partitions(request: Request) -> Response:
    """Where each partition is led and how far it has come."""
    console = context_of(request)
    topic = request.path_params["topic"]
    view = console.sampler.view
    found = view.metadata.topics.get(topic)
    keys = [(topic, partition.number) for partition in found.partitions] if found else []
    latest = dict.fromkeys(keys, LATEST)
    ask = console.questions.offsets
    watermarks: Offsets = {}
    stable: Offsets = {}
    ends: Offsets = {}
    if console.sampler.view.trouble is None:
        # In this order: the later a question, the further its answer may be.
        stable, watermarks, ends = await asyncio.gather(
            ask(view.metadata, latest, is_committed=True),
            ask(view.metadata, latest, is_committed=False),
            ask(view.metadata, latest, is_committed=False, replica_id=DEBUGGING_REPLICA),
        )
    rows = []
    for partition in found.partitions if found else ():
        key = (topic, partition.number)
        rows.append(
            PartitionRow(
                partition,
                view.start_offsets.get(key),
                watermarks[key][0] if key in watermarks else view.end_offsets.get(key),
                stable[key][0] if key in stable else None,
                ends[key][0] if key in ends else None,
                view.sizes.get(key),
                console.sampler.partition_rates.get(key, 0.0),
            )
        )
    return topic_page(request, "partitions.html", {"rows": rows}, tab="partitions")


async def configs(request: Request) -> Response:
    """Every setting, with its documentation."""
    console = context_of(request)
    topic = request.path_params["topic"]
    entries, problem = [], ""
    try:
        entries = await console.questions.configs(TOPIC_RESOURCE, topic)
    except KafkaError as error:
        problem = str(error)
    values = {"entries": entries, "problem": problem, "action": f"/topics/{topic}/configs"}
    return topic_page(request, "configs.html", values, tab="configs")


async def change_config(request: Request) -> Response:
    """Set or reset one setting; the broker checks the value first."""
    console = context_of(request)
    topic = request.path_params["topic"]
    form = await read_form(request)
    name = first(form, "name")
    value = None if "reset" in form else first(form, "value")
    try:
        await console.changes.alter_config(TOPIC_RESOURCE, topic, name, value, is_dry_run=True)
        if "check" in form:
            return done("The broker would take this value.")
        await console.changes.alter_config(TOPIC_RESOURCE, topic, name, value)
    except KafkaError as error:
        return refused(str(error))
    what = f"{name} = {value}" if value is not None else f"{name} back to its default"
    console.sampler.note("console", "info", f"Topic {topic}: {what}", topic, "topic")
    await console.changed()
    return done(f"{what}.", refresh=True)


async def consumers(request: Request) -> Response:
    """The groups that read the topic."""
    console = context_of(request)
    topic = request.path_params["topic"]
    values = {"groups": console.digest.groups_of_topic(topic)}
    return topic_page(request, "consumers.html", values, tab="consumers")


async def produce_form(request: Request) -> Response:
    """The form that writes a message, perhaps filled from one that exists."""
    console = context_of(request)
    topic = request.path_params["topic"]
    given = request.query_params
    key, value, headers, problem = "", "", [("", "")], ""
    is_binary = is_null = has_key = False
    if given.get("offset"):
        try:
            partition = integer(given.get("partition"), "The partition", most=2**31 - 1)
            offset = integer(given.get("offset"), "The offset")
            source = given.get("source") or topic
            record = await console.readers.record(source, partition, offset)
        except (BadRequestError, KafkaError) as error:
            record, problem = None, str(error)
        if record is not None:
            payloads = [record.key, record.value, *(v for _, v in record.headers)]
            is_binary = not all(_is_text(data) for data in payloads)
            as_text = _hex if is_binary else _text
            key, value = as_text(record.key), as_text(record.value)
            has_key, is_null = record.key is not None, record.value is None
            headers = [(name, as_text(data)) for name, data in record.headers] or [("", "")]
    values = {
        "key": key,
        "value": value,
        "headers": headers,
        "is_binary": is_binary,
        "is_null": is_null,
        "has_key": has_key,
        "problem": problem,
    }
    return topic_page(request, "produce.html", values, tab="produce")


async def produce(request: Request) -> Response:
    """Write one message."""
    console = context_of(request)
    topic = request.path_params["topic"]
    form = await read_form(request)
    if topic not in console.sampler.view.metadata.topics:
        return refused(f"There is no topic {topic}.")
    encode = _unhex if first(form, "encoding") == "hex" else str.encode
    try:
        asked = first(form, "partition")
        partition = integer(asked, "The partition", most=2**31 - 1) if asked else None
        key_text = first(form, "key")
        key = encode(key_text) if key_text or "key_empty" in form else None
        value = None if "tombstone" in form else encode(first(form, "value"))
        names, texts = form.get("header_name", []), form.get("header_value", [])
        headers = [(name, encode(text)) for name, text in zip(names, texts, strict=False) if name]
        delivered = await console.producer.produce(
            topic, partition=partition, key=key, value=value, headers=headers
        )
    except (BadRequestError, KafkaError) as error:
        return refused(str(error))
    console.sampler.look_soon()
    return done(
        f"Written to partition {delivered.partition} at offset {delivered.offset:,}.",
        href=f"/topics/{topic}?from=offset&partition={delivered.partition}&offset={delivered.offset}",
    )


async def delete(request: Request) -> Response:
    """Delete the topic, once its name was typed."""
    console = context_of(request)
    topic = request.path_params["topic"]
    form = await read_form(request)
    if first(form, "confirmation") != topic:
        return refused("Type the topic's name to delete it.")
    try:
        await console.changes.delete_topic(topic)
    except KafkaError as error:
        return refused(str(error))
    await console.changed()
    return done(f"{topic} was deleted.", go_to="/topics")


async def add_partitions(request: Request) -> Response:
    """Give the topic more partitions."""
    console = context_of(request)
    topic = request.path_params["topic"]
    form = await read_form(request)
    try:
        count = integer(first(form, "count"), "The number of partitions", least=1, most=100_000)
        await console.changes.add_partitions(topic, count)
    except (BadRequestError, KafkaError) as error:
        return refused(str(error))
    await console.changed()
    return done(f"{topic} has {count} partitions now.", refresh=True)


def _is_text(data: bytes | None) -> bool:
    if data is None:
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _text(data: bytes | None) -> str:
    return "" if data is None else data.decode()


def _hex(data: bytes | None) -> str:
    return "" if data is None else data.hex(" ")


def _unhex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise BadRequestError("That is not hexadecimal.") from None
