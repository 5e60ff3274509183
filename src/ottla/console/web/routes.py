"""Every address of the console's pages, in one table."""

from __future__ import annotations

from starlette.routing import BaseRoute, Route

from ottla.console.web.after import Handler, after_first_look
from ottla.console.web.exporting import export
from ottla.console.web.pages import (
    cluster,
    groups,
    live,
    messages,
    overview,
    pipelines,
    topic,
    topics,
)

_PAGES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/", overview.overview),
    ("GET", "/topics", topics.topics),
    ("POST", "/topics", topics.create),
    ("GET", "/topics/{topic}", messages.messages),
    ("GET", "/topics/{topic}/record", messages.record),
    ("GET", "/topics/{topic}/export", export),
    ("GET", "/topics/{topic}/tail", messages.tail),
    ("GET", "/topics/{topic}/partitions", topic.partitions),
    ("POST", "/topics/{topic}/partitions", topic.add_partitions),
    ("GET", "/topics/{topic}/configs", topic.configs),
    ("POST", "/topics/{topic}/configs", topic.change_config),
    ("GET", "/topics/{topic}/consumers", topic.consumers),
    ("GET", "/topics/{topic}/produce", topic.produce_form),
    ("POST", "/topics/{topic}/produce", topic.produce),
    ("POST", "/topics/{topic}/delete", topic.delete),
    ("GET", "/groups", groups.groups),
    ("GET", "/groups/view", groups.group),
    ("POST", "/groups/reset", groups.reset),
    ("POST", "/groups/delete", groups.delete),
    ("GET", "/brokers", cluster.brokers),
    ("GET", "/brokers/{broker_id}", cluster.broker),
    ("POST", "/brokers/{broker_id}", cluster.change_broker_config),
    ("GET", "/quorum", cluster.quorum),
    ("GET", "/transactions", cluster.transactions),
    ("GET", "/pipelines", pipelines.pipelines),
    ("GET", "/live/pulse", live.pulse),
    ("GET", "/live/state", live.state),
    ("GET", "/live/topics/{topic}", live.topic_head),
    ("GET", "/live/groups", live.group_head),
)


def page_routes() -> list[BaseRoute]:
    return [
        Route(path, after_first_look(handler), methods=[method]) for method, path, handler in _PAGES
    ]
