"""Why does a broker key that Kafka knows have no effect here? Pure data.

A key is named once, or by the beginning that it shares with others.
"""

from types import MappingProxyType
from typing import Final

ONE_BROKER: Final = "there is one broker"
SECURITY: Final = "no TLS, SASL, ACLs or delegation tokens yet"
QUOTAS: Final = "no quotas yet"
TIERING: Final = "no tiered storage yet"
SHARE_GROUPS: Final = "no share groups yet"
STREAMS_GROUPS: Final = "no streams groups yet"
DIRECTORY_MOVES: Final = "no moves between log directories yet"
TELEMETRY: Final = "no client telemetry yet"
NOT_YET: Final = "not yet"
JVM: Final = "a thread, queue, plugin or metric of Kafka's JVM"
RELEASED: Final = "every level that Ottla has is released"

_REASONS: Final = MappingProxyType(
    {
        ONE_BROKER: (
            "auto.leader.rebalance.enable",
            "broker.heartbeat.interval.ms",
            "broker.session.timeout.ms",
            "controller.quorum.",
            "controller.socket.timeout.ms",
            "initial.broker.registration.timeout.ms",
            "internal.metadata.delete.delay.millis",
            "leader.imbalance.check.interval.seconds",
            "metadata.max.idle.interval.ms",
            "num.replica.fetchers",
            "replica.",
            "replication.quota.",
            "socket.connection.setup.",
            "unclean.leader.election.interval.ms",
        ),
        SECURITY: (
            "authorizer.class.name",
            "connection.failed.authentication.delay.ms",
            "connections.max.reauth.ms",
            "delegation.token.",
            "early.start.listeners",
            "principal.builder.class",
            "sasl.",
            "security.providers",
            "ssl.",
        ),
        QUOTAS: (
            "client.quota.callback.class",
            "controller.quota.",
            "quota.window.",
        ),
        TIERING: ("follower.fetch.last.tiered.offset.enable", "log.local.retention.", "remote."),
        SHARE_GROUPS: ("group.share.", "share."),
        STREAMS_GROUPS: ("group.streams.",),
        DIRECTORY_MOVES: ("alter.log.dirs.", "num.replica.alter.log.dirs.threads"),
        TELEMETRY: ("telemetry.",),
        NOT_YET: ("log.preallocate", "max.connection.creation.rate", "queued.max.request.bytes"),
        JVM: (
            "alter.config.policy.class.name",
            "config.providers",
            "controller.performance.",
            "create.topic.policy.class.name",
            "delete.records.purgatory.purge.interval.requests",
            "fetch.purgatory.purge.interval.requests",
            "group.coordinator.background.threads",
            "group.coordinator.cached.buffer.max.bytes",
            "group.coordinator.threads",
            "kafka.metrics.",
            "metric.reporters",
            "metrics.",
            "num.io.threads",
            "num.network.threads",
            "num.recovery.threads.per.data.dir",
            "producer.purgatory.purge.interval.requests",
            "queued.max.requests",
        ),
        RELEASED: ("unstable.feature.versions.enable",),
    }
)


def why_not_obeyed(name: str) -> str | None:
    """The reason for one key that has no effect; None for others."""
    for reason, names in _REASONS.items():
        for given in names:
            if name == given or (given.endswith(".") and name.startswith(given)):
                return reason
    return None
