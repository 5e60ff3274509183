"""What the sink tells its user when it cannot write: one sentence that says what to do."""

from __future__ import annotations

from typing import NamedTuple

from ottla.client.transactions import ProducerFenced
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.spark.exactly_once import MarkerMismatch


class SinkError(Exception):
    """The sink cannot go on; trying again as it is may or may not help."""


class MarkerError(SinkError):
    """Marker and checkpoint contradict each other; a person must decide."""


class FencedError(SinkError):
    """Another driver publishes for the same query; this one must stop."""


class TransactionExpired(SinkError):
    """The broker ended a transaction that took too long; trying again may be faster."""


class TopicMissing(SinkError):
    """A topic to be written to does not exist."""


class Moment(NamedTuple):
    """When in a publication something went wrong."""

    is_end_sent: bool  # from then on the broker alone knows
    is_overdue: bool  # the transaction is older than it may be
    has_marker: bool  # so that a repetition finds out

    @property
    def outcome(self) -> str:
        """What is known of the output."""
        if not self.is_end_sent:
            return "Nothing of this micro-batch was published."
        if self.has_marker:
            return (
                "Whether this micro-batch was published is not known, as the answer to its end is "
                "missing; starting again finds out, and publishes it only if it was not."
            )
        return (
            "Whether the rows were written is not known, as the answer to their end is missing: "
            "look for them before writing them again. With the option 'writeId' a write that is "
            "repeated is written once."
        )


def fenced(transactional_id: str, error: ProducerFenced, moment: Moment) -> SinkError:
    """Two drivers on one checkpoint, or a transaction that took too long."""
    if moment.is_overdue:
        return TransactionExpired(
            f"The transaction of '{transactional_id}' took longer than "
            f"kafka.transaction.timeout.ms, and the broker ended it ({error}). Raise it, or make "
            "micro-batches smaller (maxOffsetsPerTrigger); unless another driver, which took over "
            f"meanwhile, ended it: then stop one of them. {moment.outcome}"
        )
    return FencedError(
        f"Another driver took over the transactional id '{transactional_id}' ({error}). Two "
        f"drivers run on one checkpoint: stop one of them. {moment.outcome}"
    )


def mismatch(group_id: str, error: MarkerMismatch) -> MarkerError:
    """The marker is missing, behind or ahead."""
    choices = (
        "Then set the sink's option 'markerMismatch' for one run: 'publish' writes this "
        "micro-batch, 'skip' takes it as written."
    )
    if error.marker is None:
        return MarkerError(
            f"The checkpoint is at micro-batch {error.batch_id}, but the marker that says what was "
            f"published (the offsets of group '{group_id}') is gone: it expired "
            "(offsets.retention.minutes), its topic was deleted, or this is another cluster. Look "
            "at the end of the output to see whether this micro-batch is in it. "
            f"{choices}"
        )
    if error.marker < error.batch_id:
        return MarkerError(
            f"The checkpoint is at micro-batch {error.batch_id}, but only {error.marker} "
            f"micro-batches were published by group '{group_id}'. Output is missing on this "
            "cluster: was it restored, or is it another one? Bring back a checkpoint that fits. "
            f"{choices}"
        )
    return MarkerError(
        f"The checkpoint is at micro-batch {error.batch_id}, but {error.marker} micro-batches were "
        f"already published by group '{group_id}': the checkpoint is older than the output. Use "
        f"the newest checkpoint, or start a new query with a new checkpoint. {choices}"
    )


def explained(error: KafkaError, transactional_id: str, moment: Moment) -> SinkError:
    """A refusal by the broker, with what to do about those that a user can mend."""
    if isinstance(error, ProducerFenced):
        return fenced(transactional_id, error, moment)
    advice = _ADVICE.get(error.code)
    said = f"{str(error).rstrip('.')}. {advice + ' ' if advice else ''}{moment.outcome}"
    is_missing = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return TopicMissing(said) if is_missing else SinkError(said)


_ADVICE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (
        "The topic is gone: create it, with as many partitions as before, and start again."
    ),
    ErrorCode.MESSAGE_TOO_LARGE: (
        "Raise max.message.bytes of the topic, or lower kafka.batch.size of the sink."
    ),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "The sink's user needs the right to write to the topic.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "The sink's user needs the right to write with this transactional id."
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (
        "The sink's user needs the right to read the group of that name, which keeps the marker."
    ),
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
        "Lower kafka.transaction.timeout.ms, or raise transaction.max.timeout.ms of the brokers."
    ),
    ErrorCode.UNSUPPORTED_VERSION: (
        "The broker serves no transactions; use delivery=at_least_once, or a newer broker."
    ),
}
