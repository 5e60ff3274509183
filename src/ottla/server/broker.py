"""One broker, put together and taken apart in order.

Start: take the log directories, replay the metadata, bind the listeners, register, and only then
serve requests. Stop is the reverse: give up leadership, let requests finish, close the logs with
the marker of a clean shutdown, close the metadata log.

Owned by the event loop's thread.
"""

import asyncio
import logging
from collections.abc import Callable

from ottla.config.broker import BrokerConfig
from ottla.config.definitions import ConfigError
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
from ottla.metadata.endpoints import with_own_host_name
from ottla.metadata.features import supported_feature_records
from ottla.metadata.image import MetadataImage
from ottla.metadata.node import MetadataNode, SnapshotPolicy
from ottla.metadata.producer_ids import decide_allocate_producer_ids
from ottla.metadata.records import RecordEndpoint
from ottla.metadata.topics import CreatedTopic, NewTopic
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import BrokerId, TopicPartition
from ottla.replication.replica_manager import ReplicaManager
from ottla.runtime.interfaces import Runtime, SocketOptions
from ottla.server.connection import ReadBuffers
from ottla.server.directories import (
    PROBE_INTERVAL_MS,
    DirectoryReporter,
    start_log_directories,
)
from ottla.server.dispatch import Dispatcher
from ottla.server.fetch_sessions import FetchSessions
from ottla.server.handlers import ADVERTISED, ADVERTISED_WITH_UNSTABLE, HANDLERS
from ottla.server.health import Health
from ottla.server.http import HttpServer, Page
from ottla.server.listener import Acceptor, ConnectionLimits
from ottla.server.producer_ids import ProducerIdBlock, ProducerIds
from ottla.server.publisher import ConfigView, Publisher
from ottla.server.services import Services
from ottla.server.ticker import Ticker
from ottla.server.topic_creation import create_topics
from ottla.storage.cleaner import CleanerSettings, LogCleaner
from ottla.storage.failures import LogDirFailure
from ottla.storage.log_manager import LogManager

log = logging.getLogger(__name__)

PLAINTEXT = 0  # the number of the security protocol in registrations
# How long requests under way may take when the broker stops.
STOP_GRACE_SECONDS = 5.0
# Rolled segments are synced soon, without waiting for flush.ms.
FLUSH_TICK_MS = 1000
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
        self.logs = LogManager(
            runtime,
            config.log_dirs,
            config_of=self._configs.topic,
            producer_expiration_ms=config.producer_id_expiration_ms,
            is_verification_required=config.transaction_partition_verification_enable,
            on_directory_failure=self._on_directory_failure,
        )
        self.metadata = MetadataNode(
            runtime,
            node_id=config.node_id,
            directory=config.metadata_log_dir,
            controller_endpoints=[
                RecordEndpoint(one.name, one.host, one.port, PLAINTEXT)
                for one in config.advertised_controller_listeners
            ],
            static_voter_ids=[voter.node_id for voter in config.controller_quorum_voters],
            min_insync_replicas=config.min_insync_replicas,
            snapshots=SnapshotPolicy(
                config.metadata_log_max_record_bytes_between_snapshots,
                config.metadata_log_max_snapshot_interval_ms,
                config.metadata_max_retention_bytes,
                config.metadata_max_retention_ms,
                config.metadata_log_segment_bytes,
                config.metadata_log_segment_ms,
            ),
            on_failure=self._on_metadata_failure,
            lock_directory=config.metadata_log_dir.rstrip("/")
            not in [path.rstrip("/") for path in config.log_dirs],
        )
        self.replicas = ReplicaManager(
            broker_id=self.broker_id, logs=self.logs, config_of=self._configs.topic
        )
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
            ),
            producer_ids=self.producer_ids,
            advertised_versions=ADVERTISED_WITH_UNSTABLE
            if config.unstable_api_versions_enable
            else ADVERTISED,
        )

    @property
    def config(self) -> BrokerConfig:
        return self._configs.broker

    async def start(self) -> None:
        """Return once clients are served."""
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
        await self.metadata.start()
        self._warn_of_strays()
        await self._listen()
        await self._register()
        await self._heartbeat()
        self._loop = asyncio.get_running_loop()
        for directory in self.logs.directories:
            if directory.failure is not None:
                self._after_directory_failure(directory.failure)
        self.directories.start(self._broker_epoch)
        self._schedule_duties()
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
        if self._broker_epoch >= 0:
            try:
                await self._heartbeat(want_shut_down=True)
            except KafkaError as error:
                log.error("stopping without a controlled shutdown: %s", error)
        await self.transactions.stop()
        await self.groups.stop()
        for acceptor in self._acceptors:
            await acceptor.close(STOP_GRACE_SECONDS)
        if self._holds_logs:
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

    async def _listen(self) -> None:
        config = self.config
        limits = ConnectionLimits(
            config.max_connections,
            config.max_connections_per_ip,
            dict(config.max_connections_per_ip_overrides),
        )
        buffers = ReadBuffers()
        for listener in config.broker_listeners:
            acceptor = Acceptor(
                self._runtime,
                listener.name,
                Dispatcher(self.services, listener.name, HANDLERS),
                limits,
                buffers,
                request_bytes_max=config.socket_request_max_bytes,
                idle_ms_max=config.connections_max_idle_ms,
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

    async def _endpoints(self) -> tuple[RecordEndpoint, ...]:
        """What clients are told; a port that was left to the kernel is the one it gave."""
        found = []
        for listener in self.config.advertised_listeners:
            bound = self.listeners.get(listener.name)
            if bound is not None:
                port = listener.port or bound[1]
                found.append(RecordEndpoint(listener.name, listener.host, port, PLAINTEXT))
        return await with_own_host_name(self._runtime, found)

    async def _register(self) -> None:
        registration = BrokerRegistration(
            self.broker_id,
            self._runtime.random.uuid4(),
            await self._endpoints(),
            supported_feature_records(),
            self.config.broker_rack,
            tuple(
                directory.directory_id
                for directory in self.logs.online_directories
                if directory.directory_id is not None
            ),
            self.logs.broker_epoch_of_clean_shutdown,
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
        every(FLUSH_TICK_MS, self.logs.on_flush_tick)
        every(PROBE_INTERVAL_MS, self.directories.probe)
        every(config.replica_high_watermark_checkpoint_interval_ms, self._checkpoint)
        every(config.log_flush_offset_checkpoint_interval_ms, self.logs.on_recovery_point_tick)
        every(
            config.log_flush_start_offset_checkpoint_interval_ms,
            self.logs.on_log_start_offset_tick,
        )
        every(config.producer_id_expiration_check_interval_ms, self.logs.on_producer_expiry_tick)
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
        self.logs.require_verification(self.config.transaction_partition_verification_enable)

    async def _retain(self) -> None:
        await self.logs.on_retention_tick(self._high_watermark_of)

    async def _checkpoint(self) -> None:
        await self.logs.on_high_watermark_tick(dict(self.replicas.high_watermarks()))

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
