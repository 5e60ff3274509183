"""What an administrator says about the cluster itself: leaders, places, features, brokers."""

from typing import Any

from ottla.protocol.api import ApiKey
from support.conversations import Talk

PREFERRED, UNCLEAN = 0, 1
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def elect_leaders(talk: Talk, version: int) -> None:
    name, none = talk.name("led"), talk.name("none")
    talk.topic("led", 2)
    talk.settle()

    def ask(election: int, *topics: tuple[str, list[int]]) -> None:
        talk.ask(
            ApiKey.ELECT_LEADERS,
            version,
            election_type=election,
            topic_partitions=[{"topic": topic, "partitions": wanted} for topic, wanted in topics],
            timeout_ms=5000,
        )

    elections = (PREFERRED, UNCLEAN, 5, -1) if version >= 1 else (PREFERRED,)
    for election in elections:
        ask(election, (name, [0, 1]))
        ask(election, (name, [0, 7, -1]), (none, [0]))
        ask(election, (name, [0, 0]), (name, [1]))
        ask(election, (name, []))
        ask(election)

    def keep(answer: Any) -> Any:
        mine = tuple(one for one in answer.replica_election_results if one.topic == name)
        return (getattr(answer, "error_code", None), mine)

    talk.ask_filtered(keep, ApiKey.ELECT_LEADERS, version, topic_partitions=None, timeout_ms=5000)


def alter_reassignments(talk: Talk, version: int) -> None:
    name, none = talk.name("moved"), talk.name("none")
    talk.topic("moved", 2)
    talk.settle()

    def ask(*topics: tuple[str, dict[int, list[int] | None]], may_resize: bool = True) -> None:
        talk.ask(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            version,
            allow_replication_factor_change=may_resize,
            topics=[
                {
                    "name": topic,
                    "partitions": [
                        {"partition_index": index, "replicas": replicas}
                        for index, replicas in wanted.items()
                    ],
                }
                for topic, wanted in topics
            ],
            timeout_ms=5000,
        )

    for may_resize in (True, False):
        for replicas in ([1], [2], [1, 1], [], None, [1, 2], [-1]):
            ask((name, {0: replicas}), may_resize=may_resize)
    ask((name, {0: [1], 1: [1]}), (none, {0: [1], 1: None}))
    ask((name, {9: [1]}), (name, {0: None}))
    ask()


def list_reassignments(talk: Talk, version: int) -> None:
    talk.topic("still", 2)
    talk.settle()
    for topics in (
        None,
        [],
        [{"name": talk.name("still"), "partition_indexes": [0, 9]}],
        [{"name": talk.name("none"), "partition_indexes": [0]}],
    ):
        talk.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, version, topics=topics, timeout_ms=5000)


def update_features(talk: Talk, version: int) -> None:
    """Leaves every feature as it was."""

    def ask(*updates: tuple[str, int, int], only: bool = False) -> None:
        talk.ask(
            ApiKey.UPDATE_FEATURES,
            version,
            timeout=5000,
            validate_only=only,
            feature_updates=[
                {"feature": name, "max_version_level": level, "upgrade_type": kind}
                for name, level, kind in updates
            ],
        )

    for only in (True, False):
        for update in (
            ("group.version", 1, UPGRADE),
            ("group.version", 0, UPGRADE),
            ("group.version", 9, UPGRADE),
            ("nope", 1, UPGRADE),
            ("nope", 0, SAFE_DOWNGRADE),
            ("metadata.version", 30, UPGRADE),
            ("metadata.version", 29, SAFE_DOWNGRADE),
            ("metadata.version", 29, UNSAFE_DOWNGRADE),
            ("metadata.version", 3, UNSAFE_DOWNGRADE),
            ("metadata.version", 0, UNSAFE_DOWNGRADE),
            ("metadata.version", 99, UPGRADE),
            ("kraft.version", 1, UPGRADE),
            ("kraft.version", 0, SAFE_DOWNGRADE),
            ("kraft.version", 2, UPGRADE),
            ("transaction.version", -1, UPGRADE),
            ("transaction.version", 0, 0),
            ("transaction.version", 0, 7),
        ):
            ask(update, only=only)
        if version >= 1:  # before that nothing can go down
            for name, low, high in (
                ("share.version", 0, 1),
                ("transaction.version", 1, 2),
                ("eligible.leader.replicas.version", 0, 1),
            ):
                ask((name, low, SAFE_DOWNGRADE), only=only)
                ask((name, high, UPGRADE), only=only)
    ask(("share.version", 0, SAFE_DOWNGRADE), ("nope", 1, UPGRADE))
    ask(("share.version", 0, SAFE_DOWNGRADE), ("share.version", 1, UPGRADE))
    ask()

    def keep(answer: Any) -> Any:
        return {one.name: one for one in answer.finalized_features}

    software = {"client_software_name": "wire", "client_software_version": "1"}
    talk.ask_filtered(keep, ApiKey.API_VERSIONS, 4, **software)


def unregister_strangers(talk: Talk, version: int) -> None:
    for broker_id in (7, -1):
        talk.ask(ApiKey.UNREGISTER_BROKER, version, broker_id=broker_id)
