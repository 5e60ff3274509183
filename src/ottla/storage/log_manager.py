"""Every partition log of one broker: where it lies, whether it is open, who is opening it.

Opening ten thousand logs takes minutes that nobody wants to wait for at start, and most of
them are never asked for. So a start lists directories and reads checkpoints, and a log is
opened, and after an unclean end recovered, when it is first used. What logs need now and then
is in `log_upkeep`, `log_retention` and `background_recovery`.

A log directory whose disk fails is taken offline with its partitions; the others serve on.

Owned by the event loop. Threads open logs; whoever else wants the same one waits for them.

Invariants: a partition is in at most one online directory; one thread at most is at work in
a partition's directory to open it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from uuid import UUID

from ottla.config.topic import TopicConfig
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import TopicPartition
from ottla.runtime.interfaces import Runtime
from ottla.storage.failures import PASSING_ERRNOS, DiskFull, LogBusy, LogDirFailure
from ottla.storage.file_pool import OPEN_FILES_MAX, FilePool
from ottla.storage.files.names import DirectoryState, partition_directory_name
from ottla.storage.log import PartitionLog
from ottla.storage.log_directory import ClosedSegment, LogDirectory, LogHandle, NodeIdentity
from ottla.storage.recovery import OpenOptions, open_log
from ottla.storage.removals import Removals
from ottla.storage.under_way import UnderWay

log = logging.getLogger(__name__)


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
        on_directory_full: Callable[[LogDirectory], None] = lambda directory: None,
    ) -> None:
        """`config_of` gives a topic's configuration when one of its logs is opened.

        `on_directory_full` hears when a directory has no room left, and when it has again.
        """
        if not log_dirs:
            raise ValueError("a broker needs at least one log directory")
        self._runtime = runtime
        self._disk = runtime.disk
        self._config_of = config_of
        self._identity = identity
        self._producer_expiration_ms = producer_expiration_ms
        self._is_verification_required = is_verification_required
        self._on_directory_failure = on_directory_failure
        self._on_directory_full = on_directory_full
        self._pool = FilePool(runtime.disk, open_files_max)
        self._directories = [LogDirectory(runtime, path.rstrip("/")) for path in log_dirs]
        self._handles: dict[TopicPartition, LogHandle] = {}
        # Found in several directories, as when one was away while its topic was created anew.
        self._rivals: dict[TopicPartition, list[LogHandle]] = {}
        # By path, where a thread is at work, perhaps for a log that was deleted meanwhile.
        self._openings: dict[str, asyncio.Task[None]] = {}
        self.removals = Removals(runtime)
        self.under_way = UnderWay()

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
            self.removals.add(directory.deleted_paths, 0)
        if not self.online_directories:
            raise self._nowhere()

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

    @property
    def handles(self) -> list[LogHandle]:
        return list(self._handles.values())

    def find(self, topic_partition: TopicPartition) -> LogHandle | None:
        """What is known of a partition without opening its log."""
        return self._handles.get(topic_partition)

    def get(self, topic_partition: TopicPartition) -> PartitionLog:
        """The open log, opened now if need be. UNKNOWN_TOPIC_OR_PARTITION if there is none."""
        handle = self._handle(topic_partition)
        handle.is_in_use = True
        if handle.log is not None:
            return handle.log
        if handle.is_opening:
            raise LogBusy(f"The log of {topic_partition} is being opened")
        try:
            opened = self._open_in(handle, self._options(handle))
        except LogDirFailure as failure:
            raise self._fail(handle.directory, failure) from failure
        except DiskFull as full:
            self.note_full(handle.directory, full)
            raise
        self._adopt(handle, opened)
        return opened

    async def open(
        self, topic_partition: TopicPartition, *, leader_epoch: int | None = None
    ) -> PartitionLog:
        """The open log. A thread opens it if need be, and begins `leader_epoch` in it."""
        while True:
            handle = self._handle(topic_partition)
            handle.is_in_use = True
            if handle.log is not None:
                return handle.log
            await self._opened(handle, leader_epoch)

    async def borrow(self, handle: LogHandle) -> PartitionLog | None:
        """The open log for somebody who will `give_back`; None if it was deleted."""
        while handle.log is None and self.is_ours(handle):
            if handle.directory.failure is not None:
                raise handle.directory.failure
            await self._opened(handle, None)
        return handle.log

    def give_back(self, handle: LogHandle) -> bool:
        """Close a log that was borrowed, unless somebody has come to use it; whether it is."""
        if handle.log is not None and not handle.is_in_use and self.is_ours(handle):
            handle.log.close()
            handle.let_go()
        return handle.log is None

    async def _opened(self, handle: LogHandle, leader_epoch: int | None) -> None:
        opening = self._openings.get(handle.path)
        if opening is None:
            opening = self._begin_opening(
                handle, partial(self._open_in_thread, handle, leader_epoch)
            )
        await asyncio.shield(opening)

    async def recover(self, handle: LogHandle) -> None:
        """Recover a log that nobody uses; it is closed again if it has no producers."""
        if handle.needs_recovery and self.is_ours(handle) and not handle.is_opening:
            work = partial(self._recover_in_thread, handle)
            await asyncio.shield(self._begin_opening(handle, work))

    def is_ours(self, handle: LogHandle) -> bool:
        """Whether the handle still stands for its partition."""
        return self._handles.get(handle.topic_partition) is handle

    def _begin_opening(
        self, handle: LogHandle, work: Callable[[], Awaitable[None]]
    ) -> asyncio.Task[None]:
        async def perform() -> None:
            try:
                await work()
            except LogDirFailure as failure:
                if self.is_ours(handle):  # else it was deleted: of course its files are gone
                    raise self._fail(handle.directory, failure) from failure
            except DiskFull as full:
                self.note_full(handle.directory, full)
                raise
            finally:
                handle.is_opening = False
                del self._openings[handle.path]

        handle.is_opening = True
        self._openings[handle.path] = self.under_way.begin(perform())
        return self._openings[handle.path]

    async def _open_in_thread(self, handle: LogHandle, leader_epoch: int | None) -> None:
        options = self._options(handle)._replace(leader_epoch=leader_epoch)
        log = await self._runtime.offload.run(self._open_in, handle, options)
        self._adopt(handle, log)

    async def _recover_in_thread(self, handle: LogHandle) -> None:
        log = await self._runtime.offload.run(self._open_in, handle, self._options(handle))
        if len(log.producers):
            # A producer that is under way will be back, and must be known however old its
            # records are: those that a snapshot names may have expired.
            self._adopt(handle, log)
            return
        job = log.begin_flush(is_closing=True) if self.is_ours(handle) else None
        if job is not None:
            try:
                await self._runtime.offload.run(job.run)
            except OSError as error:
                if self.is_ours(handle):
                    raise log.abandon_flush(job, error) from error
            else:
                log.finish_flush(job)
            finally:
                job.release()
        if not self.is_ours(handle):
            log.abandon()
            return
        log.close()
        handle.adopt(log)
        handle.let_go()

    def _handle(self, topic_partition: TopicPartition) -> LogHandle:
        handle = self._handles.get(topic_partition)
        if handle is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no log of {topic_partition} here"
            )
        if handle.directory.failure is not None:
            raise handle.directory.failure
        return handle

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
        LogBusy while a thread still opens a deleted log of this name.
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
                self.note_full(directory, error)
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
        if path in self._openings:
            raise LogBusy(f"An older log of {topic_partition} is still being opened")
        handle = LogHandle(directory, topic_partition, path)
        try:
            try:
                self._disk.mkdir(path)
                handle.write_topic_id(topic_id)
            except OSError as error:
                if error.errno not in PASSING_ERRNOS:
                    raise
                self._remove_tree(path)
                raise DiskFull(directory.path, error) from error
        except OSError as error:
            raise self._fail(directory, LogDirFailure(directory.path, error)) from error
        directory.handles[topic_partition] = handle
        self._handles[topic_partition] = handle
        return handle

    def name_topic(self, topic_partition: TopicPartition, topic_id: UUID) -> None:
        """Say of an open log that does not know it whose records these are."""
        handle = self._handle(topic_partition)
        try:
            handle.write_topic_id(topic_id)
        except OSError as error:
            if error.errno in PASSING_ERRNOS:
                return  # the next start tries again
            raise self.fail(handle.directory, error) from error
        if handle.log is not None:
            handle.log.topic_id = topic_id

    def _nowhere(self) -> LogDirFailure:
        """No directory is left; says what is wrong with each."""
        causes = [one.failure.cause for one in self._directories if one.failure is not None]
        paths = ", ".join(one.path for one in self._directories)
        return LogDirFailure(paths, "; ".join(dict.fromkeys(map(str, causes))))

    def config_of(self, handle: LogHandle) -> TopicConfig:
        """The configuration of a log, whether or not it is open."""
        return self._config_of(handle.topic_partition.topic)

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
        try:
            topic_id = handle.topic_id
        except OSError as error:
            if error.errno in PASSING_ERRNOS:
                raise DiskFull(directory.path, error) from error
            raise LogDirFailure(directory.path, error) from error
        return open_log(
            self._runtime,
            self._pool,
            handle.topic_partition,
            topic_id,
            handle.path,
            options,
            on_failure=lambda failure: self._on_log_failure(directory, failure),
            on_recovery_point_lowered=lambda: self._save_recovery_points(directory),
            on_refusal=lambda refusal: self.note_full(directory, refusal),
            removals=self.removals,
        )

    def _save_recovery_points(self, directory: LogDirectory) -> None:
        """Of what was truncated the checkpoint must not say that it is synced."""
        try:
            directory.write_recovery_points()
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
        config = self.config_of(handle)
        if log.config is not config:
            log.update_config(config)  # changed while a thread opened the log

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

    def note_full(self, directory: LogDirectory, refusal: DiskFull) -> None:
        """Something was refused for want of room; say so, but not each time."""
        if directory.fullness.note(refusal, self._runtime.clock.monotonic()):
            log.error("%s; writes are refused until there is", refusal)
            self._on_directory_full(directory)

    def look_for_room(self) -> None:
        """Notice directories that have room again."""
        now = self._runtime.clock.monotonic()
        for directory in self.online_directories:
            if directory.fullness.cause is None:
                continue
            try:
                _, usable = self._disk.free_bytes(directory.path)
            except OSError as error:
                self.fail(directory, error)
                continue
            if directory.fullness.maybe_end(now, has_room=usable > 0):
                log.info("log directory %s has room again", directory.path)
                self._on_directory_full(directory)

    # Deleting.

    def delete(self, topic_partition: TopicPartition) -> str:
        """Take a partition away now; where its files lie until `file.delete.delay.ms` is over."""
        offline = self._handles.get(topic_partition)
        if offline is not None and offline.directory.failure is not None:
            # Its name is free for another topic; the files are left to whoever heals the disk.
            del self._handles[topic_partition]
            offline.directory.handles.pop(topic_partition, None)
            raise offline.directory.failure
        handle = self._handle(topic_partition)
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
        self.removals.add([path], self.config_of(handle).file_delete_delay_ms)
        return path

    def _remove_tree(self, path: str) -> None:
        if self._disk.exists(path):
            self._disk.rmtree(path)

    # Knowing.

    def high_watermark_of(self, topic_partition: TopicPartition) -> int:
        """As last checkpointed; 0 if it never was."""
        handle = self._handles.get(topic_partition)
        return 0 if handle is None else handle.high_watermark

    def on_configs_changed(self, topics: Collection[str] | None) -> None:
        """Logs that are open take the settings now in force, of these topics or, if None, of all.

        Whoever opened them: a log may be recovered or cleaned before its first request comes.
        """
        for handle in self._handles.values():
            if handle.log is not None and (
                topics is None or handle.topic_partition.topic in topics
            ):
                handle.log.update_config(self.config_of(handle))

    async def closed_segments_of(self, handle: LogHandle) -> Sequence[ClosedSegment]:
        """The segments of a log that is not open; a thread looks once. None of one that is."""
        if handle.log is not None or not self.is_ours(handle):
            return ()
        if handle.closed_segments is None:
            config = self.config_of(handle)
            try:
                found = await self._runtime.offload.run(handle.read_closed_segments, config)
            except OSError as error:
                if not self.is_ours(handle) or handle.log is not None or handle.is_opening:
                    return ()  # they changed while they were looked at
                if error.errno in PASSING_ERRNOS:
                    raise DiskFull(handle.directory.path, error) from error
                raise self.fail(handle.directory, error) from error
            if handle.log is not None or handle.is_opening:
                return ()
            handle.closed_segments = found
        return handle.closed_segments

    # Ending.

    def close(
        self,
        *,
        broker_epoch: int = -1,
        high_watermarks: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Close in order: logs flushed, checkpoints written, markers set, locks released.

        Nothing may be `under_way` any more.
        """
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
        self.removals.remove_all()
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
