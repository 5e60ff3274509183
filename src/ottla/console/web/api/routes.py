"""Every address of the API: what is routed, and what /api/openapi.json tells, from one table."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from ottla.console.digest import BrokerRow, Check, GroupRow, LagRow, TopicLag, TopicRow
from ottla.console.events import Event
from ottla.console.hanging import OLDER_DEFAULT, Hanging
from ottla.console.kafka.model import (
    ConfigEntry,
    LogDirectory,
    MemberView,
    PartitionView,
    QuorumView,
    TransactionView,
)
from ottla.console.partitions import PartitionRow
from ottla.console.pipelines import PipelineRow
from ottla.console.producing import Delivered
from ottla.console.resets import STRATEGIES, Move
from ottla.console.sampler import CLUSTER_SERIES
from ottla.console.seeking import BEGINNINGS
from ottla.console.web.after import after_first_look
from ottla.console.web.api import reading, writing
from ottla.console.web.api.openapi import document
from ottla.console.web.api.spec import (
    PARTITION,
    ApiRoute,
    array,
    boolean,
    integer,
    mapping,
    nullable,
    number,
    path,
    query,
    record,
    schema_of,
    text,
)
from ottla.console.web.exporting import EXPORT_RECORDS_MAX, FORMATS, export

_TOPIC = path("topic", "The topic's name.")
_GROUP = path("group", "The group's id.")
_BROKER = path("broker_id", "The broker's id.")
_HEADER = record(False, key=text(), value=nullable(text()), value_base64=text())
_MESSAGE = record(
    False,
    topic=text(),
    partition=integer(),
    offset=integer(),
    timestamp=integer(),
    key=nullable(text()),
    key_base64=text(),
    value=nullable(text()),
    value_base64=text(),
    headers=array(_HEADER),
)
_SERIES = record(
    times=array(number()),
    series=array(record(label=text(), values=array(nullable(number())))),
)
_CONFIGS = record(configs=array(schema_of(ConfigEntry)))
_CHANGE = record(False, name=text(), value=nullable(text()), dry_run=boolean())
_CHANGED = record(name=text(), value=nullable(text()), is_dry_run=boolean())
_PARTITION = schema_of(
    PartitionView,
    **{
        name: schema
        for name, schema in schema_of(PartitionRow)["properties"].items()
        if name != "partition"
    },
)
_MEMBER = schema_of(MemberView, assignment=array(PARTITION), target=nullable(array(PARTITION)))
_GRAPH = record(
    nodes=array(record(id=text(), kind=text(), label=text())), edges=array(array(text()))
)
_SILENT = array(record(broker_id=integer(), reason=text()))
_SEEKING = (
    query("from", "Where to begin.", text(enum=list(BEGINNINGS))),
    query("partition", "One partition instead of all.", integer()),
    query("offset", "With from=offset.", integer()),
    query("time", "With from=time: 15m, an ISO 8601 time, or milliseconds."),
    query("q", "Text in the key, the value or a header."),
    query("filter", 'An expression, such as value.amount > 100 and key startswith "eu".'),
    query("isolation", "committed leaves out open and aborted transactions.", text()),
    query("size", "How many messages.", integer(minimum=1, maximum=500)),
    query("cursor", "next_cursor of the page before."),
)

READING: tuple[ApiRoute, ...] = (
    ApiRoute(
        method="GET", path="/api/v1/token", handler=reading.token, name="getToken",
        text="The token that changes carry.", answer=record(token=text()),
    ),
    ApiRoute(
        method="GET", path="/api/v1/health", handler=reading.health, name="getHealth",
        text="Whether the cluster answers, and everything that is not well.",
        answer=record(
            is_reachable=boolean(), trouble=nullable(text()), stale_s=nullable(number()),
            checks=array(schema_of(Check)),
        ),
    ),
    ApiRoute(
        method="GET", path="/api/v1/cluster", handler=reading.cluster, name="getCluster",
        text="The cluster and its newest figures.",
        answer=record(
            cluster_id=text(), controller_id=integer(), brokers=integer(), topics=integer(),
            groups=integer(), **{name: nullable(number()) for name in CLUSTER_SERIES},
        ),
    ),
    ApiRoute(
        method="GET", path="/api/v1/topics", handler=reading.topics, name="listTopics",
        text="Every topic with size, rate and lag.",
        answer=record(topics=array(schema_of(TopicRow))),
    ),
    ApiRoute(
        method="GET", path="/api/v1/topics/{topic}", handler=reading.topic, name="getTopic",
        text="One topic, its partitions and the groups that read it.", parameters=(_TOPIC,),
        answer=schema_of(TopicRow, partitions=array(_PARTITION), groups=array(schema_of(TopicLag))),
    ),
    ApiRoute(
        method="GET", path="/api/v1/topics/{topic}/messages", handler=reading.messages,
        name="readMessages", text="One page of messages.", parameters=(_TOPIC, *_SEEKING),
        answer=record(
            messages=array(_MESSAGE), scanned=integer(), is_complete=boolean(),
            next_cursor=nullable(text()),
            unread=array(record(partition=integer(), reason=text())),
        ),
    ),
    ApiRoute(
        method="GET", path="/api/v1/topics/{topic}/messages/{partition}/{offset}",
        handler=reading.message, name="getMessage", text="One message.",
        parameters=(_TOPIC, path("partition", "Its partition."), path("offset", "Its offset.")),
        answer=_MESSAGE,
    ),
    ApiRoute(
        method="GET", path="/api/v1/topics/{topic}/export", handler=export, name="exportMessages",
        text="A page of messages and all that follows it, as a file; it breaks off, rather than "
        "leave out what cannot be read.",
        parameters=(
            _TOPIC, *_SEEKING,
            query("format", "The kind of file.", text(enum=list(FORMATS), default="jsonl")),
            query("limit", "How many messages.", integer(minimum=1, maximum=EXPORT_RECORDS_MAX)),
        ),
        answer=text(), media_type="application/jsonl",
    ),
    ApiRoute(
        method="GET", path="/api/v1/topics/{topic}/configs", handler=reading.topic_configs,
        name="getTopicConfigs", text="Every setting of a topic.", parameters=(_TOPIC,),
        answer=_CONFIGS,
    ),
    ApiRoute(
        method="GET", path="/api/v1/groups", handler=reading.groups, name="listGroups",
        text="Every group with its lag.", answer=record(groups=array(schema_of(GroupRow))),
    ),
    ApiRoute(
        method="GET", path="/api/v1/groups/{group:path}", handler=reading.group, name="getGroup",
        text="One group: members, assignment and lag by partition.", parameters=(_GROUP,),
        answer=schema_of(
            GroupRow, assignor=text(), epoch=nullable(integer()), members=array(_MEMBER),
            partitions=array(schema_of(LagRow)),
        ),
    ),
    ApiRoute(
        method="GET", path="/api/v1/brokers", handler=reading.brokers, name="listBrokers",
        text="Every broker and log directory.",
        answer=record(
            brokers=array(schema_of(BrokerRow)), log_directories=array(schema_of(LogDirectory))
        ),
    ),
    ApiRoute(
        method="GET", path="/api/v1/brokers/{broker_id}/configs", handler=reading.broker_configs,
        name="getBrokerConfigs", text="Every setting of a broker.",
        parameters=(_BROKER,), answer=_CONFIGS,
    ),
    ApiRoute(
        method="GET", path="/api/v1/quorum", handler=reading.quorum, name="getQuorum",
        text="The metadata quorum.", answer=schema_of(QuorumView),
    ),
    ApiRoute(
        method="GET", path="/api/v1/transactions", handler=reading.transactions,
        name="listTransactions", text="Every transactional id and what it has open.",
        answer=record(
            transactions=array(schema_of(TransactionView, partitions=array(PARTITION))),
            silent_brokers=_SILENT,
        ),
    ),
    ApiRoute(
        method="GET", path="/api/v1/transactions/hanging", handler=reading.hanging_transactions,
        name="findHangingTransactions",
        text="Transactions that a partition has open and no coordinator knows; asks every leader.",
        parameters=(query("older", f"Silent for at least this long; else {OLDER_DEFAULT}."),),
        answer=record(
            hanging=array(schema_of(Hanging)), partition_count=integer(), untold_count=integer(),
            silent_brokers=_SILENT,
        ),
    ),
    ApiRoute(
        method="GET", path="/api/v1/pipelines", handler=reading.pipelines, name="listPipelines",
        text="Every Spark pipeline that publishes its state here.",
        answer=record(pipelines=array(schema_of(PipelineRow, graph=_GRAPH))),
    ),
    ApiRoute(
        method="GET", path="/api/v1/events", handler=reading.events, name="listEvents",
        text="Elections, rebalances and changes since the console started, newest first.",
        answer=record(events=array(schema_of(Event))),
    ),
    ApiRoute(
        method="GET", path="/api/v1/history", handler=reading.history, name="getHistory",
        text="The last minutes of the cluster's figures, a group's lag or a topic's rate.",
        parameters=(
            query("series", f"Any of {', '.join(CLUSTER_SERIES)}. Repeatable."),
            query("group", "A group's lag instead. Repeatable."),
            query("topic", "A topic's rate instead. Repeatable."),
        ),
        answer=_SERIES,
    ),
    ApiRoute(
        method="GET", path="/api/v1/search", handler=reading.search, name="search",
        text="Topics, groups and pages by a part of their name.",
        parameters=(query("q", "A part of the name."),),
        answer=record(results=array(record(name=text(), kind=text(), href=text()))),
    ),
)  # fmt: skip

WRITING: tuple[ApiRoute, ...] = (
    ApiRoute(
        method="POST", path="/api/v1/topics", handler=writing.create_topic, name="createTopic",
        text="Create a topic, or with dry_run ask whether the broker would.",
        body=record(
            False, name=text(), partitions=integer(), replication_factor=integer(),
            configs=mapping(text()), dry_run=boolean(),
        ),
        answer=record(name=text(), is_dry_run=boolean()),
    ),
    ApiRoute(
        method="DELETE", path="/api/v1/topics/{topic}", handler=writing.delete_topic,
        name="deleteTopic", text="Delete a topic.", parameters=(_TOPIC,),
        answer=record(name=text()),
    ),
    ApiRoute(
        method="POST", path="/api/v1/topics/{topic}/messages", handler=writing.produce,
        name="produceMessage", text="Write one message.", parameters=(_TOPIC,), body=_MESSAGE,
        answer=schema_of(Delivered),
    ),
    ApiRoute(
        method="POST", path="/api/v1/topics/{topic}/partitions", handler=writing.add_partitions,
        name="addPartitions", text="Give a topic more partitions; count is how many it has then.",
        parameters=(_TOPIC,), body=record(False, count=integer(minimum=1), dry_run=boolean()),
        answer=record(name=text(), partitions=integer(), is_dry_run=boolean()),
    ),
    ApiRoute(
        method="PATCH", path="/api/v1/topics/{topic}/configs", handler=writing.alter_topic_config,
        name="alterTopicConfig", text="Set one setting; null takes it back to its default.",
        parameters=(_TOPIC,), body=_CHANGE, answer=_CHANGED,
    ),
    ApiRoute(
        method="PATCH", path="/api/v1/brokers/{broker_id}/configs",
        handler=writing.alter_broker_config, name="alterBrokerConfig",
        text="Set one setting of a broker that it can change while it runs.",
        parameters=(_BROKER,), body=_CHANGE, answer=_CHANGED,
    ),
    ApiRoute(
        method="POST", path="/api/v1/groups/{group:path}/reset", handler=writing.reset_offsets,
        name="resetOffsets",
        text="Where a group's offsets would be; with dry_run false, where they are now.",
        parameters=(_GROUP,),
        body=record(
            False, strategy=text(enum=list(STRATEGIES)), amount=integer(), time=text(),
            topic=text(), dry_run=boolean(),
        ),
        answer=record(
            is_dry_run=boolean(), moves=array(schema_of(Move)), untold=array(PARTITION)
        ),
    ),
    ApiRoute(
        method="DELETE", path="/api/v1/groups/{group:path}", handler=writing.delete_group,
        name="deleteGroup", text="Delete a group that has no members.", parameters=(_GROUP,),
        answer=record(group_id=text()),
    ),
)  # fmt: skip

API: tuple[ApiRoute, ...] = READING + WRITING


async def openapi(_request: Request) -> Response:
    return JSONResponse(document(API))


def api_routes() -> list[BaseRoute]:
    routes: list[BaseRoute] = [
        Route(route.path, after_first_look(route.handler), methods=[route.method]) for route in API
    ]
    return [*routes, Route("/api/openapi.json", openapi, methods=["GET"])]
