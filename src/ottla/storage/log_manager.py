"""Every partition log of one broker: where it lies, whether it is open, what it still owes.

Opening ten thousand logs takes minutes that nobody wants to wait for at start, and most of
them are never asked for. So a start lists directories and reads checkpoints, and a log is
opened, and after an unclean end recovered, when it is first used. Retention and recovery
reach the others by and by, a few on every tick.

A log directory whose disk fails is taken offline with its partitions; the others serve on.

Owned by the event loop. The `on_*` duties are the server's to schedule; they put what waits
for the disk into threads.

Invariant: a partition is in at most one online directory.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from ottla.config.topic import TopicConfig
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import TopicPartition
from ottla.runtime.interfaces import Runtime
from ottla.storage.failures import FULL_DISK_ERRNOS, DiskFull, LogDirFailure
from ottla.storage.file_pool import OPEN_FILES_MAX, FilePool
from ottla.storage.files.names import DirectoryState, partition_directory_name
from ottla.storage.log import PartitionLog
from ottla.storage.log_directory import LogDirectory, LogHandle, NodeIdentity
from ottla.storage.recovery import OpenOptions, open_log

# Logs that a tick opens only to look whether retention has anything to do there.
_UNOPENED_PER_TICK_MAX = 100
# Logs that a tick recovers although nobody asked for them yet.
_RECOVERED_PER_TICK_MAX = 10

HighWatermarkOf = Callable[[TopicPartition], int | None]


class PartitionSize(NamedTuple):
    topic_partition: TopicPartition
    size_bytes: int


class LogDirDescription(NamedTuple):
    """A line of DescribeLogDirs."""

    path: str
    directory_id: UUID | None
    failure: LogDirFailure | None
    total_bytes: int  # of the volume, -1 if unknown
    usable_bytes: int
    partitions: list[PartitionSize]
    is_cordoned: bool = False


class Deletion(NamedTuple):
    """A deleted partition, whose files wait for readers to finish."""

    path: str
    delay_ms: int
    remove: Callable[[], None]  # to be called, in a thread if it is large, after the delay


class LogManager:
    def __init__(
        self,
        runtime: Runtime,
        log_dirs: Sequence[str],
        *,
        config_of: Callable[[str], TopicConfig] = lambda topic: TopicConfig(),
        identity: NodeIdentity | None = None,
        producer_expiration_ms: int = 86_400_000,
        is_verification_required: bool = False,
        open_files_max: int = OPEN_FILES_MAX,
        on_directory_failure: Callable[[LogDirFailure], None] = lambda failure: None,
    ) -> None:
        """`config_of` gives a topic's configuration when one of its logs is opened."""
        if not log_dirs:
            raise ValueError("a broker needs at least one log directory")
        self._runtime = runtime
        self._disk = runtime.disk
        self._config_of = config_of
        self._identity = identity
        self._producer_expiration_ms = producer_expiration_ms
        self._is_verification_required = is_verification_required
        self._on_directory_failure = on_directory_failure
        self._pool = FilePool(runtime.disk, open_files_max)
        self._directories = [LogDirectory(runtime, path.rstrip("/")) for path in log_dirs]
        self._handles: dict[TopicPartition, LogHandle] = {}
        # Found in several directories, as when one was away while its topic was created anew.
        self._rivals: dict[TopicPartition, list[LogHandle]] = {}
        self._to_recover: list[LogHandle] = []
        self._unopened: Iterator[LogHandle] = iter(())
        self._doomed: list[tuple[int, str]] = []

    def require_verification(self, is_required: bool) -> None:
        """Whether a transaction may begin in a log only after its coordinator was asked."""
        if is_required == self._is_verification_required:
            return
        self._is_verification_required = is_required
        for handle in self._handles.values():
            if handle.log is not None:
                handle.log.producers.is_verification_required = is_required

    def expire_producers_after(self, expiration_ms: int) -> None:
        """How long a producer may be idle before it is forgotten."""
        if expiration_ms == self._producer_expiration_ms:
            return
        self._producer_expiration_ms = expiration_ms
        for handle in self._handles.values():
            if handle.log is not None:
                handle.log.producers.expiration_ms = expiration_ms

    def cordon(self, log_dirs: Collection[str]) -> bool:
        """Give these directories no new partitions, as long as there are others (KIP-1066).

        True if others were cordoned before.
        """
        paths = {path.rstrip("/") for path in log_dirs}
        changed = [one for one in self._directories if one.is_cordoned != (one.path in paths)]
        for directory in changed:
            directory.is_cordoned = not directory.is_cordoned
        return bool(changed)

    # Starting.

    def start(self, identity: NodeIdentity | None = None) -> None:
        """Take the directories. Refuses if another process has one or it is another node's."""
        try:
            for directory in self._directories:
                directory.start(identity or self._identity)
        except BaseException:
            for directory in self._directories:
                directory.release_lock()
            raise
        for directory in self._directories:
            if directory.failure is not None:
                self._on_directory_failure(directory.failure)
                continue
            for topic_partition, handle in directory.handles.items():
                known = self._handles.setdefault(topic_partition, handle)
                if known is not handle:
                    self._rivals.setdefault(topic_partition, [known]).append(handle)
            self._doomed += [(0, path) for path in directory.deleted_paths]
        if not self.online_directories:
            raise self._nowhere()
        self._to_recover = [h for h in self._handles.values() if h.needs_recovery]

    @property
    def online_directories(self) -> list[LogDirectory]:
        return [directory for directory in self._directories if directory.failure is None]

    @property
    def directories(self) -> list[LogDirectory]:
        return list(self._directories)

    @property
    def broker_epoch_of_clean_shutdown(self) -> int:
        """The epoch in which the broker stopped in order; -1 if it did not, everywhere."""
        epochs = {
            directory.broker_epoch if directory.had_clean_shutdown else None
            for directory in self._directories
        }
        epoch = epochs.pop() if len(epochs) == 1 else None
        return -1 if epoch is None else epoch

    # Finding logs.

    def __contains__(self, topic_partition: object) -> bool:
        return topic_partition in self._handles

    @property
    def topic_partitions(self) -> list[TopicPartition]:
        return list(self._handles)

    def find(self, topic_partition: TopicPartition) -> LogHandle | None:
        """What is known of a partition without opening its log."""
        return self._handles.get(topic_partition)

    def get(self, topic_partition: TopicPartition) -> PartitionLog:
        """The open log, opened now if need be. UNKNOWN_TOPIC_OR_PARTITION if there is none."""
        handle = self._handle(topic_partition)
        if handle.log is not None:
            return handle.log
        if handle.is_opening:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"The log of {topic_partition} is being opened"
            )
        try:
            log = self._open_in(handle, self._options(handle))
        except LogDirFailure as failure:
            raise self._fail(handle.directory, failure) from failure
        self._adopt(handle, log)
        return self._opened(handle)

    async def open(self, topic_partition: TopicPartition) -> PartitionLog:
        """The open log; a recovery runs in a thread, and `get` refuses meanwhile."""
        handle = self._handle(topic_partition)
        if handle.log is not None or handle.is_opening or not handle.needs_recovery:
            return self.get(topic_partition)
        options = self._options(handle)
        handle.is_opening = True
        try:
            log = await self._runtime.offload.run(self._open_in, handle, options)
        except LogDirFailure as failure:
            raise self._fail(handle.directory, failure) from failure
        finally:
            handle.is_opening = False
        self._adopt(handle, log)
        return self._opened(handle)

    def get_or_create(
        self, topic_partition: TopicPartition, topic_id: UUID, config: TopicConfig
    ) -> PartitionLog:
        """The log, in a new directory if there is none. INCONSISTENT_TOPIC_ID if it is old."""
        handle = self.create(topic_partition, topic_id)
        if handle.topic_id is None:
            handle.write_topic_id(topic_id)
        elif handle.topic_id != topic_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"The log of {topic_partition} is of topic id {handle.topic_id}, not {topic_id}",
            )
        handle.config = config
        log = self.get(topic_partition)
        if log.config is not config:
            log.update_config(config)
        return log

    def _handle(self, topic_partition: TopicPartition) -> LogHandle:
        handle = self._handles.get(topic_partition)
        if handle is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no log of {topic_partition} here"
            )
        if handle.directory.failure is not None:
            raise handle.directory.failure
        return handle

    def _opened(self, handle: LogHandle) -> PartitionLog:
        if handle.log is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"The log of {handle.topic_partition} was deleted while it was opened",
            )
        return handle.log

    def create(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        *,
        directory_id: UUID | None = None,
        is_new: bool = True,
    ) -> LogHandle:
        """Give a partition its directory if it has none yet; nothing is opened or read.

        `directory_id` is where the metadata says that it lies. One that is not new, and may lie
        in a directory that is offline, is refused: an empty log in its place would lose it.
        """
        known = self._handles.get(topic_partition)
        if known is not None:
            if topic_partition in self._rivals:
                return self._choose(topic_partition, topic_id, directory_id)
            return known
        online = self.online_directories
        recorded = [one for one in online if directory_id and one.directory_id == directory_id]
        if not recorded and not is_new:
            for directory in self._directories:
                if directory.failure is not None:
                    raise directory.failure
        full: DiskFull | None = None
        open_to_new = [one for one in online if not one.is_cordoned] or online
        for directory in recorded or sorted(open_to_new, key=lambda one: len(one.handles)):
            try:
                return self._create_in(directory, topic_partition, topic_id)
            except DiskFull as error:
                full = error
            except LogDirFailure:
                continue  # noted when it was raised; the next one may do
        raise full or self._nowhere()

    def _choose(
        self, topic_partition: TopicPartition, topic_id: UUID, directory_id: UUID | None
    ) -> LogHandle:
        """Of several logs the one of this topic, where it is said to be; others are left alone."""

        def fitness(handle: LogHandle) -> tuple[bool, bool, bool]:
            is_there = handle.directory.directory_id == directory_id
            if handle.directory.failure is not None:
                return False, False, is_there
            try:
                return True, handle.topic_id == topic_id, is_there
            except OSError as error:
                self.fail(handle.directory, error)
                return False, False, is_there

        rivals = self._rivals.pop(topic_partition)
        chosen = max(rivals, key=fitness)
        for handle in rivals:
            if handle is not chosen:
                handle.directory.handles.pop(topic_partition, None)
        self._handles[topic_partition] = chosen
        return chosen

    def _create_in(
        self, directory: LogDirectory, topic_partition: TopicPartition, topic_id: UUID
    ) -> LogHandle:
        path = f"{directory.path}/{partition_directory_name(topic_partition)}"
        handle = LogHandle(directory, topic_partition, path)
        try:
            try:
                self._disk.mkdir(path)
                handle.write_topic_id(topic_id)
            except OSError as error:
                if error.errno not in FULL_DISK_ERRNOS:
                    raise
                self._remove_tree(path)
                raise DiskFull(directory.path, error) from error
        except OSError as error:
            raise self._fail(directory, LogDirFailure(directory.path, error)) from error
        directory.handles[topic_partition] = handle
        self._handles[topic_partition] = handle
        return handle

    def _nowhere(self) -> LogDirFailure:
        """No directory is left; says what is wrong with each."""
        causes = [one.failure.cause for one in self._directories if one.failure is not None]
        paths = ", ".join(one.path for one in self._directories)
        return LogDirFailure(paths, "; ".join(dict.fromkeys(map(str, causes))))

    def config_of(self, handle: LogHandle) -> TopicConfig:
        """The configuration of a log, whether or not it is open."""
        return handle.config or self._config_of(handle.topic_partition.topic)

    def _options(self, handle: LogHandle) -> OpenOptions:
        return OpenOptions(
            self.config_of(handle),
            had_clean_shutdown=not handle.needs_recovery,
            recovery_point=handle.recovery_point,
            log_start_offset=handle.log_start_offset,
            producer_expiration_ms=self._producer_expiration_ms,
            is_verification_required=self._is_verification_required,
        )

    def _open_in(self, handle: LogHandle, options: OpenOptions) -> PartitionLog:
        directory = handle.directory
        return open_log(
            self._runtime,
            self._pool,
            handle.topic_partition,
            handle.topic_id,
            handle.path,
            options,
            on_failure=lambda failure: self._on_log_failure(directory, failure),
            on_recovery_point_lowered=lambda: self._checkpoint(
                directory, directory.write_recovery_points
            ),
            on_log_start_offset_advanced=lambda: self._checkpoint(
                directory, directory.write_log_start_offsets
            ),
        )

    def _checkpoint(self, directory: LogDirectory, write: Callable[[], None]) -> None:
        try:
            write()
        except DiskFull as full:
            # What changed must not be forgotten, and cannot be taken back.
            raise self.fail(directory, full.cause) from full
        except LogDirFailure as failure:
            raise self._fail(directory, failure) from failure

    def _adopt(self, handle: LogHandle, log: PartitionLog) -> None:
        if self._handles.get(handle.topic_partition) is not handle:
            log.abandon()
            return
        handle.adopt(log)

    # Failing.

    def _on_log_failure(self, directory: LogDirectory, failure: LogDirFailure) -> None:
        self._fail(directory, failure)

    def _fail(self, directory: LogDirectory, failure: LogDirFailure) -> LogDirFailure:
        """Take a directory offline: its logs are given up, the others serve on."""
        if directory.failure is not None:
            return directory.failure
        directory.failure = failure
        for handle in list(directory.handles.values()):
            if handle.log is not None and handle.log.failure is None:
                handle.log.failure = failure
        self._on_directory_failure(failure)
        return failure

    def fail(self, directory: LogDirectory, cause: BaseException | str) -> LogDirFailure:
        """Take a directory offline that somebody else found broken."""
        return self._fail(directory, LogDirFailure(directory.path, cause))

    # Deleting.

    def delete(self, topic_partition: TopicPartition) -> Deletion:
        """Take a partition away now; its files go with `Deletion.remove` or a later tick."""
        offline = self._handles.get(topic_partition)
        if offline is not None and offline.directory.failure is not None:
            # Its name is free for another topic; the files are left to whoever heals the disk.
            del self._handles[topic_partition]
            offline.directory.handles.pop(topic_partition, None)
            raise offline.directory.failure
        handle = self._handle(topic_partition)
        config = handle.config or self._config_of(topic_partition.topic)
        del self._handles[topic_partition]
        handle.directory.handles.pop(topic_partition, None)
        if handle.log is not None:
            handle.log.abandon()
            handle.log = None
        name = partition_directory_name(
            topic_partition, DirectoryState.DELETE, unique_id=self._runtime.random.uuid4().hex
        )
        path = f"{handle.directory.path}/{name}"
        try:
            self._disk.rename(handle.path, path)
        except OSError as error:
            failure = LogDirFailure(handle.directory.path, error)
            raise self._fail(handle.directory, failure) from error
        delay_ms = config.file_delete_delay_ms
        self._doomed.append((self._runtime.clock.wall_ms() + delay_ms, path))
        return Deletion(path, delay_ms, lambda: self._remove_tree(path))

    def _remove_tree(self, path: str) -> None:
        if self._disk.exists(path):
            self._disk.rmtree(path)

    # Duties.

    async def on_retention_tick(self, high_watermark_of: HighWatermarkOf) -> int:
        """Delete what has outlived its retention, and what waited to be removed.

        Returns the number of segments deleted. Logs that are not open are visited in turn,
        a bounded number each time; so are logs that still await recovery.
        """
        deleted = 0
        for handle in list(self._handles.values()):
            if handle.log is not None and handle.directory.failure is None:
                deleted += self._retain(handle, handle.log, high_watermark_of)
        for handle in self._next_unopened():
            deleted += self._visit(handle, high_watermark_of)
        await self._recover_some()
        await self._remove_doomed()
        return deleted

    def _retain(
        self, handle: LogHandle, log: PartitionLog, high_watermark_of: HighWatermarkOf
    ) -> int:
        high_watermark = high_watermark_of(handle.topic_partition)
        if high_watermark is None:
            high_watermark = handle.high_watermark
        try:
            deleted = log.delete_old_segments(high_watermark)
            log.remove_deleted_files(now_ms=self._runtime.clock.wall_ms())
        except LogDirFailure:
            return 0  # noted when it was raised: the directory is offline
        except DiskFull:
            return 0  # other logs may have something to give
        return deleted

    def _visit(self, handle: LogHandle, high_watermark_of: HighWatermarkOf) -> int:
        """Open a log only to look whether retention has anything to do, and close it again."""
        try:
            log = self.get(handle.topic_partition)
            deleted = self._retain(handle, log, high_watermark_of)
            log.close()
        except (LogDirFailure, DiskFull):
            return 0
        handle.let_go()
        return deleted

    def _next_unopened(self) -> list[LogHandle]:
        found = list(islice(self._unopened, _UNOPENED_PER_TICK_MAX))
        if len(found) < _UNOPENED_PER_TICK_MAX:
            self._unopened = iter(list(self._handles.values()))
        return [
            handle
            for handle in found
            if handle.log is None
            and not handle.needs_recovery
            and not handle.is_opening
            and handle.directory.failure is None
            and self._handles.get(handle.topic_partition) is handle
        ]

    async def _recover_some(self) -> None:
        for _ in range(min(_RECOVERED_PER_TICK_MAX, len(self._to_recover))):
            handle = self._to_recover.pop()
            if not handle.needs_recovery or handle.directory.failure is not None:
                continue
            if self._handles.get(handle.topic_partition) is not handle or handle.is_opening:
                continue
            try:
                await self.open(handle.topic_partition)
            except LogDirFailure:
                continue  # noted when it was raised
            except DiskFull:
                self._to_recover.insert(0, handle)

    async def _remove_doomed(self) -> None:
        now_ms = self._runtime.clock.wall_ms()
        due = [path for due_ms, path in self._doomed if due_ms <= now_ms]
        self._doomed = [(due_ms, path) for due_ms, path in self._doomed if due_ms > now_ms]
        for path in due:
            await self._runtime.offload.run(self._remove_tree, path)

    async def on_flush_tick(self) -> None:
        """Sync, off the loop, rolled segments and what `flush.ms` has made due."""
        for handle in list(self._handles.values()):
            log = handle.log
            if log is None or log.failure is not None or log.is_closed or not log.needs_flush:
                continue
            try:
                job = log.begin_flush(only_inactive=not log.is_flush_due)
            except LogDirFailure:
                continue  # noted when it was raised
            if job is None:
                continue
            try:
                await self._runtime.offload.run(job.run)
            except OSError as error:
                log.fail(error)
                continue
            finally:
                job.release()
            log.finish_flush(job)

    async def on_recovery_point_tick(self) -> None:
        async def write(directory: LogDirectory) -> None:
            directory.write_recovery_points()

        await self._write_in_each(write)

    async def on_log_start_offset_tick(self) -> None:
        async def write(directory: LogDirectory) -> None:
            directory.write_log_start_offsets()

        await self._write_in_each(write)

    async def on_high_watermark_tick(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        async def write(directory: LogDirectory) -> None:
            await directory.write_high_watermarks_in_thread(high_watermarks)

        await self._write_in_each(write)

    async def on_producer_expiry_tick(self) -> None:
        """Forget producers that were idle too long, in logs that are open."""
        for handle in list(self._handles.values()):
            if handle.log is not None:
                handle.log.expire_producers()

    async def _write_in_each(self, write: Callable[[LogDirectory], Awaitable[None]]) -> None:
        for directory in self.online_directories:
            try:
                await write(directory)
            except DiskFull:
                continue  # older ones only make a recovery longer; the next tick tries again
            except LogDirFailure as failure:
                self._fail(directory, failure)

    def high_watermark_of(self, topic_partition: TopicPartition) -> int:
        """As last checkpointed; 0 if it never was."""
        handle = self._handles.get(topic_partition)
        return 0 if handle is None else handle.high_watermark

    def update_config(self, topic: str, config: TopicConfig) -> None:
        """A topic's configuration has changed."""
        for handle in self._handles.values():
            if handle.topic_partition.topic == topic:
                handle.config = config
                if handle.log is not None:
                    handle.log.update_config(config)

    def describe(self) -> list[LogDirDescription]:
        """Sizes of all partitions, without opening any log."""
        return [self._describe(directory) for directory in self._directories]

    def _describe(self, directory: LogDirectory) -> LogDirDescription:
        if directory.failure is not None:
            return LogDirDescription(
                directory.path,
                directory.directory_id,
                directory.failure,
                -1,
                -1,
                [],
                directory.is_cordoned,
            )
        try:
            total, usable = self._disk.free_bytes(directory.path)
            sizes = [
                PartitionSize(topic_partition, handle.size_bytes())
                for topic_partition, handle in directory.handles.items()
            ]
        except OSError as error:
            failure = self._fail(directory, LogDirFailure(directory.path, error))
            return LogDirDescription(
                directory.path, directory.directory_id, failure, -1, -1, [], directory.is_cordoned
            )
        return LogDirDescription(
            directory.path,
            directory.directory_id,
            None,
            total,
            usable,
            sizes,
            directory.is_cordoned,
        )

    # Ending.

    def close(
        self,
        *,
        broker_epoch: int = -1,
        high_watermarks: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Close in order: logs flushed, checkpoints written, markers set, locks released."""
        for directory in self._directories:
            if directory.failure is None:
                try:
                    self._close_directory(directory, broker_epoch, high_watermarks or {})
                except OSError as error:
                    self.fail(directory, error)
                except DiskFull as full:
                    self.fail(directory, full.cause)
                except LogDirFailure as failure:
                    self._fail(directory, failure)
        self._end(self._directories)

    def _close_directory(
        self,
        directory: LogDirectory,
        broker_epoch: int,
        high_watermarks: Mapping[TopicPartition, int],
    ) -> None:
        for handle in directory.handles.values():
            if handle.log is not None:
                handle.log.close()
        directory.write_all(high_watermarks)
        # A log that nobody used since an unclean end was not recovered: it must be, still.
        if not any(handle.needs_recovery for handle in directory.handles.values()):
            directory.write_marker(broker_epoch)

    def _end(self, directories: Iterable[LogDirectory]) -> None:
        self._pool.close_all()
        for directory in directories:
            directory.release_lock()
        self._handles = {}
