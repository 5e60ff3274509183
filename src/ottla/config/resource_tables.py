"""The configs of groups and of client metrics subscriptions, and broker keys that are only
ever set at run time. Pure data, as Apache Kafka 4.3.1 has it.
"""

from typing import Final

from ottla.config.definitions import (
    LONG_MAX,
    Between,
    ConfigTable,
    Elements,
    OffsetReset,
    OneOf,
)
from ottla.config.key_builders import (
    CLUSTER_WIDE,
    MEDIUM,
    boolean,
    integer,
    listing,
    long,
    string,
)

GROUP_TABLE: Final = ConfigTable.of(
    "group configs",
    (
        integer(
            "consumer.assignment.interval.ms",
            1000,
            MEDIUM,
            "The least time between two assignments of this consumer group.",
            validator=Between(0),
            synonyms=("group.consumer.assignment.interval.ms",),
            used=True,
        ),
        integer(
            "consumer.heartbeat.interval.ms",
            5000,
            MEDIUM,
            "How often a member of this consumer group is told to send a heartbeat.",
            validator=Between(1),
            synonyms=("group.consumer.heartbeat.interval.ms",),
            used=True,
        ),
        integer(
            "consumer.session.timeout.ms",
            45_000,
            MEDIUM,
            "After how long without a heartbeat a member of this consumer group is removed.",
            validator=Between(1),
            synonyms=("group.consumer.session.timeout.ms",),
            used=True,
        ),
        integer(
            "share.assignment.interval.ms",
            1000,
            MEDIUM,
            "The least time between two assignments of this share group.",
            validator=Between(0),
            synonyms=("group.share.assignment.interval.ms",),
        ),
        string(
            "share.auto.offset.reset",
            "latest",
            MEDIUM,
            "Where a share group begins to read that has read nothing yet.",
            validator=OffsetReset(),
        ),
        integer(
            "share.delivery.count.limit",
            5,
            MEDIUM,
            "How often a record is delivered to this share group before it is given up.",
            validator=Between(2),
            synonyms=("group.share.delivery.count.limit",),
        ),
        integer(
            "share.heartbeat.interval.ms",
            5000,
            MEDIUM,
            "How often a member of this share group is told to send a heartbeat.",
            validator=Between(1),
            synonyms=("group.share.heartbeat.interval.ms",),
        ),
        string(
            "share.isolation.level",
            "read_uncommitted",
            MEDIUM,
            "Whether this share group reads records of transactions that are not committed.",
            validator=OneOf(("read_committed", "read_uncommitted")),
        ),
        integer(
            "share.partition.max.record.locks",
            2000,
            MEDIUM,
            "How many records of a partition may be out for delivery to this group.",
            validator=Between(100),
            synonyms=("group.share.partition.max.record.locks",),
        ),
        integer(
            "share.record.lock.duration.ms",
            30_000,
            MEDIUM,
            "How long a member of this share group may hold a record before others get it.",
            validator=Between(1000),
            synonyms=("group.share.record.lock.duration.ms",),
        ),
        boolean(
            "share.renew.acknowledge.enable",
            True,
            MEDIUM,
            "Whether members of this share group may prolong their hold on a record.",
        ),
        integer(
            "share.session.timeout.ms",
            45_000,
            MEDIUM,
            "After how long without a heartbeat a member of this share group is removed.",
            validator=Between(1),
            synonyms=("group.share.session.timeout.ms",),
        ),
        integer(
            "streams.assignment.interval.ms",
            1000,
            MEDIUM,
            "The least time between two assignments of this streams group.",
            validator=Between(0),
            synonyms=("group.streams.assignment.interval.ms",),
        ),
        integer(
            "streams.heartbeat.interval.ms",
            5000,
            MEDIUM,
            "How often a member of this streams group is told to send a heartbeat.",
            validator=Between(1),
            synonyms=("group.streams.heartbeat.interval.ms",),
        ),
        integer(
            "streams.initial.rebalance.delay.ms",
            3000,
            MEDIUM,
            "How long this streams group waits for members before its first assignment.",
            validator=Between(0),
            synonyms=("group.streams.initial.rebalance.delay.ms",),
        ),
        integer(
            "streams.num.standby.replicas",
            0,
            MEDIUM,
            "How many standby copies each task of this streams group has.",
            validator=Between(0),
            synonyms=("group.streams.num.standby.replicas",),
        ),
        integer(
            "streams.session.timeout.ms",
            45_000,
            MEDIUM,
            "After how long without a heartbeat a member of this streams group is removed.",
            validator=Between(1),
            synonyms=("group.streams.session.timeout.ms",),
        ),
    ),
)

CLIENT_METRICS_TABLE: Final = ConfigTable.of(
    "client metrics configs",
    (
        integer(
            "interval.ms",
            300_000,
            MEDIUM,
            "How often the clients of this subscription send their metrics.",
        ),
        listing(
            "match",
            (),
            MEDIUM,
            "Which clients send, as name=pattern; none given is all of them.",
            validator=Elements(),
        ),
        listing(
            "metrics",
            (),
            MEDIUM,
            "The prefixes of the names of metrics to send; `*` is all of them.",
            validator=Elements(),
        ),
    ),
)

# These have no place in server.properties; replication throttles during a reassignment set them.
THROTTLE_TABLE: Final = ConfigTable.of(
    "throttles",
    (
        long(
            name,
            LONG_MAX,
            MEDIUM,
            documentation,
            validator=Between(0),
            update_mode=CLUSTER_WIDE,
        )
        for name, documentation in (
            (
                "follower.replication.throttled.rate",
                "The most bytes that throttled replicas fetch in a second on the follower.",
            ),
            (
                "leader.replication.throttled.rate",
                "The most bytes that throttled replicas fetch in a second from the leader.",
            ),
            (
                "replica.alter.log.dirs.io.max.bytes.per.second",
                "The most bytes that move between log directories in a second.",
            ),
        )
    ),
)
