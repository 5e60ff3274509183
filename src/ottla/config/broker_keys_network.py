"""Keys of listeners and connections. Pure data."""

from typing import Final

from ottla.config.definitions import INT_MAX, Between, ConfigKey, Elements, OneOf
from ottla.config.key_builders import (
    CLUSTER_WIDE,
    HIGH,
    LOW,
    MEDIUM,
    PER_BROKER,
    integer,
    listing,
    long,
    string,
)

NETWORK_KEYS: Final[tuple[ConfigKey, ...]] = (
    listing(
        "advertised.listeners",
        None,
        HIGH,
        (
            "The addresses that clients and other brokers are told to use; unset advertises "
            "`listeners`."
        ),
        validator=Elements(may_be_empty=False),
        used=True,
    ),
    integer(
        "connection.failed.authentication.delay.ms",
        100,
        LOW,
        "How long a refused login waits for its answer, which slows down guessing.",
        validator=Between(0),
    ),
    long(
        "connections.max.idle.ms",
        600_000,
        MEDIUM,
        "After how long without a request a connection is closed.",
        used=True,
    ),
    long(
        "connections.max.reauth.ms",
        0,
        MEDIUM,
        ("How long a SASL session lasts before the client must authenticate again; 0 is for ever."),
    ),
    listing(
        "early.start.listeners",
        None,
        HIGH,
        "Listeners that open before the authorizer is ready.",
        validator=Elements(),
    ),
    integer(
        "fetch.max.bytes",
        57_671_680,
        MEDIUM,
        (
            "The most bytes that one Fetch response carries; its first batch is sent whole in "
            "any case."
        ),
        validator=Between(1024),
        used=True,
    ),
    integer(
        "fetch.purgatory.purge.interval.requests",
        1000,
        MEDIUM,
        "After how many finished Fetch requests the waiting list is tidied.",
    ),
    string(
        "inter.broker.listener.name",
        None,
        MEDIUM,
        "The listener through which brokers reach each other.",
        used=True,
    ),
    string(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        LOW,
        "Which security protocol each listener name stands for; Ottla has PLAINTEXT only.",
        update_mode=PER_BROKER,
        used=True,
    ),
    listing(
        "listeners",
        ("PLAINTEXT://:9092",),
        HIGH,
        "The addresses to listen on, as NAME://host:port; an empty host is every interface.",
        validator=Elements(may_be_empty=False),
        update_mode=PER_BROKER,
        used=True,
    ),
    integer(
        "max.connection.creation.rate",
        INT_MAX,
        MEDIUM,
        "How many connections may be opened in a second.",
        validator=Between(0),
        update_mode=CLUSTER_WIDE,
        used=True,
    ),
    integer(
        "max.connections",
        INT_MAX,
        MEDIUM,
        "How many connections the broker holds at once.",
        validator=Between(0),
        update_mode=CLUSTER_WIDE,
        used=True,
    ),
    integer(
        "max.connections.per.ip",
        INT_MAX,
        MEDIUM,
        "How many connections one address may hold at once.",
        validator=Between(0),
        update_mode=CLUSTER_WIDE,
        used=True,
    ),
    string(
        "max.connections.per.ip.overrides",
        "",
        MEDIUM,
        "Other limits than max.connections.per.ip for some hosts, as host:number pairs.",
        update_mode=CLUSTER_WIDE,
        used=True,
    ),
    integer(
        "max.incremental.fetch.session.cache.slots",
        1000,
        MEDIUM,
        "How many incremental fetch sessions are remembered.",
        validator=Between(0),
        used=True,
    ),
    integer(
        "max.request.partition.size.limit",
        2000,
        MEDIUM,
        "How many partitions one DescribeTopicPartitions response describes at most.",
        validator=Between(1),
        used=True,
    ),
    integer(
        "num.io.threads",
        8,
        HIGH,
        (
            "How many threads Kafka gives to the handling of requests; Ottla handles them on "
            "its event loop."
        ),
        validator=Between(1),
        update_mode=CLUSTER_WIDE,
    ),
    integer(
        "num.network.threads",
        3,
        HIGH,
        (
            "How many threads Kafka gives to each listener's sockets; Ottla serves them on "
            "its event loop."
        ),
        validator=Between(1),
        update_mode=CLUSTER_WIDE,
    ),
    long(
        "queued.max.request.bytes",
        -1,
        MEDIUM,
        "Bytes of waiting requests at which no more are read; -1 is no limit.",
        used=True,
    ),
    integer(
        "queued.max.requests",
        500,
        HIGH,
        "How many requests may wait before no more are read from the network.",
        validator=Between(1),
    ),
    integer(
        "request.timeout.ms",
        30_000,
        HIGH,
        "How long a request between brokers may take.",
        used=True,
    ),
    string(
        "security.inter.broker.protocol",
        "PLAINTEXT",
        MEDIUM,
        (
            "The security protocol between brokers, for clusters that do not name the "
            "listener instead."
        ),
        validator=OneOf(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
        used=True,
    ),
    long(
        "socket.connection.setup.timeout.max.ms",
        30_000,
        MEDIUM,
        "The longest time that opening a connection may take after repeated failures.",
    ),
    long(
        "socket.connection.setup.timeout.ms",
        10_000,
        MEDIUM,
        "The time that the first attempt to open a connection may take.",
    ),
    integer(
        "socket.listen.backlog.size",
        50,
        MEDIUM,
        "How many connections may wait to be accepted.",
        validator=Between(1),
        used=True,
    ),
    integer(
        "socket.receive.buffer.bytes",
        # Not Apache Kafka's 102,400: large requests would come in many small turns (ADR 9).
        -1,
        HIGH,
        "The kernel's receive buffer of each connection; -1 leaves it to the system.",
        used=True,
    ),
    integer(
        "socket.request.max.bytes",
        104_857_600,
        HIGH,
        "The largest request that is read; a larger one closes its connection.",
        validator=Between(1),
        used=True,
    ),
    integer(
        "socket.send.buffer.bytes",
        # Twice Apache Kafka's, so that a consumer's next fetch is sent in fewer turns (ADR 9).
        212_992,
        HIGH,
        "The kernel's send buffer of each connection; -1 leaves it to the system.",
        used=True,
    ),
)
