"""One broker, put together and taken apart in order.

Start: take the log directories, replay the metadata, bind the listeners, register, and only then
serve requests. Stop is the reverse: give up leadership, let requests finish, close the logs with
the marker of a clean shutdown, close the metadata log.

Owned by the event loop's thread.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from ottla.config.broker import BrokerConfig
from ottla.config.definitions import ConfigError, render
from ottla.config.listeners import Listener
from ottla.coordinators.group.coordinator import GroupCoordinator
from ottla.coordinators.transaction.coordinator import TransactionCoordinator
from ottla.coordinators.transaction.marker_writer import MarkerWriter
from ottla.metadata.brokers import (
    BrokerHeartbeat,
    BrokerRegistration,
    HeartbeatResult,
    decide_heartbeat,
    decide_register_broker,
)
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.elections import UNCLEAN_LEADER_ELECTION
from ottla.metadata.endpoints import with_own_host_name
from ottla.metadata.features import MIN_INSYNC_REPLICAS, supported_feature_records
from ottla.metadata.image import MetadataImage
from ottla.metadata.node import LogPolicy, MetadataNode
from ottla.metadata.producer_ids import decide_allocate_producer_ids
from ottla.metadata.records import RecordEndpoint
from ottla.metadata.topics import CreatedTopic, NewTopic
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import BrokerId, TopicPartition
from ottla.replication.replica_manager import ReplicaManager
from ottla.runtime.interfaces import Runtime, SocketOptions
from ottla.server.connection_limits import ConnectionLimits
from ottla.server.connection_settings import limit_settings
from ottla.server.directories import (
    PROBE_INTERVAL_MS,
    DirectoryReporter,
    start_log_directories,
)
from ottla.server.dispatch import Dispatcher, Handler, Versions
from ottla.server.fetch_sessions import FetchSessions
from ottla.server.handlers import (
    ADVERTISED,
    ADVERTISED_BY_CONTROLLER,
    ADVERTISED_WITH_UNSTABLE,
    CONTROLLER_HANDLERS,
    HANDLERS,
)
from ottla.server.health import Health
from ottla.server.http import HttpServer, Page
from ottla.server.listener import Acceptor
from ottla.server.producer_ids import ProducerIdBlock, ProducerIds
from ottla.server.publisher import ConfigView, Publisher
from ottla.server.read_buffers import ReadBuffers
from ottla.server.services import Services
from ottla.server.ticker import Ticker
from ottla.server.topic_creation import create_topics
from ottla.storage.background_recovery import recover_unopened
from ottla.storage.cleaner import CleanerSettings, LogCleaner
from ottla.storage.failures import LogDirFailure
from ottla.storage.file_pool import share_of_files
from ottla.storage.log_directory import LogDirectory
from ottla.storage.log_manager import LogManager
from ottla.storage.log_retention import LogRetention
from ottla.storage.log_upkeep import LogUpkeep

log = logging.getLogger(__name__)

PLAINTEXT = 0  # the number of the security protocol in registrations
# How long requests under way may take when the broker stops.
STOP_GRACE_SECONDS = 5.0
# How often rolled segments are synced, and logs by flush.ms unless log.flush.scheduler.interval.ms
# says how often. Kafka's default of that never comes, and leaves flush.ms without effect.
FLUSH_TICK_MS = 1000
NEVER_MS = 2**63 - 1
# For what is neither a segment nor a client: checkpoints, snapshots, threads, listeners.
DESCRIPTORS_RESERVED = 256
SESSION_ID_MAX = 2**31 - 1
FATAL = "fatal"  # names the reason why the broker gave up


class Broker:
    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        *,
        http_address: tuple[str, int] | None = None,
        on_fatal: Callable[[BaseException], None] | None = None,
    ) -> None:
        """`http_address` serves health and metrics; `on_fatal` hears why it cannot go on."""
        _check_roles(config)
        self._runtime = runtime
        self._configs = ConfigView(config)
        self._health = Health()
        self._ticker = Ticker()
        self._acceptors: list[Acceptor] = []
        self._limits = ConnectionLimits()
        self._buffers = ReadBuffers(config.queued_max_request_bytes)
        self._http = HttpServer(
            runtime.network,
            {
                "/livez": self._health.live_page,
                "/readyz": self._health.ready_page,
                "/metrics": self._metrics_page,
            },
        )
        self._wanted_http_address = http_address
        self._on_fatal = on_fatal
        self._loop: asyncio.AbstractEventLoop | None = None  # while it serves
        self._broker_epoch = -1
        self._holds_logs = False
        self.broker_id = BrokerId(config.node_id)
        self.listeners: dict[str, tuple[str, int]] = {}
        self.http_address: tuple[str, int] | None = None
        self._open_files_max = share_of_files(runtime.descriptors_max)
        self.logs = LogManager(
            runtime,
            config.log_dirs,
            config_of=self._configs.topic,
            producer_expiration_ms=config.producer_id_expiration_ms,
            is_verification_required=config.transaction_partition_verification_enable,
            open_files_max=self._open_files_max,
            on_directory_failure=self._on_directory_failure,
            on_directory_full=self._on_directory_full,
        )
        self._upkeep = LogUpkeep(runtime, self.logs)
        self._retention = LogRetention(runtime, self.logs)
        self.logs.cordon(config.cordoned_log_dirs)
        self.metadata = MetadataNode(
            runtime,
            node_id=config.node_id,
            directory=config.metadata_log_dir,
            static_voter_ids=[voter.node_id for voter in config.controller_quorum_voters],
            static_configs={
                name: render(config.get(name)) or ""
                for name in (MIN_INSYNC_REPLICAS, UNCLEAN_LEADER_ELECTION)
            },
            policy=LogPolicy(
                config.metadata_log_max_record_bytes_between_snapshots,
                config.metadata_log_max_snapshot_interval_ms,
                config.metadata_max_retention_bytes,
                config.metadata_max_retention_ms,
                config.metadata_log_segment_bytes,
                config.metadata_log_segment_ms,
                config.internal_metadata_max_batch_size_in_bytes,
            ),
            on_failure=self._on_metadata_failure,
            lock_directory=config.metadata_log_dir.rstrip("/")
            not in [path.rstrip("/") for path in config.log_dirs],
        )
        self.replicas = ReplicaManager(broker_id=self.broker_id, logs=self.logs)
        self.cleaner = LogCleaner(
            runtime,
            self.logs,
            settings=self._cleaner_settings,
            last_stable_offset_of=self._last_stable_offset_of,
        )
        self.directories = DirectoryReporter(
            runtime,
            broker_id=self.broker_id,
            logs=self.logs,
            replicas=self.replicas,
            metadata=self.metadata,
            failure_timeout_ms=lambda: self.config.log_dir_failure_timeout_ms,
            on_unheard=self._give_up,
        )
        self.groups = GroupCoordinator(
            runtime,
            self.replicas,
            broker_id=self.broker_id,
            config=lambda: self.config,
            image=lambda: self.metadata.image,
            create_topic=self._create_internal_topic,
        )
        self.producer_ids = ProducerIds(self._allocate_producer_ids)
        self.markers = MarkerWriter(
            runtime,
            self.replicas,
            self.groups,
            timeout_ms=lambda: self.config.request_timeout_ms,
        )
        self.transactions = TransactionCoordinator(
            runtime,
            self.replicas,
            self.markers,
            broker_id=self.broker_id,
            config=lambda: self.config,
            image=lambda: self.metadata.image,
            create_topic=self._create_internal_topic,
            new_producer_id=self.producer_ids.next,
        )
        self.services = Services(
            runtime=runtime,
            configs=self._configs,
            broker_id=self.broker_id,
            metadata=self.metadata,
            replicas=self.replicas,
            logs=self.logs,
            cleaner=self.cleaner,
            groups=self.groups,
            transactions=self.transactions,
            markers=self.markers,
            fetch_sessions=FetchSessions(
                config.max_incremental_fetch_session_cache_slots,
                lambda: runtime.random.randint(1, SESSION_ID_MAX),
                lambda: len(self.replicas.partitions),
            ),
            producer_ids=self.producer_ids,
        )

    @property
    def config(self) -> BrokerConfig:
        return self._configs.broker

    async def start(self) -> None:
        """Return once clients are served; KafkaError if that takes server.max.startup.time.ms."""
        time_ms_max = self.config.server_max_startup_time_ms
        try:
            async with asyncio.timeout(time_ms_max / 1000 if time_ms_max < NEVER_MS else None):
                await self._start()
        except TimeoutError as error:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"The broker has not started within server.max.startup.time.ms={time_ms_max}",
            ) from error

    async def _start(self) -> None:
        if self._wanted_http_address is not None:
            self.http_address = await self._http.listen(*self._wanted_http_address)
        start_log_directories(
            self._runtime,
            self.logs,
            node_id=self.config.node_id,
            metadata_log_dir=self.config.metadata_log_dir,
        )
        self._holds_logs = True
        self.metadata.subscribe(
            Publisher(
                self.broker_id,
                self._configs,
                self.replicas,
                self.services.metrics.forget_topic,
            )
        )
        self.metadata.subscribe(self._on_configs)  # after the publisher took them
        self.metadata.subscribe(self.directories.on_metadata)  # after the replicas, as well
        self.metadata.subscribe(self.groups.on_metadata)  # after the replicas that it reads
        self.metadata.subscribe(self.transactions.on_metadata)  # likewise
        config = self.config
        for listener in config.controller_listeners:
            await self._listen(listener, CONTROLLER_HANDLERS, ADVERTISED_BY_CONTROLLER)
        await self.metadata.start(
            controller_endpoints=await self._endpoints(config.advertised_controller_listeners)
        )
        self._warn_of_strays()
        await self._update_limits()  # as the metadata log has them
        is_unstable = config.unstable_api_versions_enable
        for listener in config.broker_listeners:
            advertised = ADVERTISED_WITH_UNSTABLE if is_unstable else ADVERTISED
            await self._listen(listener, HANDLERS, advertised)
        await self._register()
        await self._heartbeat()
        self._loop = asyncio.get_running_loop()
        for directory in self.logs.directories:
            if directory.failure is not None:
                self._after_directory_failure(directory.failure)
        self.directories.start(self._broker_epoch)
        self._schedule_duties()
        if self.config.log_cleaner_enable:
            self.cleaner.start()
        for acceptor in self._acceptors:
            acceptor.open()
        del self._health.reasons["start"]

    async def stop(self) -> None:
        """Answer what is under way, then close everything in order. Also after a failed start."""
        self._health.reasons["stop"] = "The broker is stopping."
        self._loop = None
        await self._ticker.stop()
        await self.cleaner.stop()
        await self.directories.stop()
        if self._broker_epoch >= 0 and self.config.controlled_shutdown_enable:
            try:
                await self._heartbeat(want_shut_down=True)
            except KafkaError as error:
                log.error("stopping without a controlled shutdown: %s", error)
        await self.transactions.stop()
        await self.groups.stop()
        for acceptor in self._acceptors:
            await acceptor.close(STOP_GRACE_SECONDS)
        if self._holds_logs:
            await self.logs.under_way.settle()
            high_watermarks = dict(self.replicas.high_watermarks())
            self.logs.close(broker_epoch=self._broker_epoch, high_watermarks=high_watermarks)
        try:
            await self.metadata.stop()
        except (OSError, KafkaError) as error:
            if FATAL not in self._health.reasons:
                raise
            log.error("the metadata log was not closed in order: %s", error)
        finally:
            self._http.close()

    async def _listen(
        self, listener: Listener, handlers: tuple[Handler, ...], advertised: Versions
    ) -> None:
        """Bind one address. Who connects is read from once all of the broker is there."""
        config = self.config
        acceptor = Acceptor(
            self._runtime,
            listener.name,
            Dispatcher(self.services, listener.name, handlers, advertised),
            self._limits,
            self._buffers,
            request_bytes_max=config.socket_request_max_bytes,
            idle_ms_max=config.connections_max_idle_ms,
            waiting_max=config.socket_listen_backlog_size,
            on_room=self._admit,
        )
        self._acceptors.append(acceptor)
        self.listeners[listener.name] = await acceptor.listen(
            listener.host,
            listener.port,
            SocketOptions(
                config.socket_listen_backlog_size,
                config.socket_receive_buffer_bytes,
                config.socket_send_buffer_bytes,
            ),
        )

    def _admit(self) -> None:
        for acceptor in self._acceptors:
            acceptor.admit()

    async def _update_limits(self) -> None:
        """Take the limits of connections as they are configured now."""
        spare = self._runtime.descriptors_max - self._open_files_max - DESCRIPTORS_RESERVED
        self._limits.update(
            await limit_settings(self._runtime.network, self.config, connections_max=max(spare, 1))
        )
        for acceptor in self._acceptors:
            acceptor.close_excess()
        self._admit()

    async def _endpoints(self, advertised: Iterable[Listener]) -> tuple[RecordEndpoint, ...]:
        """What others are told; a port that was left to the kernel is the one it gave."""
        found = []
        for listener in advertised:
            bound = self.listeners.get(listener.name)
            if bound is not None:
                port = listener.port or bound[1]
                found.append(RecordEndpoint(listener.name, listener.host, port, PLAINTEXT))
        return await with_own_host_name(self._runtime, found)

    async def _register(self) -> None:
        registration = BrokerRegistration(
            self.broker_id,
            self._runtime.random.uuid4(),
            await self._endpoints(self.config.advertised_listeners),
            supported_feature_records(),
            self.config.broker_rack,
            tuple(
                directory.directory_id
                for directory in self.logs.online_directories
                if directory.directory_id is not None
            ),
            self.logs.broker_epoch_of_clean_shutdown,
            tuple(
                directory.directory_id
                for directory in self.logs.online_directories
                if directory.is_cordoned and directory.directory_id is not None
            ),
        )
        self._broker_epoch = await self.metadata.submit(
            lambda image: decide_register_broker(image, registration)
        )

    async def _heartbeat(self, *, want_shut_down: bool = False) -> HeartbeatResult:
        """Tell the controller that this broker is there, and what it wants."""
        result = HeartbeatResult(False, True, False)
        for _ in range(2):  # a shutdown takes two: leaders move first, then the broker is let go
            result = await self.metadata.submit(
                lambda image: decide_heartbeat(
                    image,
                    BrokerHeartbeat(
                        self.broker_id,
                        self._broker_epoch,
                        self.metadata.image.offset,
                        want_shut_down=want_shut_down,
                    ),
                )
            )
            if not want_shut_down or result.should_shut_down:
                break
        return result

    async def _allocate_producer_ids(self) -> ProducerIdBlock:
        block = await self.metadata.submit(
            lambda image: decide_allocate_producer_ids(
                image, broker_id=self.broker_id, broker_epoch=self._broker_epoch
            )
        )
        return ProducerIdBlock(block.first_producer_id, block.size)

    async def _create_internal_topic(self, topic: NewTopic) -> CreatedTopic:
        return (await create_topics(self.services, [topic]))[0]

    def _schedule_duties(self) -> None:
        config = self.config
        every = self._ticker.every
        every(
            config.log_retention_check_interval_ms,
            self._retain,
            initial_delay_ms=config.log_initial_task_delay_ms,
        )
        self._ticker.once(lambda: recover_unopened(self.logs))
        self._ticker.once(lambda: self.logs.removals.run(self.logs.under_way))
        every(FLUSH_TICK_MS, self._upkeep.flush_rolled)
        every(FLUSH_TICK_MS, self._upkeep.look_for_room)
        flush_ms = config.log_flush_scheduler_interval_ms
        every(flush_ms if flush_ms < NEVER_MS else FLUSH_TICK_MS, self._upkeep.flush_due)
        every(PROBE_INTERVAL_MS, self.directories.probe)
        every(config.replica_high_watermark_checkpoint_interval_ms, self._checkpoint)
        every(config.log_flush_offset_checkpoint_interval_ms, self._upkeep.save_recovery_points)
        every(
            config.log_flush_start_offset_checkpoint_interval_ms,
            self._upkeep.save_log_start_offsets,
        )
        every(config.producer_id_expiration_check_interval_ms, self._upkeep.expire_producers)
        every(config.offsets_retention_check_interval_ms, self.groups.on_expiry_tick)
        every(
            config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            self.transactions.on_timeout_tick,
        )
        every(
            config.transaction_remove_expired_transaction_cleanup_interval_ms,
            self.transactions.on_expiry_tick,
        )

    def _on_configs(self, _image: MetadataImage, _delta: MetadataDelta) -> None:
        config = self.config
        self.logs.require_verification(config.transaction_partition_verification_enable)
        self.logs.expire_producers_after(config.producer_id_expiration_ms)
        self._runtime.offload.resize(config.background_threads)
        if self.logs.cordon(config.cordoned_log_dirs):
            self.directories.on_cordoned()
        if self._loop is not None:
            self._ticker.once(self._update_limits)

    async def _retain(self) -> None:
        await self._retention.run(self._high_watermark_of)

    async def _checkpoint(self) -> None:
        await self._upkeep.save_high_watermarks(dict(self.replicas.high_watermarks()))

    def _high_watermark_of(self, topic_partition: TopicPartition) -> int | None:
        partition = self.replicas.partitions.get(topic_partition)
        if partition is None or not partition.is_open:
            return None
        return partition.high_watermark

    def _last_stable_offset_of(self, topic_partition: TopicPartition) -> int | None:
        partition = self.replicas.partitions.get(topic_partition)
        if partition is None or not partition.is_open:
            return None
        return partition.last_stable_offset

    def _cleaner_settings(self) -> CleanerSettings:
        config = self.config
        return CleanerSettings(
            config.log_cleaner_threads,
            config.log_cleaner_dedupe_buffer_size,
            config.log_cleaner_io_buffer_load_factor,
            config.log_cleaner_io_buffer_size,
            config.log_cleaner_io_max_bytes_per_second,
            config.log_cleaner_backoff_ms,
        )

    def _warn_of_strays(self) -> None:
        strays = [one for one in self.logs.topic_partitions if one not in self.replicas.partitions]
        if strays:
            log.warning(
                "%d partition directories belong to no topic and are left alone, among them %s",
                len(strays),
                strays[0],
            )

    def _metrics_page(self, _query: str) -> Page:
        from ottla.server.exposition import CONTENT_TYPE, render

        return Page(200, CONTENT_TYPE, render(self.services))

    def _on_directory_failure(self, failure: LogDirFailure) -> None:
        """Perhaps in a thread, and in the middle of an append: react later, on the loop."""
        log.error("%s", failure)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._after_directory_failure, failure)

    def _after_directory_failure(self, failure: LogDirFailure) -> None:
        self._health.warnings[f"log directory {failure.directory}"] = str(failure)
        self.replicas.on_directory_failure(failure)
        self.directories.on_directory_failure()
        if failure.directory == self.config.metadata_log_dir.rstrip("/"):
            self._give_up(f"{failure}; it holds the metadata log, too")
        elif not self.logs.online_directories:
            self._give_up(f"{failure}; it was the last one")

    def _on_directory_full(self, directory: LogDirectory) -> None:
        """It has no room left, or has some again."""
        name = f"room in {directory.path}"
        if directory.fullness.cause is None:
            self._health.warnings.pop(name, None)
        else:
            self._health.warnings[name] = str(directory.fullness.cause)

    def _on_metadata_failure(self, error: BaseException) -> None:
        self._give_up(f"The metadata log in {self.config.metadata_log_dir} has failed: {error}")

    def _give_up(self, reason: str) -> None:
        """Without a log directory or the metadata log there is nothing left to serve."""
        self._health.reasons[FATAL] = reason
        if self._on_fatal is not None and self._loop is not None:
            error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason)
            self._loop.call_soon(self._on_fatal, error)


def _check_roles(config: BrokerConfig) -> None:
    if config.process_roles != {"broker", "controller"}:
        raise ConfigError(
            "process.roles must be broker,controller: this version runs one node that is both"
        )
    voters = {voter.node_id for voter in config.controller_quorum_voters}
    if voters and voters != {config.node_id}:
        raise ConfigError(
            f"controller.quorum.voters must name node {config.node_id} alone: "
            "this version runs a quorum of one"
        )
