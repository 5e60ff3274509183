"""Keys of the transaction coordinator. Pure data."""

from typing import Final

from ottla.config.definitions import Between, ConfigKey
from ottla.config.key_builders import CLUSTER_WIDE, HIGH, LOW, boolean, integer, short

TRANSACTIONS_KEYS: Final[tuple[ConfigKey, ...]] = (
    integer(
        "add.partitions.to.txn.retry.backoff.max.ms",
        100,
        HIGH,
        "How long a broker goes on trying to add a partition to a transaction for a producer.",
        validator=Between(0),
        used=True,
    ),
    integer(
        "add.partitions.to.txn.retry.backoff.ms",
        20,
        HIGH,
        "How long a broker waits between two tries to add a partition to a transaction.",
        validator=Between(1),
        used=True,
    ),
    integer(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        LOW,
        "How often transactions past their timeout are looked for and aborted.",
        validator=Between(1),
        used=True,
    ),
    integer(
        "transaction.max.timeout.ms",
        900_000,
        HIGH,
        "The longest transaction timeout that a producer may ask for.",
        validator=Between(1),
        used=True,
    ),
    boolean(
        "transaction.partition.verification.enable",
        True,
        LOW,
        (
            "Whether a leader asks the coordinator if a partition belongs to a transaction "
            "before it appends."
        ),
        update_mode=CLUSTER_WIDE,
        used=True,
    ),
    integer(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        LOW,
        "How often transactional ids past their time are looked for and removed.",
        validator=Between(1),
        used=True,
    ),
    integer(
        "transaction.state.log.load.buffer.size",
        5_242_880,
        HIGH,
        "Bytes read at a time while a coordinator loads its transactions.",
        validator=Between(1),
        used=True,
    ),
    integer(
        "transaction.state.log.min.isr",
        2,
        HIGH,
        "How many replicas of the transaction topic must hold a write.",
        validator=Between(1),
        used=True,
    ),
    integer(
        "transaction.state.log.num.partitions",
        50,
        HIGH,
        "How many partitions the transaction topic is created with; it must not change later.",
        validator=Between(1),
        used=True,
    ),
    short(
        "transaction.state.log.replication.factor",
        3,
        HIGH,
        "How many replicas the transaction topic is created with.",
        validator=Between(1),
        used=True,
    ),
    integer(
        "transaction.state.log.segment.bytes",
        104_857_600,
        HIGH,
        "The segment size that the transaction topic is created with.",
        validator=Between(1),
        used=True,
    ),
    boolean(
        "transaction.two.phase.commit.enable",
        False,
        LOW,
        "Whether producers may leave the end of a transaction to an outside coordinator.",
        used=True,
    ),
    integer(
        "transactional.id.expiration.ms",
        604_800_000,
        HIGH,
        "How long a transactional id that is not used is remembered.",
        validator=Between(1),
        used=True,
    ),
)
