"""A query's progress as the offsets of a consumer group, so that Kafka's tools show its lag.

The group is never read: Spark's checkpoint alone says where a query goes on. So a commit that fails
is a warning, not an error, and the micro-batch does not wait for it: a thread commits the newest
offsets it was given, and skips those that came while it was busy. Only a query that finds nothing
to do waits: it may be about to end, and Spark then ends this process at once.

The group is `kafka.group.id`, or `groupIdPrefix` with a suffix: one that stays the same if the
checkpoint is known, otherwise a new one for each run, which is deleted when the query stops.
"""

import hashlib
import logging
import threading
import uuid

from ottla.client import Client, CommittedOffset, CoordinatorType, TopicPartition, commit_offsets
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import KafkaError
from ottla.spark.options import SourceOptions

_FLUSH_S_MAX = 2.0  # of an idle trigger; a coordinator that is away must not stop the query
_STOP_S_MAX = 5.0  # a query that stops does not wait longer for a coordinator that is away

logger = logging.getLogger(__name__)


class GroupProgress:
    """Commits on a thread of its own, with a client of its own."""

    def __init__(self, options: SourceOptions) -> None:
        self._config = options.client
        self.group_id, self._is_temporary = group_id_of(options)
        self._condition = threading.Condition()
        self._newest: dict[TopicPartition, int] | None = None
        self._is_stopped = False
        self._is_busy = False
        self._has_failed = False
        self._thread: threading.Thread | None = None

    def report(self, offsets: dict[TopicPartition, int]) -> None:
        """Everything before these offsets has been processed."""
        with self._condition:
            self._newest = offsets
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()
            self._condition.notify_all()

    def flush(self) -> None:
        """Wait a moment until all is committed: for a query that has nothing else to do."""
        with self._condition:
            self._condition.wait_for(
                lambda: self._newest is None and not self._is_busy, timeout=_FLUSH_S_MAX
            )

    def stop(self) -> None:
        """Commit what is left, and forget a group that no one will look for."""
        with self._condition:
            self._is_stopped = True
            thread, self._thread = self._thread, None
            self._condition.notify_all()
        if thread is not None:
            thread.join(_STOP_S_MAX)

    def _run(self) -> None:
        with Client(self._config) as client:
            while True:
                with self._condition:
                    self._condition.wait_for(lambda: self._newest is not None or self._is_stopped)
                    offsets, self._newest = self._newest, None
                    self._is_busy = offsets is not None
                if offsets is None:
                    break
                self._commit(client, offsets)
                with self._condition:
                    self._is_busy = False
                    self._condition.notify_all()
            if self._is_temporary:
                self._delete(client)

    def _commit(self, client: Client, offsets: dict[TopicPartition, int]) -> None:
        try:
            committed = {tp: CommittedOffset(offset) for tp, offset in offsets.items()}
            commit_offsets(client, self.group_id, committed)
            self._has_failed = False
        except KafkaError as error:
            if not self._has_failed:
                logger.warning("The lag of group '%s' is not shown: %s", self.group_id, error)
            self._has_failed = True

    def _delete(self, client: Client) -> None:
        try:
            node_id = client.coordinator(CoordinatorType.GROUP, self.group_id)
            fields = {"groups_names": [self.group_id]}
            client.ask(ApiKey.DELETE_GROUPS, fields, node_id=node_id)
        except KafkaError as error:
            logger.warning("Group '%s' was not deleted: %s", self.group_id, error)


def group_id_of(options: SourceOptions) -> tuple[str, bool]:
    """The group of a query, and whether it is for one run only."""
    if options.group_id is not None:
        return options.group_id, False
    if options.checkpoint_location is not None:
        named = f"{options.checkpoint_location}\0{options.topics.text}"
        digest = hashlib.sha256(named.encode()).hexdigest()[:12]
        return f"{options.group_id_prefix}-{digest}", False
    return f"{options.group_id_prefix}-{uuid.uuid4()}", True
