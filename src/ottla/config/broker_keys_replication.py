"""Keys of replicas, leaders and their elections. Pure data."""

from typing import Final

from ottla.config.definitions import Between, ConfigKey
from ottla.config.key_builders import CLUSTER_WIDE, HIGH, MEDIUM, boolean, integer, long, string

REPLICATION_KEYS: Final[tuple[ConfigKey, ...]] = (
    boolean(
        "auto.leader.rebalance.enable",
        True,
        HIGH,
        "Whether leadership moves back to preferred replicas by itself.",
    ),
    integer(
        "default.replication.factor",
        1,
        MEDIUM,
        "How many replicas a topic gets when its creator does not say.",
        used=True,
    ),
    long(
        "leader.imbalance.check.interval.seconds",
        300,
        HIGH,
        (
            "How often the controller looks for partitions that their preferred replica does "
            "not lead."
        ),
        validator=Between(1),
    ),
    integer(
        "min.insync.replicas",
        1,
        HIGH,
        "How many replicas must hold a write before acks=all is answered.",
        validator=Between(1),
        update_mode=CLUSTER_WIDE,
        used=True,
    ),
    integer(
        "num.replica.alter.log.dirs.threads",
        None,
        HIGH,
        "How many threads move replicas between log directories.",
    ),
    integer(
        "num.replica.fetchers",
        1,
        HIGH,
        "How many connections a follower fetches through from each leader.",
        validator=Between(1),
        update_mode=CLUSTER_WIDE,
    ),
    integer(
        "replica.fetch.backoff.ms",
        1000,
        MEDIUM,
        "How long a follower rests after a failed fetch.",
        validator=Between(0),
    ),
    integer(
        "replica.fetch.max.bytes",
        1_048_576,
        MEDIUM,
        "Bytes that a follower asks for of each partition.",
        validator=Between(0),
    ),
    integer("replica.fetch.min.bytes", 1, HIGH, "Bytes for which a follower's fetch waits."),
    integer(
        "replica.fetch.response.max.bytes",
        10_485_760,
        MEDIUM,
        "Bytes that a follower asks for in one whole fetch.",
        validator=Between(0),
    ),
    integer(
        "replica.fetch.wait.max.ms",
        500,
        HIGH,
        "How long a follower's fetch waits for new records.",
    ),
    long(
        "replica.high.watermark.checkpoint.interval.ms",
        5000,
        HIGH,
        "How often high watermarks are written down.",
        used=True,
    ),
    long(
        "replica.lag.time.max.ms",
        30_000,
        HIGH,
        "After how long behind the leader a follower leaves the in-sync replicas.",
    ),
    string(
        "replica.selector.class",
        None,
        MEDIUM,
        "The class that picks which replica a consumer reads from.",
    ),
    integer(
        "replica.socket.receive.buffer.bytes",
        65_536,
        HIGH,
        "The kernel's receive buffer of a follower's connection.",
    ),
    integer(
        "replica.socket.timeout.ms",
        30_000,
        HIGH,
        "How long a follower's request may take.",
    ),
    boolean(
        "unclean.leader.election.enable",
        False,
        HIGH,
        (
            "Whether a replica that is not in sync may lead when no other lives, at the price "
            "of lost records."
        ),
        update_mode=CLUSTER_WIDE,
        used=True,
    ),
    long(
        "unclean.leader.election.interval.ms",
        300_000,
        MEDIUM,
        "How often the controller looks for partitions to elect an unclean leader for.",
        validator=Between(1),
        internal=True,
    ),
)
