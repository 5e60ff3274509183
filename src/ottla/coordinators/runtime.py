"""Coordinators as state machines over the partitions of an internal topic.

Whoever leads a partition coordinates the keys that hash to it. A shard's decisions are records;
they go to the partition's log and change the shard's state only when the log has committed them
(the high watermark has passed them), and only then is anybody told. So whatever a client was
told survives this broker, and a broker that takes over replays the same records into the same
state. On a single replica a record is committed as it is written, and a write is done in the
call that asked for it. Small writes that come by the thousand, commits of offsets, are gathered
for a turn of the loop and share a batch: most of their cost is the batch's.

A new leader reads its partition from the start to the end before it serves, a buffer at a time
and in slices, so that neither the disk nor a long log holds up the loop; clients are told
COORDINATOR_LOAD_IN_PROGRESS until then. Records at the end that the cluster has not committed
yet are waited for: what is served must not be taken back.

Owned by the event loop's thread. Invariants: records are replayed in the order of the log, each
once; the outcome of a write is reported exactly once; a shard of an old epoch is never used.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from enum import Enum, auto
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from ottla.coordinators.record_fields import KeyValue
from ottla.metadata.delta import MetadataDelta
from ottla.protocol.batches import (
    BatchHeader,
    ControlType,
    Record,
    build_batch,
    control_batch,
    iter_batches,
    iter_records,
    parse_control_key,
    plain_batch,
)
from ottla.protocol.codecs import Codec
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import NO_PRODUCER_ID, BrokerId, Epoch, Offset
from ottla.replication.partition import Partition
from ottla.replication.replica_manager import ReplicaManager
from ottla.runtime.interfaces import Runtime
from ottla.storage.core.append_origin import AppendOrigin
from ottla.storage.core.producer_state import NO_VERIFICATION_GUARD
from ottla.storage.log import AppendResult
from ottla.storage.slices import LogSlice

log = logging.getLogger(__name__)

NOT_WRITTEN = -1
# Records replayed before others get their turn on the loop: well under a millisecond.
REPLAY_SLICE_RECORDS = 200
READ_SLICE_RECORDS = 500  # the same for records that are only read
# How long a new leader waits, at a time, for the end of its log to be committed.
COMMIT_WAIT_MS = 5000
# Writes that share a batch, and what is too large to gain by it: together well below the megabyte
# that a topic takes.
GATHERED_WRITES_MAX = 256
GATHERED_RECORDS_MAX = 16  # of one write
LINGER_ADAPTIVELY_MS = -1

_RETRY = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    )
)
TOO_LARGE = frozenset((ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE))
_MOVED = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR))


class Shard(Protocol):
    """The state of one partition. Pure."""

    def replay(self, producer_id: int, key: bytes, value: bytes | None) -> None: ...

    def replay_decided(self, producer_id: int, record: KeyValue) -> None:
        """The same for a record that was decided here, and may be more than its bytes."""

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> None: ...


S = TypeVar("S", bound=Shard)
T = TypeVar("T")
OnDone = Callable[[ErrorCode], None]
WriteKey: TypeAlias = tuple[str, str]
"""What is written, and of whom: by this, writes that are under way are counted."""

_MARKERS: WriteKey = ("marker", "")


class Phase(Enum):
    LOADING = auto()
    ACTIVE = auto()
    FAILED = auto()  # its log cannot be read; another leader may be able to


class ProducerWrite(NamedTuple):
    """Records that count once their transaction does; the guard says that it is open."""

    producer_id: int
    producer_epoch: int
    guard: int


class EndMarker(NamedTuple):
    """The end of a transaction, to be written to each of its partitions."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int  # from 2 on its epoch must lie above that of the records

    def batch(self, now_ms: int) -> bytearray:
        return control_batch(
            ControlType.COMMIT if self.is_commit else ControlType.ABORT,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            coordinator_epoch=self.coordinator_epoch,
            timestamp_ms=now_ms,
        )


class _Write:
    """Records in the log, and who wants to know when they count."""

    __slots__ = ("end_offset", "key", "marker", "on_done", "producer_id", "records")

    def __init__(
        self,
        key: WriteKey,
        records: Sequence[KeyValue],
        on_done: OnDone,
        producer_id: int = NO_PRODUCER_ID,
        marker: EndMarker | None = None,
    ) -> None:
        self.key = key
        self.records = records
        self.end_offset = NOT_WRITTEN
        self.on_done: OnDone | None = on_done
        self.producer_id = producer_id
        self.marker = marker

    def replay(self, shard: Shard) -> None:
        for record in self.records:
            shard.replay_decided(self.producer_id, record)
        if self.marker is not None:
            shard.replay_marker(self.marker.producer_id, is_commit=self.marker.is_commit)

    def finish(self, code: ErrorCode) -> None:
        on_done, self.on_done = self.on_done, None
        if on_done is not None:
            on_done(code)


class Led(Generic[S]):
    """A partition that this broker leads, and its shard. Dead once it is led in another epoch."""

    def __init__(self, partition: Partition, epoch: Epoch, shard: S) -> None:
        self.partition = partition
        self.epoch = epoch
        self.shard = shard
        self.phase = Phase.LOADING
        self.in_flight: Counter[WriteKey] = Counter()  # writes that are not committed yet
        self.writes: deque[_Write] = deque()
        self.gathered: list[_Write] = []  # not in the log yet
        self.on_landed: list[asyncio.Future[None]] = []  # told when a write is no longer in flight

    @property
    def index(self) -> int:
        return self.partition.index

    def complete_until(self, high_watermark: int) -> None:
        """Replay what is committed by now, in the order of the log, and report it."""
        writes = self.writes
        while writes and writes[0].end_offset <= high_watermark:
            write = writes.popleft()
            write.replay(self.shard)
            self._land(write)
            write.finish(ErrorCode.NONE)

    def abandon(self) -> None:
        """Another broker will decide what becomes of the writes."""
        given_up = [*self.writes, *self.gathered]
        self.writes.clear()
        self.gathered.clear()
        self.fail(given_up, ErrorCode.NOT_COORDINATOR)

    def fail(self, writes: Iterable[_Write], code: ErrorCode) -> None:
        for write in writes:
            self._land(write)
            write.finish(code)

    def _land(self, write: _Write) -> None:
        self.in_flight[write.key] -= 1
        if not self.in_flight[write.key]:
            del self.in_flight[write.key]
        waiting, self.on_landed = self.on_landed, []
        for one in waiting:
            if not one.done():
                one.set_result(None)


class LoadSettings(NamedTuple):
    buffer_bytes: int
    write_timeout_ms: int
    codec: Codec = Codec.NONE
    linger_ms: int = 0  # how long writes are gathered; LINGER_ADAPTIVELY_MS for a turn of the loop


class CoordinatorRuntime(Generic[S]):
    def __init__(
        self,
        runtime: Runtime,
        replicas: ReplicaManager,
        topic: str,
        *,
        new_shard: Callable[[], S],
        settings: Callable[[], LoadSettings],
        on_loaded: Callable[[Led[S]], None],
        on_unloaded: Callable[[Led[S]], None],
    ) -> None:
        self.topic = topic
        self._runtime = runtime
        self._replicas = replicas
        self._new_shard = new_shard
        self._settings = settings
        self._on_loaded = on_loaded
        self._on_unloaded = on_unloaded
        self._led: dict[int, Led[S]] = {}
        self._to_load: deque[Led[S]] = deque()
        self._loader: asyncio.Task[None] | None = None

    def __iter__(self) -> Iterator[Led[S]]:
        """The partitions that are served now."""
        return iter([led for led in self._led.values() if led.phase is Phase.ACTIVE])

    @property
    def is_loading(self) -> bool:
        return any(led.phase is Phase.LOADING for led in self._led.values())

    def led(self, index: int) -> Led[S]:
        """The partition, ready to serve; NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS."""
        led = self._led.get(index)
        if led is None or led.phase is Phase.FAILED:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if led.phase is Phase.LOADING:
            if led in self._to_load:  # somebody waits for it: it is next
                self._to_load.remove(led)
                self._to_load.appendleft(led)
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return led

    def follow(self, delta: MetadataDelta, broker_id: BrokerId) -> None:
        """Load what `broker_id`, this broker, leads now; give up what it no longer does."""
        for deleted in delta.deleted_topics.values():
            if deleted.name == self.topic:
                for index in deleted.partitions:
                    self.resign(index)
        for topic in delta.topics.values():
            if topic.name != self.topic:
                continue
            for index, partition in topic.changed.items():
                if partition.leader == broker_id:
                    self.lead(index, Epoch(partition.leader_epoch))
                else:
                    self.resign(index)

    def lead(self, index: int, epoch: Epoch) -> None:
        """This broker leads the partition in `epoch`; load it unless it did already."""
        led = self._led.get(index)
        partition = self._replicas.partitions.get((self.topic, index))
        if partition is None or (led is not None and led.epoch == epoch):
            return
        # Another broker may have led between two epochs of ours, so nothing is taken over.
        self.resign(index)
        led = self._led[index] = Led(partition, epoch, self._new_shard())
        self._to_load.append(led)
        if self._loader is None:
            self._loader = asyncio.get_running_loop().create_task(self._load_all())

    def resign(self, index: int) -> None:
        """Another broker leads the partition, or nobody."""
        led = self._led.pop(index, None)
        if led is None:
            return
        was_active = led.phase is Phase.ACTIVE
        led.phase = Phase.FAILED
        led.abandon()
        if was_active:
            self._on_unloaded(led)

    async def stop(self) -> None:
        """Stop loading and give everything up."""
        loader, self._loader = self._loader, None
        for index in list(self._led):
            self.resign(index)
        if loader is not None:
            loader.cancel()
            await asyncio.gather(loader, return_exceptions=True)

    def write(
        self,
        led: Led[S],
        key: WriteKey,
        records: Sequence[KeyValue],
        on_done: OnDone,
        *,
        producer: ProducerWrite | None = None,
    ) -> None:
        """Append `records`; `on_done` hears when they are replayed, or why they are not.

        It may be called before this returns. After a timeout the records may still be committed
        later, and are replayed then.
        """
        if not records:
            on_done(ErrorCode.NONE)
            return
        self._write_gathered(led)
        producer_id = NO_PRODUCER_ID if producer is None else producer.producer_id
        write = _Write(key, records, on_done, producer_id)
        try:
            appended = self._append(led, records, producer)
        except KafkaError as error:
            on_done(client_error(error.code))
            return
        write.end_offset = appended.last_offset + 1
        if not led.writes and write.end_offset <= led.partition.high_watermark:
            # Alone in sync, as on a single broker: it is committed already.
            write.replay(led.shard)
            write.finish(ErrorCode.NONE)
            return
        led.in_flight[key] += 1
        self._replay_when_committed(led, [write])

    def gather(
        self, led: Led[S], key: WriteKey, records: Sequence[KeyValue], on_done: OnDone
    ) -> None:
        """As `write`, in one batch with others that come soon, if the settings let it wait."""
        linger_ms = self._settings().linger_ms
        if not linger_ms or len(records) > GATHERED_RECORDS_MAX or not records:
            self.write(led, key, records, on_done)
            return
        if not led.gathered:
            loop = asyncio.get_running_loop()
            if linger_ms == LINGER_ADAPTIVELY_MS:
                loop.call_soon(self._write_gathered, led)
            else:
                loop.call_later(linger_ms / 1000, self._write_gathered, led)
        led.in_flight[key] += 1
        led.gathered.append(_Write(key, records, on_done))
        if len(led.gathered) >= GATHERED_WRITES_MAX:
            self._write_gathered(led)

    def _write_gathered(self, led: Led[S]) -> None:
        if not led.gathered:
            return
        writes, led.gathered = led.gathered, []
        try:
            appended = self._append(led, [one for write in writes for one in write.records])
        except KafkaError as error:
            if error.code in TOO_LARGE and len(writes) > 1:
                for write in writes:
                    led.gathered = [write]
                    self._write_gathered(led)
            else:
                led.fail(writes, client_error(error.code))
            return
        end_offset = appended.base_offset
        for write in writes:
            end_offset += len(write.records)
            write.end_offset = end_offset
        self._replay_when_committed(led, writes)

    def write_marker(self, led: Led[S], marker: EndMarker, on_done: OnDone) -> None:
        """End a transaction that has records in this partition; errors are the log's own."""
        self._write_gathered(led)
        write = _Write(_MARKERS, (), on_done, marker=marker)
        try:
            self._check_served(led)
            appended = led.partition.append_guarded(
                marker.batch(self._runtime.clock.wall_ms()),
                acks=-1,
                origin=AppendOrigin.COORDINATOR,
                transaction_version=marker.transaction_version,
            )
        except KafkaError as error:
            on_done(error.code)
            return
        write.end_offset = appended.last_offset + 1
        led.in_flight[write.key] += 1
        self._replay_when_committed(led, [write])

    def _append(
        self, led: Led[S], records: Sequence[KeyValue], producer: ProducerWrite | None = None
    ) -> AppendResult:
        self._check_served(led)
        return led.partition.append_guarded(
            self._batch(records, self._settings().codec, producer),
            acks=-1,
            origin=AppendOrigin.COORDINATOR,
            guard=NO_VERIFICATION_GUARD if producer is None else producer.guard,
        )

    def _check_served(self, led: Led[S]) -> None:
        if led.phase is not Phase.ACTIVE:  # one that was given up is not, either
            raise KafkaError(ErrorCode.NOT_COORDINATOR)

    def _replay_when_committed(self, led: Led[S], writes: Sequence[_Write]) -> None:
        """Have writes that lie in the log, and are in flight, replayed once they are committed."""
        led.writes.extend(writes)
        led.complete_until(led.partition.high_watermark)
        for write in writes:
            if write.on_done is not None:
                self._await_commit(led, write, self._settings().write_timeout_ms)

    def _await_commit(self, led: Led[S], write: _Write, timeout_ms: int) -> None:
        def on_done(expired: bool) -> None:
            led.complete_until(led.partition.high_watermark)
            write.finish(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if expired and self._led.get(led.index) is led:
                # Nobody waits any more, but it must be replayed when it is committed after all.
                self._await_commit(led, write, COMMIT_WAIT_MS)

        self._replicas.await_commit(
            [(led.partition, Offset(write.end_offset))], timeout_ms, on_done
        )

    def _batch(
        self, records: Sequence[KeyValue], codec: Codec, producer: ProducerWrite | None
    ) -> bytearray:
        now_ms = self._runtime.clock.wall_ms()
        if producer is None and codec is Codec.NONE:
            return plain_batch([(one.key, one.value) for one in records], now_ms)
        batch = [Record(at, now_ms, one.key, one.value) for at, one in enumerate(records)]
        if producer is None:
            return build_batch(batch, codec=codec)
        return build_batch(
            batch,
            codec=codec,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            is_transactional=True,
        )

    # Loading

    async def _load_all(self) -> None:
        """One partition after another, those that are asked for first."""
        while self._to_load:
            led = self._to_load.popleft()
            if self._led.get(led.index) is not led:
                continue
            try:
                await self._load(led)
            except (KafkaError, OSError) as error:
                log.error("%s-%d cannot be loaded: %s", self.topic, led.index, error)
                led.phase = Phase.FAILED
        self._loader = None

    async def _load(self, led: Led[S]) -> None:
        partition = led.partition
        opened = await partition.open()
        end_offset = opened.log_end_offset
        offset = opened.log_start_offset
        while offset < end_offset and self._led.get(led.index) is led:
            found = partition.log.read(
                offset, self._settings().buffer_bytes, end_offset=end_offset, at_least_one=True
            )
            if not found.length:
                break
            data = await self._runtime.offload.run(_read, found)
            offset = await self._replay(led.shard, data)
        while self._led.get(led.index) is led:
            if partition.high_watermark >= end_offset:
                led.phase = Phase.ACTIVE
                self._on_loaded(led)
                return
            await self._committed(partition, end_offset)

    async def _replay(self, shard: S, data: bytes) -> int:
        """Replay the batches in `data`; the offset after them.

        Of plain records only the last of each key is replayed, as if the log had been compacted
        there: groups commit the same offsets over and over.
        """
        next_offset = 0
        since_pause = 0
        latest: dict[bytes, bytes | None] = {}
        view = memoryview(data)
        for at, header in iter_batches(data):
            records = iter_records(view[at : at + header.size_bytes])
            if header.is_control or header.is_transactional:
                await self._replay_latest(shard, latest)
                self._replay_transactional(shard, header, records)
            else:
                for record in records:
                    if record.key is not None:
                        latest.pop(record.key, None)  # so that the order is that of the last ones
                        latest[record.key] = record.value
            since_pause += header.records_count
            if since_pause >= READ_SLICE_RECORDS:
                since_pause = 0
                await asyncio.sleep(0)
            next_offset = header.next_offset
        if not next_offset:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "The log ends inside a batch")
        await self._replay_latest(shard, latest)
        return next_offset

    async def _replay_latest(self, shard: S, latest: dict[bytes, bytes | None]) -> None:
        for number, (key, value) in enumerate(latest.items(), 1):
            shard.replay(NO_PRODUCER_ID, key, value)
            if number % REPLAY_SLICE_RECORDS == 0:
                await asyncio.sleep(0)
        latest.clear()

    def _replay_transactional(
        self, shard: S, header: BatchHeader, records: Iterable[Record]
    ) -> None:
        for record in records:
            if not header.is_control:
                if record.key is not None:
                    shard.replay(header.producer_id, record.key, record.value)
                continue
            control = parse_control_key(record.key)
            if control in (ControlType.COMMIT, ControlType.ABORT):
                shard.replay_marker(header.producer_id, is_commit=control is ControlType.COMMIT)

    async def _committed(self, partition: Partition, end_offset: int) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        operation = self._replicas.await_commit(
            [(partition, Offset(end_offset))],
            COMMIT_WAIT_MS,
            lambda _expired: None if done.done() else done.set_result(None),
        )
        try:
            await done
        finally:
            operation.cancel()


def answer(future: "asyncio.Future[T]") -> T | Awaitable[T]:
    """The answer itself where there is one already: no task is needed for it."""
    return future.result() if future.done() else future


def client_error(code: ErrorCode) -> ErrorCode:
    """What a client is told when the coordinator's own log refuses."""
    if code in _RETRY:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.NOT_COORDINATOR if code in _MOVED else code


def _read(found: LogSlice) -> bytes:
    try:
        return found.read()
    finally:
        found.release()
