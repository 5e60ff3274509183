"""One topic: the frame of its pages, partitions, settings, consumers, producing, deleting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ottla.console.context import ConsoleContext
from ottla.console.errors import BadRequestError
from ottla.console.kafka.questions import TOPIC_RESOURCE
from ottla.console.numbers import PARTITION_MAX, integer
from ottla.console.partitions import partition_rows
from ottla.console.produce_form import Fields, fields_of, written_of
from ottla.console.web.answers import done, refused
from ottla.console.web.pages.settings import change_setting
from ottla.console.web.parameters import first, read_form
from ottla.console.web.rendering import context_of, page
from ottla.protocol.errors import KafkaError

TABS = (
    ("messages", "Messages", ""),
    ("partitions", "Partitions", "/partitions"),
    ("configs", "Settings", "/configs"),
    ("consumers", "Consumers", "/consumers"),
    ("produce", "Produce", "/produce"),
)


def head_values(console: ConsoleContext, topic: str) -> dict[str, Any]:
    """What the head of a topic's pages shows."""
    return {
        "topic": topic,
        "row": console.digest.topics[topic],
        "rates": console.sampler.topic_rates.recent(topic, 60),
    }


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
    if topic not in console.digest.topics:
        return page(
            request,
            "missing.html",
            {"what": "topic", "name": topic, "back": "/topics"},
            section="topics",
            status=404,
        )
    known = {
        **head_values(console, topic),
        "view": console.sampler.view.metadata.topics[topic],
        "tab": tab,
        "tabs": TABS,
    }
    return page(request, template, {**known, **values}, section="topics", status=status)


async def partitions(request: Request) -> Response:
    """Where each partition is led and how far it has come."""
    console = context_of(request)
    topic = request.path_params["topic"]
    rows = await partition_rows(console.questions, console.sampler, topic)
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
    topic = request.path_params["topic"]
    return await change_setting(
        request, TOPIC_RESOURCE, topic, subject="topic", action=f"/topics/{topic}/configs"
    )


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
    fields, problem = Fields(), ""
    if given.get("offset"):
        try:
            partition = integer(given.get("partition"), "The partition", most=PARTITION_MAX)
            offset = integer(given.get("offset"), "The offset")
            record = await console.readers.record(given.get("source") or topic, partition, offset)
            if record is None:
                problem = "There is no message at that offset any more."
            else:
                fields = fields_of(record)
        except (BadRequestError, KafkaError) as error:
            problem = str(error)
    return topic_page(
        request, "produce.html", {"fields": fields, "problem": problem}, tab="produce"
    )


async def produce(request: Request) -> Response:
    """Write one message."""
    console = context_of(request)
    topic = request.path_params["topic"]
    form = await read_form(request)
    if topic not in console.sampler.view.metadata.topics:
        return refused(f"There is no topic {topic}.")
    try:
        asked = first(form, "partition")
        partition = integer(asked, "The partition", most=PARTITION_MAX) if asked else None
        written = written_of(form)
        delivered = await console.producer.produce(
            topic,
            partition=partition,
            key=written.key,
            value=written.value,
            headers=written.headers,
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
