"""One node's hold on the cluster's metadata: the image, and the way to change it.

Handlers hand in a `decide` function. It runs at once, against the newest state including what is
not committed yet, so that two requests for the same topic cannot both win; but nobody is told
anything before the records it rests on are committed. Then the image moves on, subscribers hear
of it, and the answer goes out, in that order.

Shell: lives on the event loop. Invariants: `image` only ever holds committed records and its
offset never falls; subscribers see every image once, in order; after a failed disk nothing is
accepted any more.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from ottla.metadata.brokers import decide_register_controller
from ottla.metadata.decision import Decision
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.features import (
    CONTROLLERS_SINCE,
    ELIGIBLE_LEADER_REPLICAS,
    METADATA_VERSION,
    RELEASE_FEATURES,
    TRANSACTIONS_SINCE,
    common_min_insync_records,
    feature_level_records,
    supported_feature_records,
)
from ottla.metadata.formatting import FormatError, read_meta_properties
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.metadata.records import (
    LATEST_METADATA_VERSION,
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    RecordEndpoint,
    decode_record,
    encode_record,
)
from ottla.metadata.snapshot import TransactionResolver, image_records
from ottla.protocol.errors import ErrorCode, InvariantError, KafkaError
from ottla.protocol.ids import NO_OFFSET, BrokerId, Epoch, Offset
from ottla.raft.batches import BATCH_BYTES_MAX
from ottla.raft.driver import QuorumError, RaftDriver
from ottla.raft.log import SEGMENT_BYTES, SEGMENT_MS
from ottla.raft.node import Quorum
from ottla.raft.snapshots import (
    BOOTSTRAP_FILE_NAME,
    SnapshotId,
    parse_snapshot,
    snapshot_batches,
)
from ottla.raft.wire_records import ZERO_UUID
from ottla.runtime.interfaces import Lock, Runtime

T = TypeVar("T")
Subscriber = Callable[[MetadataImage, MetadataDelta], None]

LOCK_FILE_NAME = ".lock"
# A disk that had no room may have some by then; trying with every change would not help it.
SNAPSHOT_RETRY_S = 60.0

log = logging.getLogger(__name__)


class LogPolicy(NamedTuple):
    """When the log is folded into a snapshot, and how much history stays; Kafka's defaults."""

    record_bytes_between: int = 20 * 1024 * 1024
    interval_ms: int = 60 * 60 * 1000  # 0: only by size
    retention_bytes: int = 100 * 1024 * 1024
    retention_ms: int = 7 * 24 * 60 * 60 * 1000
    segment_bytes: int = SEGMENT_BYTES
    segment_ms: int = SEGMENT_MS
    batch_bytes_max: int = BATCH_BYTES_MAX


class _Pending(NamedTuple):
    last_offset: Offset
    image: MetadataImage
    delta: MetadataDelta
    committed: "asyncio.Future[None]"


class MetadataNode:
    def __init__(
        self,
        runtime: Runtime,
        *,
        node_id: int,
        directory: str,
        cluster_id: str | None = None,
        static_voter_ids: Sequence[int] = (),
        static_configs: Mapping[str, str] | None = None,
        policy: LogPolicy | None = None,
        lock_directory: bool = False,
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        """`directory` is the metadata log directory; `cluster_id`, if given, must be its own.

        `lock_directory` is for one that is not among the log directories, which the log manager
        locks. `static_configs` are those of server.properties that the controller decides by.
        """
        self.node_id = BrokerId(node_id)
        self.directory = directory
        self.cluster_id = cluster_id or ""
        self.directory_id = ZERO_UUID
        self.incarnation_id = runtime.random.uuid4()
        self.image = replace(EMPTY_IMAGE, static_configs=static_configs or {})
        self._runtime = runtime
        self._static_voter_ids = tuple(static_voter_ids)
        self._policy = policy or LogPolicy()
        self._lock_directory = lock_directory
        self._lock: Lock | None = None
        self._on_failure_callback = on_failure
        self._driver: RaftDriver | None = None
        self._newest = self.image  # with records that are not committed yet
        self._uncommitted: deque[_Pending] = deque()
        self._subscribers: list[Subscriber] = []
        self._bytes_since_snapshot = 0
        self._snapshot_offset = NO_OFFSET
        self._snapshot_task: asyncio.Task[None] | None = None
        self._snapshot_timer: asyncio.TimerHandle | None = None
        self._snapshot_retry: asyncio.TimerHandle | None = None  # after one that failed

    @property
    def controller_epoch(self) -> Epoch:
        return self._raft.epoch

    @property
    def quorum(self) -> Quorum:
        return self._raft.quorum

    @property
    def kraft_version(self) -> int:
        return self._raft.quorum.kraft_version

    @property
    def high_watermark(self) -> Offset:
        return self._raft.high_watermark

    @property
    def log_end_offset(self) -> Offset:
        return self._raft.next_offset

    @property
    def _raft(self) -> RaftDriver:
        if self._driver is None:
            raise InvariantError("the metadata node has not been started")
        return self._driver

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber(image, delta)` on the loop for each image from now on."""
        self._subscribers.append(subscriber)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.remove(subscriber)

    async def start(self, *, controller_endpoints: Sequence[RecordEndpoint] = ()) -> None:
        """Replay what the directory holds, take the lead, and write what a new cluster needs.

        `controller_endpoints` are where this node is reached as a controller.
        """
        self._check_directory()
        self._take_lock()
        self._driver = driver = RaftDriver(
            self._runtime,
            node_id=self.node_id,
            directory_id=self.directory_id,
            log_dir=self.directory,
            static_voter_ids=self._static_voter_ids,
            segment_bytes=self._policy.segment_bytes,
            segment_ms=self._policy.segment_ms,
            batch_bytes_max=self._policy.batch_bytes_max,
            on_commit=self._on_commit,
            on_failure=self._on_failure,
        )
        delta, transaction_is_open = await self._runtime.offload.run(self._replay_directory)
        await driver.lead()
        before = self.image
        self.image = self._newest = delta.apply(
            offset=Offset(driver.next_offset - 1),
            epoch=driver.epoch,
            timestamp_ms=self._runtime.clock.wall_ms(),
        )
        self._publish(self.image, delta, before)
        if transaction_is_open:
            await self.submit(
                lambda _: Decision(
                    [AbortTransactionRecord(reason="the controller restarted")], None
                )
            )
        if METADATA_VERSION not in self.image.features:
            records = await self._runtime.offload.run(self._bootstrap_records)
            await self.submit(lambda _: Decision(records, None))
        knows_controllers = self.image.features[METADATA_VERSION] >= CONTROLLERS_SINCE
        if controller_endpoints and knows_controllers:
            endpoints = tuple(controller_endpoints)
            await self.submit(lambda image: self._decide_own_registration(image, endpoints))
        self._schedule_snapshot_timer()

    def _check_directory(self) -> None:
        properties = read_meta_properties(self._runtime, self.directory)
        if properties is None:
            raise FormatError(f"{self.directory} is not formatted; run `ottla storage format`")
        if self.cluster_id and properties.cluster_id != self.cluster_id:
            raise FormatError(
                f"{self.directory} belongs to cluster {properties.cluster_id}, not to"
                f" {self.cluster_id}"
            )
        if properties.node_id != self.node_id:
            raise FormatError(
                f"{self.directory} belongs to node {properties.node_id}, not to {self.node_id}"
            )
        self.cluster_id = properties.cluster_id or ""
        self.directory_id = properties.directory_id or ZERO_UUID

    def _take_lock(self) -> None:
        if not self._lock_directory:
            return
        try:
            self._lock = self._runtime.disk.lock(f"{self.directory}/{LOCK_FILE_NAME}")
        except BlockingIOError as error:
            raise QuorumError(f"{self.directory} is in use by another process") from error

    def _replay_directory(self) -> tuple[MetadataDelta, bool]:
        """Open the log: one delta with its newest snapshot and what came after it; blocking."""
        driver = self._raft
        delta = MetadataDelta(self.image)
        start = Offset(0)
        newest = driver.open()
        if newest is not None:
            start = self._snapshot_offset = newest[0].end_offset
            for value in newest[1].values:
                delta.replay(decode_record(value))
        resolver = TransactionResolver()
        for batch in driver.log.read_from(start):
            driver.note_control_records(batch.control)
            for value in batch.values:
                self._bytes_since_snapshot += len(value)
                delta.replay_all(resolver.resolve(decode_record(value)))
        return delta, resolver.is_open

    def _bootstrap_records(self) -> list[MetadataRecord]:
        path = f"{self.directory}/{BOOTSTRAP_FILE_NAME}"
        records: list[MetadataRecord] = []
        if self._runtime.disk.exists(path):
            content = self._runtime.disk.read_bytes(path)
            records = [decode_record(value) for value in parse_snapshot(content, path).values]
        if not records:
            records = feature_level_records(RELEASE_FEATURES)
        features = {r.name: r.feature_level for r in records if isinstance(r, FeatureLevelRecord)}
        if features.get(ELIGIBLE_LEADER_REPLICAS, 0) > 0:
            records += common_min_insync_records(self.image)
        if features.get(METADATA_VERSION, 0) < TRANSACTIONS_SINCE:
            return records
        begin = BeginTransactionRecord(name="Bootstrap records")
        return [begin, *records, EndTransactionRecord()]

    def _decide_own_registration(
        self, image: MetadataImage, endpoints: tuple[RecordEndpoint, ...]
    ) -> Decision[None]:
        return decide_register_controller(
            image,
            controller_id=self.node_id,
            incarnation_id=self.incarnation_id,
            endpoints=endpoints,
            features=supported_feature_records(),
        )

    async def submit(self, decide: Callable[[MetadataImage], Decision[T]]) -> T:
        """Decide against the newest state, commit the records, and return the response.

        A KafkaError that `decide` raises passes through once the state it saw is committed.
        """
        try:
            decision = decide(self._newest)
        except KafkaError:
            await self._committed_so_far()
            raise
        if not decision.records:
            await self._committed_so_far()
            return decision.response
        delta = MetadataDelta(self._newest)
        delta.replay_all(decision.records)
        level = delta.features.get(METADATA_VERSION) or LATEST_METADATA_VERSION
        values = [encode_record(record, level) for record in decision.records]
        now_ms = self._runtime.clock.wall_ms()
        last_offset = self._raft.append(values, now_ms)
        image = delta.apply(offset=last_offset, epoch=self._raft.epoch, timestamp_ms=now_ms)
        committed = asyncio.get_running_loop().create_future()
        self._uncommitted.append(_Pending(last_offset, image, delta, committed))
        self._newest = image
        self._bytes_since_snapshot += sum(map(len, values))
        await asyncio.shield(committed)  # a caller that gives up does not undo the change
        return decision.response

    async def _committed_so_far(self) -> None:
        """An answer may rest on changes of others; it waits until they are safe."""
        if self._uncommitted:
            await asyncio.shield(self._uncommitted[-1].committed)

    def _on_commit(self, high_watermark: Offset) -> None:
        while self._uncommitted and self._uncommitted[0].last_offset < high_watermark:
            pending = self._uncommitted.popleft()
            before, self.image = self.image, pending.image
            pending.committed.set_result(None)  # wakes its submitter on a later turn of the loop
            self._publish(pending.image, pending.delta, before)
        if self._bytes_since_snapshot >= self._policy.record_bytes_between:
            self._start_snapshot()

    def _publish(self, image: MetadataImage, delta: MetadataDelta, before: MetadataImage) -> None:
        if image.offset < before.offset:
            raise InvariantError(f"the image went back from {before.offset} to {image.offset}")
        for subscriber in self._subscribers:
            subscriber(image, delta)

    def _on_failure(self, error: BaseException) -> None:
        log.error("the metadata log in %s has failed: %s", self.directory, error)
        refusal = f"The metadata log has failed: {error}"
        while self._uncommitted:
            committed = self._uncommitted.popleft().committed
            committed.set_exception(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, refusal))
            committed.exception()  # its submitter may have gone; that is no second failure
        if self._on_failure_callback is not None:
            self._on_failure_callback(error)

    def _schedule_snapshot_timer(self) -> None:
        if self._policy.interval_ms > 0:
            self._snapshot_timer = asyncio.get_running_loop().call_later(
                self._policy.interval_ms / 1000, self._on_snapshot_timer
            )

    def _on_snapshot_timer(self) -> None:
        self._schedule_snapshot_timer()
        if self._bytes_since_snapshot > 0:
            self._start_snapshot()

    def _start_snapshot(self) -> None:
        if self._snapshot_task is None and self._snapshot_retry is None:
            task = asyncio.get_running_loop().create_task(self._snapshot_once())
            self._snapshot_task = task

    async def _snapshot_once(self) -> None:
        try:
            await self.snapshot()
        except Exception:
            # The log still holds everything, so a later snapshot makes up for this one.
            log.exception("the snapshot of the metadata log in %s failed", self.directory)
            self._snapshot_retry = asyncio.get_running_loop().call_later(
                SNAPSHOT_RETRY_S, self._retry_snapshot
            )
        finally:
            self._snapshot_task = None

    def _retry_snapshot(self) -> None:
        self._snapshot_retry = None
        self._start_snapshot()

    async def snapshot(self) -> SnapshotId | None:
        """Fold the committed state into a snapshot and drop the log that it replaces."""
        image = self.image
        snapshot = SnapshotId(image.next_offset, image.epoch)
        if snapshot.end_offset <= self._snapshot_offset:
            return None
        bytes_covered = self._bytes_since_snapshot
        quorum = self._raft.quorum
        now_ms = self._runtime.clock.wall_ms()

        def write() -> int:
            level = image.features[METADATA_VERSION]
            batches = snapshot_batches(
                (encode_record(record, level) for record in image_records(image)),
                epoch=snapshot.epoch,
                quorum=quorum,
                last_contained_timestamp_ms=image.timestamp_ms,
                now_ms=now_ms,
            )
            return self._raft.log.write_snapshot(snapshot, batches)

        await self._runtime.offload.run(write)
        self._snapshot_offset = snapshot.end_offset
        self._bytes_since_snapshot -= bytes_covered
        await self._raft.trim(
            retention_bytes=self._policy.retention_bytes,
            oldest_ms=now_ms - self._policy.retention_ms,
        )
        return snapshot

    async def stop(self) -> None:
        """Finish what is under way and close the log."""
        if self._snapshot_task is not None:
            await asyncio.shield(self._snapshot_task)
        for timer in (self._snapshot_timer, self._snapshot_retry):
            if timer is not None:
                timer.cancel()
        try:
            if self._driver is not None:
                await self._driver.close()
        finally:
            if self._lock is not None:
                self._lock.release()
                self._lock = None
