"""Keys of threads, quotas, policies, metrics and plugins. Pure data."""

from typing import Final

from ottla.config.definitions import Between, ConfigKey, Elements
from ottla.config.key_builders import (
    CLUSTER_WIDE,
    HIGH,
    LOW,
    class_name,
    integer,
    listing,
    long,
    string,
)

OPERATIONS_KEYS: Final[tuple[ConfigKey, ...]] = (
    class_name(
        "alter.config.policy.class.name",
        None,
        LOW,
        "The class that may refuse changes of configurations.",
    ),
    integer(
        "alter.log.dirs.replication.quota.window.num",
        11,
        LOW,
        "How many samples the quota of moves between log directories looks back on.",
        validator=Between(1),
    ),
    integer(
        "alter.log.dirs.replication.quota.window.size.seconds",
        1,
        LOW,
        "How long each sample of the quota of moves between log directories lasts.",
        validator=Between(1),
    ),
    integer(
        "background.threads",
        10,
        HIGH,
        "How many threads do blocking background work, such as syncs.",
        validator=Between(1),
        update_mode=CLUSTER_WIDE,
        used=True,
    ),
    class_name(
        "client.quota.callback.class",
        None,
        LOW,
        "The class that decides which quota a request counts against.",
    ),
    listing(
        "config.providers",
        (),
        LOW,
        "The aliases of classes that fill placeholders in configurations.",
        validator=Elements(),
        update_mode=CLUSTER_WIDE,
    ),
    integer(
        "controller.quota.window.num",
        11,
        LOW,
        "How many samples the quota of metadata changes looks back on.",
        validator=Between(1),
    ),
    integer(
        "controller.quota.window.size.seconds",
        1,
        LOW,
        "How long each sample of the quota of metadata changes lasts.",
        validator=Between(1),
    ),
    class_name(
        "create.topic.policy.class.name", None, LOW, "The class that may refuse new topics."
    ),
    integer(
        "kafka.metrics.polling.interval.secs",
        10,
        LOW,
        "How often the reporters of Yammer metrics run.",
        validator=Between(1),
    ),
    listing(
        "kafka.metrics.reporters",
        (),
        LOW,
        "The classes that report Yammer metrics.",
        validator=Elements(),
    ),
    listing(
        "metric.reporters",
        ("org.apache.kafka.common.metrics.JmxReporter",),
        LOW,
        "The classes that report metrics.",
        validator=Elements(),
        update_mode=CLUSTER_WIDE,
    ),
    integer(
        "metrics.num.samples",
        2,
        LOW,
        "How many samples a metric looks back on.",
        validator=Between(1),
    ),
    string(
        "metrics.recording.level", "INFO", LOW, "The level of detail at which metrics are recorded."
    ),
    long(
        "metrics.sample.window.ms",
        30_000,
        LOW,
        "How long each sample of a metric lasts.",
        validator=Between(1),
    ),
    integer(
        "quota.window.num",
        11,
        LOW,
        "How many samples the quotas of clients look back on.",
        validator=Between(1),
    ),
    integer(
        "quota.window.size.seconds",
        1,
        LOW,
        "How long each sample of the quotas of clients lasts.",
        validator=Between(1),
    ),
    integer(
        "replication.quota.window.num",
        11,
        LOW,
        "How many samples the quota of replication looks back on.",
        validator=Between(1),
    ),
    integer(
        "replication.quota.window.size.seconds",
        1,
        LOW,
        "How long each sample of the quota of replication lasts.",
        validator=Between(1),
    ),
    integer(
        "telemetry.max.bytes",
        1_048_576,
        LOW,
        "The largest push of metrics that a client may send.",
        validator=Between(1),
    ),
)
