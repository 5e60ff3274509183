"""Brokers, their settings and log directories; the metadata quorum; transactions."""

from __future__ import annotations

import time

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ottla.console.errors import BadRequestError
from ottla.console.hanging import OLDER_DEFAULT, find_hanging
from ottla.console.kafka.model import OPEN_STATES
from ottla.console.kafka.questions import BROKER_RESOURCE
from ottla.console.seeking import parse_duration_ms
from ottla.console.web.pages.settings import change_setting
from ottla.console.web.rendering import context_of, page
from ottla.protocol.errors import KafkaError


async def brokers(request: Request) -> Response:
    console = context_of(request)
    values = {
        "rows": console.digest.brokers,
        "directories": console.sampler.view.log_directories,
        "directory_troubles": console.sampler.view.directory_troubles,
    }
    return page(request, "brokers.html", values, section="brokers")


async def broker(request: Request) -> Response:
    """One broker: its log directories and every setting."""
    console = context_of(request)
    broker_id = _asked_broker(request)
    row = next((one for one in console.digest.brokers if one.broker_id == broker_id), None)
    if row is None:
        return page(
            request,
            "missing.html",
            {"what": "broker", "name": request.path_params["broker_id"], "back": "/brokers"},
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
        "directory_troubles": {},
        "entries": entries,
        "problem": problem,
        "action": f"/brokers/{broker_id}",
    }
    return page(request, "broker.html", values, section="brokers")


def _asked_broker(request: Request) -> int | None:
    """The broker of the address, if it is one of the cluster's."""
    asked = request.path_params["broker_id"]
    known = context_of(request).sampler.view.metadata.brokers
    return next((one for one in known if str(one) == asked), None)


async def change_broker_config(request: Request) -> Response:
    broker_id = _asked_broker(request)
    if broker_id is None:
        raise HTTPException(404, "There is no such broker.")
    return await change_setting(
        request,
        BROKER_RESOURCE,
        str(broker_id),
        subject="broker",
        action=f"/brokers/{broker_id}",
    )


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
    }
    return page(request, "quorum.html", values, section="quorum")


async def transactions(request: Request) -> Response:
    """Every transactional id, the open ones first; on request, those that hang."""
    console = context_of(request)
    metadata = console.sampler.view.metadata
    now_ms = int(time.time() * 1000)
    given = request.query_params
    older = given.get("older", OLDER_DEFAULT)
    hanging, problem = None, ""
    if given.get("hanging") == "1":
        try:
            hanging = await find_hanging(
                console.transactions,
                metadata,
                now_ms=now_ms,
                age_ms_min=parse_duration_ms(older),
            )
        except BadRequestError as error:
            problem = str(error)
    told = await console.transactions.transactions(metadata)
    found = sorted(told.found, key=lambda one: (one.state not in OPEN_STATES, one.started_ms))
    values = {
        "transactions": found,
        "open_count": sum(one.state in OPEN_STATES for one in found),
        "troubles": told.troubles,
        "hanging": hanging,
        "older": older,
        "problem": problem,
        "now_ms": now_ms,
    }
    return page(request, "transactions.html", values, section="transactions")
