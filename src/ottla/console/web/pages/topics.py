"""The list of topics, and creating one."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ottla.console.errors import BadRequestError
from ottla.console.numbers import integer
from ottla.console.web.answers import done, refused
from ottla.console.web.parameters import first, listing, read_form
from ottla.console.web.rendering import context_of, page
from ottla.protocol.errors import KafkaError

SORTS = {
    "name": "name",
    "partitions": "partition_count",
    "records": "record_count",
    "size": "size_bytes",
    "rate": "rate",
    "lag": "lag_max",
    "groups": "group_count",
}
SPARKLINE_SAMPLES = 40


async def topics(request: Request) -> Response:
    """Every topic, searched and sorted, a page at a time."""
    console = context_of(request)
    digest = console.digest
    rows = list(digest.topics.values())
    shows_internal = request.query_params.get("internal") == "1"
    is_trouble = request.query_params.get("trouble") == "1"
    internal_count = sum(row.is_internal for row in rows)
    if is_trouble:
        rows = digest.troubled_topics
    elif not shows_internal:
        rows = [row for row in rows if not row.is_internal]
    found = listing(request, rows, name_of="name", sorts=SORTS, default_sort="name")
    history = console.sampler.topic_rates
    values = {
        "found": found,
        "sparklines": {row.name: history.recent(row.name, SPARKLINE_SAMPLES) for row in found.rows},
        "shows_internal": shows_internal,
        "is_trouble": is_trouble,
        "internal_count": internal_count,
        "broker_count": len(digest.view.metadata.brokers),
    }
    return page(request, "topics.html", values, section="topics")


async def create(request: Request) -> Response:
    """Create a topic, or only ask the broker whether it would."""
    console = context_of(request)
    form = await read_form(request)
    name = first(form, "name").strip()
    configs = {
        key: value
        for key, value in zip(
            form.get("config_name", []), form.get("config_value", []), strict=False
        )
        if key
    }
    try:
        partitions = integer(
            first(form, "partitions"),
            "The number of partitions",
            default=-1,
            least=-1,
            most=100_000,
        )
        replication = integer(
            first(form, "replication"), "The replication factor", default=-1, least=-1, most=1_000
        )
        await console.changes.create_topic(
            name, partitions, replication, configs, is_dry_run="check" in form
        )
    except (BadRequestError, KafkaError) as error:
        return refused(str(error))
    if "check" in form:
        return done("The broker would create it.")
    await console.changed()
    return done(f"{name} was created.", go_to=f"/topics/{name}")
