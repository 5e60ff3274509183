"""What a log directory that cannot be trusted any more looks like to the rooms above. Pure.

A disk that refuses a write leaves a choice: undo it and refuse the one request (`DiskFull`), or
give up the directory. A log that could not put its files back into a known state raises
`LogDirFailure`; the log manager takes the directory offline, and its partitions answer
KAFKA_STORAGE_ERROR while the other directories go on serving (KIP-112).
"""

import errno

from ottla.protocol.errors import ErrorCode, KafkaError

# No descriptor is left, in the process or in the system: nothing was opened, nothing happened.
DESCRIPTOR_ERRNOS = frozenset((errno.EMFILE, errno.ENFILE))
# Errors that pass when somebody makes room; all others say that the disk is broken.
PASSING_ERRNOS = DESCRIPTOR_ERRNOS | {errno.ENOSPC, errno.EDQUOT}


class LogDirFailure(KafkaError):
    """The disk under `directory` failed; clients are told KAFKA_STORAGE_ERROR."""

    def __init__(self, directory: str, cause: BaseException | str) -> None:
        super().__init__(
            ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {directory} has failed: {cause}"
        )
        self.directory = directory
        self.cause = cause


class WrongLogDirError(Exception):
    """A log directory belongs to another node or cluster, or was never formatted."""


class DiskFull(KafkaError):
    """There was no room for one append, which was undone; the log goes on when there is.

    Descriptors count as room: a read may be refused for want of them.
    """

    def __init__(self, directory: str, cause: BaseException | str) -> None:
        super().__init__(
            ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {directory} has no room left: {cause}"
        )
        self.directory = directory
        self.cause = cause


class LogBusy(KafkaError):
    """Somebody else has the files of this partition for a while; clients try again."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NOT_LEADER_OR_FOLLOWER, message)
