"""Performs what the Raft node decides: votes, appends, syncs, and the news of what is committed.

Every write waits for one fsync, and an fsync costs milliseconds however much it carries. So
batches queue up while one sync is under way and the next takes all of them at once.

Shell: lives on the event loop; blocking calls run in `runtime.offload`, one at a time. A disk
that fails stops the driver for good, because it can no longer tell what it has promised.

Invariants: `on_commit` is called with rising offsets; nothing is appended before the election
that allows it is durable.
"""

import asyncio
from collections.abc import Callable, Sequence
from uuid import UUID

from ottla.protocol.errors import ErrorCode, InvariantError, KafkaError
from ottla.protocol.ids import BrokerId, Epoch, Offset
from ottla.raft.batches import BATCH_BYTES_MAX, data_batch, raft_batch
from ottla.raft.control_records import (
    KRaftVersionFeature,
    KRaftVersionRecord,
    Voter,
    VoterEndpoint,
    VotersRecord,
)
from ottla.raft.log import DIRECTORY_NAME, SEGMENT_BYTES, SEGMENT_MS, MetadataLog
from ottla.raft.node import Effects, Quorum, RaftNode
from ottla.raft.quorum_state import (
    FILE_NAME,
    NO_ELECTION_YET,
    ElectionState,
    format_quorum_state,
    parse_quorum_state,
)
from ottla.raft.wire_records import ZERO_UUID
from ottla.runtime.interfaces import Runtime

KRAFT_VERSIONS = KRaftVersionFeature(min_supported_version=0, max_supported_version=1)
# Requests in flight bound the queue in practice; this holds when a client does not wait.
QUEUED_BYTES_MAX = 64 * 1024 * 1024


class QuorumError(Exception):
    """This node cannot take part in the metadata quorum of its directory."""


def static_quorum(voter_ids: Sequence[int]) -> Quorum:
    """The voters of controller.quorum.voters, whose directories are not known."""
    return Quorum(0, tuple(Voter(voter_id=voter_id) for voter_id in sorted(voter_ids)))


def own_voter(node_id: int, directory_id: UUID, endpoints: Sequence[VoterEndpoint]) -> Voter:
    return Voter(node_id, directory_id, tuple(endpoints), KRAFT_VERSIONS)


class RaftDriver:
    def __init__(
        self,
        runtime: Runtime,
        *,
        node_id: BrokerId,
        directory_id: UUID,
        log_dir: str,
        static_voter_ids: Sequence[int] = (),
        segment_bytes: int = SEGMENT_BYTES,
        segment_ms: int = SEGMENT_MS,
        on_commit: Callable[[Offset], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.node_id = node_id
        self.log = MetadataLog(
            runtime,
            f"{log_dir}/{DIRECTORY_NAME}",
            segment_bytes=segment_bytes,
            segment_ms=segment_ms,
        )
        self.quorum = static_quorum(static_voter_ids)
        self.next_offset = Offset(0)
        self.failure: BaseException | None = None
        self._runtime = runtime
        self._directory_id = directory_id
        self._on_commit = on_commit
        self._on_failure = on_failure
        self._node: RaftNode | None = None
        self._queue: list[bytearray] = []
        self._queued_bytes = 0
        self._writer: asyncio.Task[None] | None = None
        self._files = asyncio.Lock()  # no sync of the segments while they are trimmed

    @property
    def epoch(self) -> Epoch:
        return self._leader.epoch

    @property
    def high_watermark(self) -> Offset:
        return self._leader.high_watermark

    @property
    def _leader(self) -> RaftNode:
        if self._node is None:
            raise InvariantError("the Raft driver has not been started")
        return self._node

    async def open(self) -> None:
        """Open the log and learn who votes; nothing is decided yet."""
        await self._runtime.offload.run(self._open)

    def _open(self) -> None:
        self.log.open()
        self.next_offset = self.log.log_end_offset
        newest = self.log.newest_snapshot()
        if newest is not None:
            recorded = self.log.read_snapshot(newest).quorum
            if recorded is not None:
                # The snapshot at offset 0 comes from formatting; the log does not have it yet.
                self.quorum = recorded._replace(recorded=newest.end_offset > 0)

    def note_control_records(self, records: Sequence[object]) -> None:
        """Take voters from the log, which come after those of any snapshot."""
        for record in records:
            if isinstance(record, KRaftVersionRecord):
                self.quorum = self.quorum._replace(
                    kraft_version=record.kraft_version, recorded=True
                )
            elif isinstance(record, VotersRecord):
                self.quorum = self.quorum._replace(voters=record.voters, recorded=True)

    async def lead(self) -> None:
        """Elect this node, the only voter, and commit the start of its epoch."""
        self._check_quorum()
        self._node = node = RaftNode(
            node_id=self.node_id,
            quorum=self.quorum,
            election=self._read_election(),
            log_end_offset=self.log.log_end_offset,
            last_log_epoch=self.log.last_epoch,
        )
        await self._perform(node.on_election_timeout())
        effects = node.maybe_lead()
        if not node.is_leader:
            raise InvariantError("the only voter did not win its election")
        await self._perform(effects)
        await self.flushed()

    def _check_quorum(self) -> None:
        ids = self.quorum.voter_ids
        if not ids:
            raise QuorumError(
                f"{self.log.directory} was formatted without voters, and controller.quorum.voters"
                f" names none: give it node {self.node_id}, or format an empty directory anew with"
                " --standalone"
            )
        if ids != (self.node_id,):
            voters = ", ".join(map(str, ids))
            raise QuorumError(
                f"node {self.node_id} cannot lead the metadata quorum of {self.log.directory}: its"
                f" voters are {voters}, and a quorum of more than this node is not supported"
            )
        recorded = self.quorum.voters[0].voter_directory_id
        if recorded not in (ZERO_UUID, self._directory_id):
            raise QuorumError(
                f"the metadata log in {self.log.directory} belongs to voter directory {recorded},"
                f" but this directory is {self._directory_id}"
            )

    def _read_election(self) -> ElectionState:
        path = f"{self.log.directory}/{FILE_NAME}"
        if not self._runtime.disk.exists(path):
            return NO_ELECTION_YET
        return parse_quorum_state(self._runtime.disk.read_bytes(path).decode())

    async def _perform(self, effects: Effects) -> None:
        if effects.election is not None:
            text = format_quorum_state(
                effects.election,
                kraft_version=self.quorum.kraft_version,
                voter_ids=self.quorum.voter_ids,
            )
            path = f"{self.log.directory}/{FILE_NAME}"
            await self._runtime.offload.run(self._runtime.disk.write_atomic, path, text.encode())
        if effects.epoch_start:
            batch = raft_batch(
                effects.epoch_start,
                base_offset=self.next_offset,
                epoch=self.epoch,
                timestamp_ms=self._runtime.clock.wall_ms(),
            )
            self._enqueue(batch, len(effects.epoch_start))
            self.quorum = self.quorum._replace(recorded=True)

    def append(self, values: Sequence[bytes], timestamp_ms: int) -> Offset:
        """Queue one batch; returns its last offset, which `on_commit` will pass."""
        if self.failure is not None:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"The metadata log has failed: {self.failure}"
            )
        if self._queued_bytes > QUEUED_BYTES_MAX:
            raise KafkaError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                "Too many metadata changes are waiting for the disk",
            )
        batch = data_batch(
            values, base_offset=self.next_offset, epoch=self.epoch, timestamp_ms=timestamp_ms
        )
        if len(batch) > BATCH_BYTES_MAX:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"The change takes {len(batch)} bytes of metadata; one may take {BATCH_BYTES_MAX}",
            )
        self._enqueue(batch, len(values))
        return Offset(self.next_offset - 1)

    def _enqueue(self, batch: bytearray, records_count: int) -> None:
        self.next_offset = Offset(self.next_offset + records_count)
        self._leader.on_appended(self.next_offset)
        self._queue.append(batch)
        self._queued_bytes += len(batch)
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        """Write and sync whatever has queued up, until nothing is left."""
        try:
            while self._queue:
                batches, self._queue = self._queue, []
                self._queued_bytes = 0
                async with self._files:
                    end_offset = await self._append_and_sync(batches)
                effects = self._leader.on_durable(self.node_id, end_offset)
                if effects.high_watermark is not None:
                    self._on_commit(effects.high_watermark)
        except Exception as error:  # noqa: BLE001  whatever it was, nothing more may be promised
            self.failure = error
            self._queue.clear()
            self._on_failure(error)
        finally:
            self._writer = None

    async def _append_and_sync(self, batches: Sequence[bytearray]) -> Offset:
        self.log.append(batches)
        job = self.log.begin_flush()
        if job is None:
            raise InvariantError("nothing is to be synced after an append")
        try:
            await self._runtime.offload.run(job.run)
        finally:
            job.release()
        return self.log.finish_flush(job)

    async def flushed(self) -> None:
        """Wait until all that was appended so far is committed, or the log has failed."""
        if self._writer is not None:
            await asyncio.shield(self._writer)
        if self.failure is not None:
            raise self.failure

    async def trim(self, *, retention_bytes: int, oldest_ms: int) -> None:
        """Drop snapshots that are too much or too old, and the log that they cover."""
        async with self._files:
            self.log.trim(retention_bytes=retention_bytes, oldest_ms=oldest_ms)

    async def close(self) -> None:
        if self._writer is not None:
            await asyncio.shield(self._writer)
        self.log.close()
