"""The broker's log directories, as the controller must know them: what lies where, what failed.

A disk fails when somebody touches it, in the middle of an append or in a thread, and the failing
append cannot wait for the controller. So the failure itself only marks the directory and its
logs; one task tells the controller afterwards, first where replicas lie whose place it does not
know, then which directories are gone. In that order, or a replica whose disk died before it was
placed would keep its lead. What the controller has heard already changes nothing, so whatever
goes wrong is simply told again.

Owned by the event loop's thread.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.directories import (
    ReplicaDirectory,
    decide_assign_replicas,
    decide_cordon_directories,
    decide_directories_offline,
    knows_directories,
)
from ottla.metadata.formatting import FormatError, read_meta_properties
from ottla.metadata.image import LOST_DIRECTORY, MetadataImage
from ottla.metadata.node import MetadataNode
from ottla.protocol.errors import KafkaError
from ottla.protocol.ids import BrokerId, TopicPartition
from ottla.replication.replica_manager import ReplicaManager
from ottla.runtime.interfaces import Disk, Runtime
from ottla.storage.failures import LogDirFailure, WrongLogDirError
from ottla.storage.files.malformed import MalformedFileError
from ottla.storage.files.meta_properties import FILE_NAME as META_PROPERTIES
from ottla.storage.log_directory import NodeIdentity
from ottla.storage.log_manager import LogManager

log = logging.getLogger(__name__)

# One batch of the metadata log each; Kafka's requests hold as many.
ASSIGNMENTS_PER_CHANGE_MAX = 2250
# The controller refuses only while it is overloaded or has failed for good.
RETRY_SECONDS = 1.0
# How soon a disk that nobody reads or writes is noticed to be gone.
PROBE_INTERVAL_MS = 5000


class PartitionKey(NamedTuple):
    """Of a topic's present life, so that a topic created anew is another one."""

    topic_id: UUID
    partition: int


def start_log_directories(
    runtime: Runtime, logs: LogManager, *, node_id: int, metadata_log_dir: str
) -> None:
    """Take the log directories for the node that the metadata directory was formatted for.

    Those that cannot be used are left offline; FormatError or LogDirFailure if one is another
    node's, or if the metadata directory is among those that cannot be used.
    """
    try:
        properties = read_meta_properties(runtime, metadata_log_dir)
    except (OSError, MalformedFileError) as error:
        raise LogDirFailure(metadata_log_dir, error) from error
    if properties is None:
        raise FormatError(f"{metadata_log_dir} is not formatted; run `ottla storage format`")
    try:
        logs.start(NodeIdentity(properties.cluster_id or "", node_id))
    except WrongLogDirError as error:
        raise FormatError(str(error)) from error
    for directory in logs.directories:
        if directory.failure is not None and directory.path == metadata_log_dir.rstrip("/"):
            raise directory.failure


def replicas_to_assign(
    image: MetadataImage,
    broker_id: int,
    keys: Iterable[PartitionKey],
    directory_of: Callable[[TopicPartition], UUID | None],
) -> list[ReplicaDirectory]:
    """Which of these partitions lie elsewhere than the metadata says.

    One that is lost stays where it is known to be, so that it can be led again from there.
    """
    broker = image.brokers.get(broker_id)
    found: list[ReplicaDirectory] = []
    if broker is None:
        return found  # somebody unregistered it; it tells again when it comes back
    for key in keys:
        topic = image.topic_with_id(key.topic_id)
        partition = None if topic is None else topic.partitions.get(key.partition)
        if topic is None or partition is None or broker_id not in partition.replicas:
            continue
        actual = directory_of(TopicPartition(topic.name, key.partition))
        recorded = partition.directory_of(broker_id)
        if actual == LOST_DIRECTORY and not broker.has_online_directory(recorded):
            continue
        if actual is not None and actual != recorded:
            found.append(ReplicaDirectory(key.topic_id, key.partition, actual))
    return found


class DirectoryReporter:
    """Tells the controller; `start` once the broker is registered."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        broker_id: BrokerId,
        logs: LogManager,
        replicas: ReplicaManager,
        metadata: MetadataNode,
        failure_timeout_ms: Callable[[], int],
        on_unheard: Callable[[str], None],
    ) -> None:
        """`on_unheard` is told why when the controller was not for `failure_timeout_ms`."""
        self._runtime = runtime
        self._broker_id = broker_id
        self._broker_epoch = -1
        self._logs = logs
        self._replicas = replicas
        self._metadata = metadata
        self._failure_timeout_ms = failure_timeout_ms
        self._on_unheard = on_unheard
        self._unheard_since: float | None = None
        self._to_check: dict[PartitionKey, None] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Look at each partition that changed; subscribed after the replicas have followed."""
        for changed in delta.topics.values():
            for index, partition in changed.changed.items():
                if self._broker_id not in partition.replicas:
                    continue
                actual = self._directory_of(TopicPartition(changed.name, index))
                if actual != partition.directory_of(self._broker_id):
                    self._to_check[PartitionKey(changed.topic_id, index)] = None
                    self._wake.set()

    def on_directory_failure(self) -> None:
        self._wake.set()

    def on_cordoned(self) -> None:
        """Other directories than before take no new partitions."""
        self._wake.set()

    def start(self, broker_epoch: int) -> None:
        self._broker_epoch = broker_epoch
        self._wake.set()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def probe(self) -> None:
        """Find disks that are gone although nobody uses them. A duty that comes round."""
        for directory in self._logs.online_directories:
            try:
                await self._runtime.offload.run(_touch, self._runtime.disk, directory.path)
            except OSError as error:
                self._logs.fail(directory, error)
        if self._to_check:
            self._wake.set()  # one that found all disks full may have found room since

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not knows_directories(self._metadata.image):
                continue  # an old metadata version has no place for any of it
            try:
                await self._report_cordoned()
                await self._assign()
                await self._report_offline()
                self._unheard_since = None
            except KafkaError as error:
                log.error("the controller was not told of the log directories: %s", error)
                self._give_up_if_unheard_for_long(error)
                await asyncio.sleep(RETRY_SECONDS)
                self._wake.set()

    def _give_up_if_unheard_for_long(self, error: KafkaError) -> None:
        """Clients would be sent to partitions in a failed directory for ever."""
        if all(directory.failure is None for directory in self._logs.directories):
            return
        now = self._runtime.clock.monotonic()
        if self._unheard_since is None:
            self._unheard_since = now
        elif (now - self._unheard_since) * 1000 >= self._failure_timeout_ms():
            self._on_unheard(f"The controller cannot be told of a failed log directory: {error}")

    async def _report_cordoned(self) -> None:
        cordoned = {
            one.directory_id
            for one in self._logs.directories
            if one.is_cordoned and one.directory_id is not None
        }
        broker = self._metadata.image.brokers.get(self._broker_id)
        if broker is None or set(broker.cordoned_log_dirs or ()) == cordoned:
            return
        await self._metadata.submit(
            lambda newest: decide_cordon_directories(
                newest,
                broker_id=self._broker_id,
                broker_epoch=self._broker_epoch,
                cordoned=cordoned,
            )
        )

    async def _assign(self) -> None:
        unplaced: dict[PartitionKey, None] = {}
        while self._to_check:
            keys = list(islice(self._to_check, ASSIGNMENTS_PER_CHANGE_MAX))
            image = self._metadata.image
            wanted = replicas_to_assign(image, self._broker_id, keys, self._directory_of)
            if wanted:
                await self._submit_assignments(wanted)
            for key in keys:
                self._to_check.pop(key, None)
                topic = image.topic_with_id(key.topic_id)
                if topic and not self._directory_of(TopicPartition(topic.name, key.partition)):
                    unplaced[key] = None
        self._to_check = unplaced

    async def _submit_assignments(self, replicas: list[ReplicaDirectory]) -> None:
        await self._metadata.submit(
            lambda newest: decide_assign_replicas(
                newest,
                broker_id=self._broker_id,
                broker_epoch=self._broker_epoch,
                replicas=replicas,
            )
        )

    async def _report_offline(self) -> None:
        offline = {
            directory.directory_id
            for directory in self._logs.directories
            if directory.failure is not None and directory.directory_id is not None
        }
        if not offline or not self._logs.online_directories:
            return  # without any directory the broker stops, and is fenced
        await self._metadata.submit(
            lambda newest: decide_directories_offline(
                newest,
                broker_id=self._broker_id,
                broker_epoch=self._broker_epoch,
                offline=offline,
            )
        )

    def _directory_of(self, topic_partition: TopicPartition) -> UUID | None:
        """Where the replica lies; None if it waits for room."""
        handle = self._logs.find(topic_partition)
        if handle is not None:
            return handle.directory.directory_id
        partition = self._replicas.partitions.get(topic_partition)
        return None if partition is None or partition.failure is None else LOST_DIRECTORY


def _touch(disk: Disk, path: str) -> None:
    disk.size(f"{path}/{META_PROPERTIES}")
