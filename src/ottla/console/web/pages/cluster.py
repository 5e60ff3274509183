"""Brokers, their settings and log directories; the metadata quorum; transactions."""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import Response

from ottla.console.hanging import find_hanging
from ottla.console.kafka.questions import BROKER_RESOURCE
from ottla.console.web.answers import done, refused
from ottla.console.web.parameters import first, read_form
from ottla.console.web.rendering import context_of, page
from ottla.protocol.errors import KafkaError


async def brokers(request: Request) -> Response:
    console = context_of(request)
    values = {
        "rows": console.digest.brokers,
        "directories": console.sampler.view.log_directories,
    }
    return page(request, "brokers.html", values, section="brokers")


async def broker(request: Request) -> Response:
    """One broker: its log directories and every setting."""
    console = context_of(request)
    broker_id = request.path_params["broker_id"]
    row = next((one for one in console.digest.brokers if one.broker_id == broker_id), None)
    if row is None:
        return page(
            request,
            "missing.html",
            {"what": "broker", "name": str(broker_id), "back": "/brokers"},
            section="brokers",
            status=404,
        )
    entries, problem = [], ""
    try:
        entries = await console.questions.configs(BROKER_RESOURCE, str(broker_id))
    except KafkaError as error:
        problem = str(error)
    values = {
        "row": row,
        "directories": [
            one for one in console.sampler.view.log_directories if one.broker_id == broker_id
        ],
        "entries": entries,
        "problem": problem,
        "action": f"/brokers/{broker_id}",
    }
    return page(request, "broker.html", values, section="brokers")


async def change_broker_config(request: Request) -> Response:
    console = context_of(request)
    broker_id = request.path_params["broker_id"]
    form = await read_form(request)
    name = first(form, "name")
    value = None if "reset" in form else first(form, "value")
    try:
        for is_dry_run in (True,) if "check" in form else (True, False):
            await console.changes.alter_config(
                BROKER_RESOURCE, str(broker_id), name, value, is_dry_run=is_dry_run
            )
    except KafkaError as error:
        return refused(str(error))
    if "check" in form:
        return done("The broker would take this value.")
    what = f"{name} = {value}" if value is not None else f"{name} back to its default"
    console.sampler.note("console", "info", f"Broker {broker_id}: {what}", "", "broker")
    return done(f"{what}.", refresh=True)


async def quorum(request: Request) -> Response:
    console = context_of(request)
    found, problem = None, ""
    try:
        found = await console.questions.quorum()
    except KafkaError as error:
        problem = str(error)
    values = {
        "quorum": found,
        "problem": problem,
        "metadata": console.sampler.view.metadata,
        "now_ms": int(time.time() * 1000),
    }
    return page(request, "quorum.html", values, section="quorum")


async def transactions(request: Request) -> Response:
    console = context_of(request)
    metadata = console.sampler.view.metadata
    found, hanging, problem = [], None, ""
    try:
        found = await console.questions.transactions(metadata)
        if request.query_params.get("hanging") == "1":
            hanging = await find_hanging(console.questions, metadata, found)
    except KafkaError as error:
        problem = str(error)
    open_states = ("Ongoing", "PrepareCommit", "PrepareAbort")
    found.sort(key=lambda one: (one.state not in open_states, one.started_ms))
    values = {
        "transactions": found,
        "open_count": sum(one.state in open_states for one in found),
        "hanging": hanging,
        "problem": problem,
        "now_ms": int(time.time() * 1000),
    }
    return page(request, "transactions.html", values, section="transactions")
