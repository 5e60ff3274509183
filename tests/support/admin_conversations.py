"""What an administrator says to a broker: versions, metadata, topics, partitions, configs."""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from ottla.protocol.api import ApiKey
from support.conversations import Talk

NOBODY = UUID(int=77)
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
# Their values name the machine, its ports and its folders.
PLACES = frozenset(
    (
        "advertised.listeners",
        "controller.quorum.bootstrap.servers",
        "listeners",
        "log.dir",
        "log.dirs",
    )
)
# Compared one by one: see describe_listeners and those behind it.
TOLD_APART = frozenset(
    (
        "listener.security.protocol.map",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
    )
)


def ask_api_versions(talk: Talk, version: int, shared: frozenset[int]) -> None:
    """`shared`: the APIs that both brokers serve; only those are compared.

    The epoch of the features is not: it is how many records each metadata log holds.
    """

    def keep(answer: Any) -> Any:
        kept = tuple(one for one in answer.api_keys if one.api_key in shared)
        features = {
            name: {one.name: one for one in getattr(answer, name, ())}
            for name in ("supported_features", "finalized_features")
        }
        return (answer.error_code, kept, features)

    for software in ("wire", "", "bad name!", "-dash", "dash-", "a" * 300, "1.0.0-x_y"):
        for number in ("1.0", "", "1 0"):
            talk.ask_filtered(
                keep,
                ApiKey.API_VERSIONS,
                version,
                client_software_name=software,
                client_software_version=number,
            )
            if version < 3:
                return


def ask_metadata(talk: Talk, version: int) -> None:
    one, two = talk.topic("one", 1), talk.topic("two", 3)
    talk.settle()

    def ask(*topics: Any, **more: Any) -> None:
        asked = [
            {"name": topic, "topic_id": None}
            if isinstance(topic, str)
            else {"name": None, "topic_id": topic}
            for topic in topics
        ]
        fields = {"topics": asked, "allow_auto_topic_creation": False, **more}
        talk.ask(ApiKey.METADATA, version, **fields)

    def keep(answer: Any) -> Any:
        mine = (talk.name("one"), talk.name("two"))
        return tuple(topic for topic in answer.topics if topic.name in mine)

    names = talk.name("one"), talk.name("two")
    ask(*names)
    if version >= 4:  # before that, whatever is asked for is created
        ask(*names, talk.name("none"))
        ask("", ".", "..", "bad name", "x" * 250, names[0])
        ask(names[0], names[0])
    if version >= 8:
        for topic_wide, cluster_wide in ((True, False), (False, True), (True, True)):
            ask(
                *names,
                talk.name("none") if version >= 4 else names[0],
                include_topic_authorized_operations=topic_wide,
                include_cluster_authorized_operations=cluster_wide,
            )
    if version >= 10:
        ask(one, two)
        ask(one, NOBODY)
        ask(one, NOBODY, include_topic_authorized_operations=True)
        ask(one, one)
        ask(names[0], two)
        both = {"name": names[0], "topic_id": one}
        talk.ask(ApiKey.METADATA, version, topics=[both], allow_auto_topic_creation=False)
    if version == 0:
        talk.ask_filtered(keep, ApiKey.METADATA, version, topics=[])
    else:
        talk.ask(ApiKey.METADATA, version, topics=[], allow_auto_topic_creation=True)
        talk.ask_filtered(keep, ApiKey.METADATA, version, topics=None)
    talk.quietly(ApiKey.METADATA, version, topics=[{"name": talk.name("made")}])
    if version >= 4:
        ask("__consumer offsets", "..", allow_auto_topic_creation=True)
    talk.settle()
    talk.ask_filtered(
        lambda answer: [len(topic.partitions) for topic in answer.topics],
        ApiKey.METADATA,
        version,
        topics=[{"name": talk.name("made")}],
        allow_auto_topic_creation=False,
    )


def creatable(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    assignments: Mapping[int, list[int]] | None = None,
    configs: Iterable[tuple[str, str | None]] = (),
) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "assignments": [
            {"partition_index": index, "broker_ids": brokers}
            for index, brokers in (assignments or {}).items()
        ],
        "configs": [{"name": key, "value": value} for key, value in configs],
    }


def create_topics(talk: Talk, version: int) -> None:
    def ask(*topics: Any, validate_only: bool = False) -> None:
        talk.ask(
            ApiKey.CREATE_TOPICS,
            version,
            topics=list(topics),
            timeout=10_000,
            validate_only=validate_only,
        )

    name = talk.name
    ask()
    ask(creatable(name("a")), creatable(name("b"), 3))
    ask(creatable(name("a")))
    ask(creatable(name("a")), validate_only=True)
    ask(creatable(name("a"), 0))
    ask(creatable(name("c")), creatable(name("c")), creatable(name("d")))
    ask(creatable(name("e")), creatable(""), creatable("."), creatable(".."), creatable("a b"))
    ask(creatable("x" * 249 + "y"), creatable("é"))
    ask(creatable(name("col.lide")))
    ask(creatable(name("col_lide")))
    for partitions in (0, -1, -2, 10_001):
        ask(creatable(name(f"p{partitions}"), partitions), validate_only=True)
    ask(creatable(name("p-1"), -1))
    for replicas in (0, -1, -2, 2, 3):
        ask(creatable(name(f"r{replicas}"), 1, replicas))
    good: dict[int, list[int]] = {0: [1], 1: [1]}
    ask(creatable(name("m0"), -1, -1, good))
    ask(creatable(name("m0"), -1, -1, good), validate_only=True)
    bad: list[dict[int, list[int]]] = [
        {0: []},
        {0: [1, 1]},
        {0: [2]},
        {1: [1]},
        {0: [1], 2: [1]},
        {0: [1], 1: []},
        {0: [-1]},
        {-1: [1]},
    ]
    for number, assignments in enumerate(bad):
        ask(creatable(name(f"m{number + 1}"), -1, -1, assignments))
    ask(creatable(name("m20"), 2, -1, good), creatable(name("m21"), -1, 1, good))
    ask(creatable(name("m22"), 0, 0, good))
    twice = [{"partition_index": 0, "broker_ids": [1]}] * 2
    ask({**creatable(name("m23"), -1, -1), "assignments": twice})
    _create_with_configs(ask, name)


def _create_with_configs(ask: Any, name: Any) -> None:
    cases: list[list[tuple[str, str | None]]] = [
        [("retention.ms", "1000"), ("cleanup.policy", "compact")],
        [("retention.ms", None)],
        [("retention.ms", "")],
        [("retention.ms", "abc")],
        [("retention.ms", "-2")],
        [("retention.ms", " 5 ")],
        [("no.such.key", "1")],
        [("cleanup.policy", "explode")],
        [("cleanup.policy", "")],
        [("cleanup.policy", "delete,compact")],
        [("cleanup.policy", "delete,delete")],
        [("compression.type", "brotli")],
        [("compression.type", "zstd"), ("compression.zstd.level", "99")],
        [("compression.gzip.level", "0")],
        [("min.insync.replicas", "0")],
        [("min.insync.replicas", "5")],
        [("message.timestamp.type", "LogAppendTime")],
        [("message.timestamp.type", "logappendtime")],
        [("message.format.version", "3.0")],
        [("segment.bytes", "13")],
        [("segment.bytes", "1048576")],
        [("segment.bytes", "99999999999")],
        [("remote.storage.enable", "true")],
        [("remote.storage.enable", "maybe")],
        [("unclean.leader.election.enable", "TRUE")],
        [("min.cleanable.dirty.ratio", "1.5")],
        [("min.cleanable.dirty.ratio", "0.25")],
        [("retention.bytes", "10"), ("local.retention.bytes", "20")],
        [("retention.ms", "10"), ("local.retention.ms", "20")],
        [("min.compaction.lag.ms", "20"), ("max.compaction.lag.ms", "10")],
        [("retention.ms", "1"), ("retention.ms", "2")],
        [("leader.replication.throttled.replicas", "*")],
        [("leader.replication.throttled.replicas", "0:1,1:1")],
        [("leader.replication.throttled.replicas", "zero")],
        [("follower.replication.throttled.replicas", "0:1")],
        [("max.message.bytes", "-1")],
        [("max.message.bytes", "0")],
        [("preallocate", "false")],
        [("flush.messages", "0")],
        [("index.interval.bytes", "-1")],
        [("file.delete.delay.ms", "-1")],
        [("message.timestamp.before.max.ms", "-1")],
        [("", "1")],
    ]
    for number, configs in enumerate(cases):
        ask(creatable(name(f"cfg{number}"), configs=configs))
    ask(creatable(name("one-bad"), configs=[("x", "y")]), creatable(name("one-good")))


def delete_topics(talk: Talk, version: int) -> None:
    ids = {letter: talk.topic(letter) for letter in "abcdefgh"}

    def ask(*topics: tuple[str | None, UUID | None]) -> None:
        states = [{"name": name, "topic_id": topic_id} for name, topic_id in topics]
        names = [name for name, _ in topics if name is not None]
        talk.ask(ApiKey.DELETE_TOPICS, version, topics=states, topic_names=names, timeout=10_000)

    name = talk.name
    ask()
    ask((name("a"), None))
    ask((name("a"), None))
    ask((name("none"), None), (name("b"), None))
    ask((name("c"), None), (name("c"), None))
    ask(("", None), ("..", None))
    if version >= 6:
        ask((None, ids["d"]))
        ask((None, ids["d"]))
        ask((None, NOBODY))
        ask((None, ids["e"]), (None, ids["e"]))
        ask((name("f"), None), (None, ids["f"]))
        ask((name("g"), ids["g"]))
        ask((name("g"), ids["h"]), (name("h"), None))
        ask((None, None))
        ask((None, None), (name("h"), None))
    talk.settle()
    talk.ask(
        ApiKey.METADATA,
        9,
        topics=[{"name": name(letter)} for letter in "abcdefgh"],
        allow_auto_topic_creation=False,
    )


def create_partitions(talk: Talk, version: int) -> None:
    talk.topic("one"), talk.topic("two", 2), talk.topic("six", 1)

    def ask(*topics: Any, validate_only: bool = False) -> None:
        asked = [
            {
                "name": topic,
                "count": count,
                "assignments": None
                if brokers is None
                else [{"broker_ids": one} for one in brokers],
            }
            for topic, count, brokers in topics
        ]
        talk.ask(
            ApiKey.CREATE_PARTITIONS,
            version,
            topics=asked,
            timeout=10_000,
            validate_only=validate_only,
        )

    one, two, six = talk.name("one"), talk.name("two"), talk.name("six")
    ask()
    ask((one, 3, None), validate_only=True)
    ask((one, 2, None))
    for count in (2, 1, 0, -1, 10_001):
        ask((one, count, None), validate_only=count > 10_000)
    ask((talk.name("none"), 2, None), (one, 3, None))
    ask((two, 3, None), (two, 4, None))
    ask((two, 3, None), (two, 3, None), (six, 2, None))
    for brokers in ([], [[1], [1]], [[]], [[2]], [[1, 1]], [[-1]], [[1, 2]], [[1]]):
        ask((two, 4, brokers))
    ask((two, 6, [[1], [1]]))
    ask(("", 2, None), ("bad name", 2, None))
    talk.settle()
    topics = [{"name": name} for name in (one, two, six)]
    talk.ask(ApiKey.METADATA, 9, topics=topics, allow_auto_topic_creation=False)


def describe_configs(talk: Talk, version: int) -> None:
    talk.topic("plain", 1, {"retention.ms": "5000", "cleanup.policy": "compact"})

    def keep(answer: Any) -> Any:
        left_out = PLACES | TOLD_APART
        return tuple(
            (
                one.error_code,
                one.resource_type,
                one.resource_name,
                tuple(config for config in one.configs if config.name not in left_out),
            )
            for one in answer.results
            if one.resource_type != BROKER_LOGGER or one.error_code
        )

    def ask(*resources: tuple[int, str, list[str] | None], **more: Any) -> None:
        talk.ask_filtered(
            keep,
            ApiKey.DESCRIBE_CONFIGS,
            version,
            resources=[
                {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
                for kind, name, keys in resources
            ],
            **more,
        )

    topic = talk.name("plain")
    ask()
    for synonyms in (False, True):
        ask((TOPIC, topic, None), include_synonyms=synonyms)
        ask((BROKER, "1", None), include_synonyms=synonyms)
    ask((BROKER, "", None), include_synonyms=True)
    ask((TOPIC, topic, ["retention.ms", "no.such.key", "retention.ms"]))
    ask((TOPIC, topic, []))
    ask((BROKER, "1", ["log.retention.ms", "node.id", "nope"]), include_synonyms=True)
    ask((BROKER_LOGGER, "1", ["root"]), (BROKER_LOGGER, "1", ["no.such.logger"]))
    ask((BROKER_LOGGER, "2", ["root"]), (BROKER_LOGGER, "", []), (BROKER_LOGGER, "x", []))
    ask((TOPIC, talk.name("none"), None), (TOPIC, "", None), (TOPIC, "bad name", None))
    ask((BROKER, "2", None), (BROKER, "x", None), (BROKER, "-1", None))
    for kind in (0, 1, 3, 5, 64, -1):
        ask((kind, "x", None))
    ask((GROUP, "some-group", None), (GROUP, "", None), include_synonyms=True)
    ask((CLIENT_METRICS, "none", None), (CLIENT_METRICS, "", None), include_synonyms=True)
    ask((TOPIC, topic, ["retention.ms"]), (TOPIC, topic, ["cleanup.policy"]))


def alter_configs(talk: Talk, version: int) -> None:
    _alter_configs(talk, version, incremental=False)


def alter_configs_incrementally(talk: Talk, version: int) -> None:
    _alter_configs(talk, version, incremental=True)


def _alter_configs(talk: Talk, version: int, *, incremental: bool) -> None:
    talk.topic("t", 1, {"retention.ms": "5000", "cleanup.policy": "compact"})
    key = ApiKey.INCREMENTAL_ALTER_CONFIGS if incremental else ApiKey.ALTER_CONFIGS

    def ask(*resources: Any, validate_only: bool = False) -> None:
        asked = []
        for kind, name, configs in resources:
            entries = [
                {
                    "name": config[0],
                    "value": config[1],
                    "config_operation": config[2] if len(config) > 2 else SET,
                }
                for config in configs
            ]
            asked.append({"resource_type": kind, "resource_name": name, "configs": entries})
        talk.ask(key, version, resources=asked, validate_only=validate_only)

    def look() -> None:
        talk.settle()
        resources = [{"resource_type": TOPIC, "resource_name": topic, "configuration_keys": None}]
        talk.ask_filtered(
            lambda answer: tuple(
                (config.name, config.value)
                for config in answer.results[0].configs
                if config.config_source == 1
            ),
            ApiKey.DESCRIBE_CONFIGS,
            4,
            resources=resources,
        )

    topic, none = talk.name("t"), talk.name("none")
    ask()
    ask((TOPIC, topic, [("retention.ms", "7000")]), validate_only=True)
    look()
    ask((TOPIC, topic, [("retention.ms", "7000")]))
    look()
    values: list[tuple[str, str | None]] = [
        ("retention.ms", None),
        ("retention.ms", "x"),
        ("retention.ms", ""),
        ("retention.ms", "-5"),
        ("no.such.key", "1"),
        ("", "1"),
        ("cleanup.policy", "x"),
        ("min.insync.replicas", "9"),
        ("remote.storage.enable", "true"),
        ("segment.bytes", "1"),
    ]
    for name, value in values:
        ask((TOPIC, topic, [(name, value)]))
    ask((TOPIC, topic, [("retention.ms", "1"), ("retention.ms", "2")]))
    ask((TOPIC, topic, []))
    look()
    if incremental:  # to AlterConfigs, Kafka 4.3.1 never answers
        ask((TOPIC, topic, [("retention.ms", "1")]), (TOPIC, topic, [("retention.ms", "2")]))
    ask((TOPIC, none, [("retention.ms", "1")]), (TOPIC, topic, [("retention.ms", "9")]))
    ask((TOPIC, "", [("retention.ms", "1")]), (TOPIC, "bad name", [("retention.ms", "1")]))
    look()
    _alter_brokers(ask)
    for kind in (0, 1, 3, 64, -1):
        ask((kind, "x", [("a", "b")]))
    ask((CLIENT_METRICS, talk.name("m"), [("interval.ms", "5000"), ("metrics", "a")]))
    ask((CLIENT_METRICS, talk.name("m"), [("interval.ms", "5")]))
    ask((CLIENT_METRICS, talk.name("m"), [("nope", "5")]))
    ask((CLIENT_METRICS, "", [("interval.ms", "5000")]))
    ask((GROUP, talk.name("g"), [("consumer.session.timeout.ms", "50000")]))
    ask((GROUP, talk.name("g"), [("consumer.session.timeout.ms", "5")]))
    ask((GROUP, talk.name("g"), [("nope", "5")]))
    ask((GROUP, "", [("consumer.session.timeout.ms", "50000")]))
    if incremental:
        _operate(ask, look, topic)


def _alter_brokers(ask: Any) -> None:
    for name, configs in (
        ("1", [("node.id", "2")]),
        ("1", [("num.partitions", "3")]),
        ("1", [("no.such.key", "3")]),
        ("1", [("log.retention.ms", "x")]),
        ("1", [("log.cleaner.threads", "0")]),
        ("1", [("log.cleaner.threads", None)]),
        ("1", [("listeners", "x")]),
        ("1", [("background.threads", "1000")]),
        ("", [("advertised.listeners", "PLAINTEXT://x:1")]),
        ("", [("log.cleaner.threads", "1"), ("log.cleaner.threads", "2")]),
        ("2", [("log.cleaner.threads", "1")]),
        ("x", [("log.cleaner.threads", "1")]),
        ("-1", [("log.cleaner.threads", "1")]),
    ):
        ask((BROKER, name, configs), validate_only=True)
    ask((BROKER_LOGGER, "1", [("root", "INFO")]), validate_only=True)
    ask((BROKER_LOGGER, "1", [("root", "LOUD")]), validate_only=True)
    ask((BROKER_LOGGER, "2", [("root", "INFO")]), validate_only=True)
    ask((BROKER_LOGGER, "", [("root", "INFO")]), validate_only=True)
    ask((BROKER_LOGGER, "1", [("no.such.logger", "INFO")]), validate_only=True)


def _operate(ask: Any, look: Any, topic: str) -> None:
    policy, throttled = "cleanup.policy", "leader.replication.throttled.replicas"
    for changes in (
        [("retention.ms", None, DELETE)],
        [("retention.ms", "5", DELETE)],
        [("no.such.key", None, DELETE)],
        [(policy, "compact", SET)],
        [(policy, "delete", APPEND)],
        [(policy, "delete", APPEND)],
        [(policy, "compact", SUBTRACT)],
        [(policy, "nonsense", SUBTRACT)],
        [(policy, "nonsense", APPEND)],
        [(policy, None, APPEND)],
        [(policy, None, SUBTRACT)],
        [(policy, "delete", SUBTRACT)],
        [("retention.ms", "5", APPEND)],
        [("retention.ms", "5", SUBTRACT)],
        [("no.such.key", "5", APPEND)],
        [(throttled, "0:1", APPEND)],
        [(throttled, "0:1,1:1", APPEND)],
        [(throttled, "0:1,7:7", SUBTRACT)],
        [("retention.ms", "5", SET), ("retention.ms", None, DELETE)],
    ):
        ask((TOPIC, topic, changes))
        look()
    ask((BROKER_LOGGER, "1", [("root", None, DELETE)]), validate_only=True)
    ask((BROKER_LOGGER, "1", [("root", "INFO", APPEND)]), validate_only=True)


def describe_cluster(talk: Talk, version: int) -> None:
    for operations in (False, True):
        for endpoint in (1, 2, 0, 3):
            for fenced in (False, True):
                talk.ask(
                    ApiKey.DESCRIBE_CLUSTER,
                    version,
                    include_cluster_authorized_operations=operations,
                    endpoint_type=endpoint,
                    include_fenced_brokers=fenced,
                )
                if version < 2:
                    break
            if version < 1:
                break


def describe_log_dirs(talk: Talk, version: int) -> None:
    talk.topic("one", 2)
    one = talk.name("one")

    def keep(answer: Any) -> Any:
        return (
            getattr(answer, "error_code", 0),
            tuple(
                (one.error_code, tuple(t for t in one.topics if t.name == talk.name("one")))
                for one in answer.results
            ),
        )

    for topics in (
        None,
        [],
        [{"topic": one, "partitions": [0, 1]}],
        [{"topic": one, "partitions": [0, 9]}],
        [{"topic": one, "partitions": []}],
        [{"topic": talk.name("none"), "partitions": [0]}],
        [{"topic": one, "partitions": [0]}, {"topic": one, "partitions": [1]}],
    ):
        talk.ask_filtered(keep, ApiKey.DESCRIBE_LOG_DIRS, version, topics=topics)


def describe_topic_partitions(talk: Talk, version: int) -> None:
    talk.topic("a", 3), talk.topic("b", 2), talk.topic("c", 1)
    talk.settle()
    a, b, c, none = (talk.name(name) for name in ("a", "b", "c", "none"))

    def ask(names: list[str], limit: int, cursor: tuple[str, int] | None = None) -> None:
        place = None
        if cursor is not None:
            place = {"topic_name": cursor[0], "partition_index": cursor[1]}
        talk.ask(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            version,
            topics=[{"name": name} for name in names],
            response_partition_limit=limit,
            cursor=place,
        )

    for limit in (2000, 3, 4, 2, 1, 0, -1, 6, 5000):
        ask([a, b, c], limit)
    ask([c, a, b], 4)
    ask([a, none, b], 2000)
    ask([none], 2000)
    ask(["bad name", a], 2000)
    ask([a, a], 2000)
    for place in ((a, 1), (a, 3), (a, 9), (b, 0), (c, 0), (none, 0), (a, -1), ("zzz", 0)):
        ask([a, b, c], 2, place)
        ask([a, b, c, none], 2000, place)


def list_config_resources(talk: Talk, version: int) -> None:
    talk.topic("listed", 1, {"retention.ms": "5000"})
    metrics = talk.name("metrics")
    configs = [{"name": "interval.ms", "value": "5000", "config_operation": SET}]
    resource = {"resource_type": CLIENT_METRICS, "resource_name": metrics, "configs": configs}
    talk.quietly(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
    talk.settle()
    mine = (metrics, talk.name("listed"))

    def keep(answer: Any) -> Any:
        kept = tuple(
            one
            for one in answer.config_resources
            if one.resource_name in mine or getattr(one, "resource_type", 0) in (4, 8)
        )
        return (answer.error_code, kept)

    for kinds in ([], [TOPIC], [CLIENT_METRICS], [BROKER], [BROKER_LOGGER], [GROUP]):
        talk.ask_filtered(keep, ApiKey.LIST_CONFIG_RESOURCES, version, resource_types=kinds)
    for kinds in ([TOPIC, CLIENT_METRICS], [TOPIC, TOPIC], [0], [1], [64], [TOPIC, 99], [-1]):
        talk.ask_filtered(keep, ApiKey.LIST_CONFIG_RESOURCES, version, resource_types=kinds)


def come_from_the_future(talk: Talk) -> None:
    """An ApiVersions request of a version to come is answered in version 0."""
    for version in (5, 99):
        header = b"\0\x12" + version.to_bytes(2, "big") + b"\0\0\0\7\0\4wire\0"
        talk.send_bytes(header + b"\5wire\0041.0\0", ApiKey.API_VERSIONS, 0)


def describe_listeners(talk: Talk) -> None:
    _describe_broker_key(talk, "listener.security.protocol.map")


def describe_receive_buffer(talk: Talk) -> None:
    _describe_broker_key(talk, "socket.receive.buffer.bytes")


def describe_send_buffer(talk: Talk) -> None:
    _describe_broker_key(talk, "socket.send.buffer.bytes")


def _describe_broker_key(talk: Talk, key: str) -> None:
    resource = {"resource_type": BROKER, "resource_name": "1", "configuration_keys": [key]}
    talk.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource])


def ask_for_a_topic_that_is_made(talk: Talk) -> None:
    topics = [{"name": talk.name("made")}]
    talk.ask(ApiKey.METADATA, 9, topics=topics, allow_auto_topic_creation=True)


def ask_for_nothing(talk: Talk) -> None:
    """Topics without a name, and names without a letter."""
    topics: list[Any] = [{"name": None, "topic_id": None}]
    talk.ask(ApiKey.METADATA, 13, topics=topics, allow_auto_topic_creation=False)
    talk.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[{"name": ""}], response_partition_limit=9)


def create_topics_that_collide(talk: Talk) -> None:
    topics = [creatable(talk.name("pair.1")), creatable(talk.name("pair_1"))]
    talk.ask_filtered(
        lambda answer: tuple((one.name, one.error_code) for one in answer.topics),
        ApiKey.CREATE_TOPICS,
        7,
        topics=topics,
        timeout=10_000,
    )


def operate_in_an_unknown_way(talk: Talk) -> None:
    talk.topic("operated")
    for operation in (4, -1):
        config = {"name": "retention.ms", "value": "5", "config_operation": operation}
        resource = {
            "resource_type": TOPIC,
            "resource_name": talk.name("operated"),
            "configs": [config],
        }
        talk.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)


def change_what_holds_for_all(talk: Talk) -> None:
    """Settings of this broker and of all shine through in what a topic has."""
    talk.topic("shone-on")
    keys = ["retention.ms", "segment.bytes", "compression.type", "min.insync.replicas"]
    of_brokers = ["log.retention.ms", "log.segment.bytes", "compression.type"]

    def look() -> None:
        talk.settle()
        for kind, name, names in (
            (TOPIC, talk.name("shone-on"), keys),
            (BROKER, "1", of_brokers),
            (BROKER, "", None),
        ):
            resource = {"resource_type": kind, "resource_name": name, "configuration_keys": names}
            talk.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource], include_synonyms=True)

    def change(broker: str, *configs: tuple[str, str | None, int]) -> None:
        changes = [
            {"name": name, "value": value, "config_operation": operation}
            for name, value, operation in configs
        ]
        resource = {"resource_type": BROKER, "resource_name": broker, "configs": changes}
        talk.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
        look()

    look()
    change("", ("log.retention.ms", "777777", SET), ("compression.type", "zstd", SET))
    change("1", ("log.retention.ms", "888888", SET), ("log.segment.bytes", "20000000", SET))
    change("1", ("min.insync.replicas", "2", SET))
    change("", ("compression.type", None, DELETE), ("log.retention.ms", None, DELETE))
    change("1", ("log.retention.ms", None, DELETE), ("log.segment.bytes", None, DELETE))


def touch_internal_topics(talk: Talk) -> None:
    talk.ask(ApiKey.CREATE_TOPICS, 7, topics=[creatable("__cluster_metadata")], timeout=10_000)
    talk.ask(
        ApiKey.DELETE_TOPICS,
        6,
        topics=[{"name": "__cluster_metadata", "topic_id": None}],
        timeout=10_000,
    )
    partitions = [{"name": "__cluster_metadata", "count": 2, "assignments": None}]
    talk.ask(ApiKey.CREATE_PARTITIONS, 3, topics=partitions, timeout=10_000)
    topics: list[Any] = [{"name": "__cluster_metadata", "topic_id": None}]
    for may_create in (False, True):
        talk.ask(ApiKey.METADATA, 12, topics=topics, allow_auto_topic_creation=may_create)
    resource: dict[str, Any] = {
        "resource_type": TOPIC,
        "resource_name": "__cluster_metadata",
        "configuration_keys": None,
    }
    talk.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource])
