"""The transaction coordinator of one broker: requests in, answers out once the log has them.

Shell around the shards: it finds the shard of a transactional id, creates the transaction topic
when it is first needed, writes what a transaction decides, sends the markers of those whose end
is decided until all partitions have theirs, follows leadership, and aborts transactions that take
too long. What it is asked returns the answer at once where there is one, else a future.

Once the end of a transaction is in the log it cannot be changed and the client is told; markers
follow, by whoever coordinates then: after a restart those prepared are found by loading.

Owned by the event loop's thread. Invariant: every prepared transaction of a shard that is served
has its markers in the queue, is being completed, or is picked up by the next tick.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import NamedTuple

from ottla.config.broker import BrokerConfig
from ottla.coordinators.runtime import (
    TOO_LARGE,
    CoordinatorRuntime,
    EndMarker,
    Led,
    LoadSettings,
    OnDone,
    WriteKey,
    answer,
)
from ottla.coordinators.topic import CoordinatorTopic, TopicCreator
from ottla.coordinators.transaction.marker_writer import MarkerWriter
from ottla.coordinators.transaction.markers import NO_LEADER, MarkerQueue, Owner
from ottla.coordinators.transaction.metadata import (
    NO_TIMEOUT_MS,
    NOBODY,
    ProducerIdentity,
    TransactionMetadata,
)
from ottla.coordinators.transaction.records import (
    transaction_record,
    transaction_tombstone,
)
from ottla.coordinators.transaction.shard import TransactionShard
from ottla.coordinators.transaction.states import PREPARED, TransactionState
from ottla.coordinators.transaction.transaction import EndRequest, ProducerIdNeeded, Transaction
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import NO_PRODUCER_ID, BrokerId, TopicPartition
from ottla.protocol.internal_topics import TRANSACTION_TOPIC
from ottla.protocol.primitives import STRING_BYTES_MAX
from ottla.protocol.producers import EPOCH_BUMPING_VERSION, NO_PRODUCER_EPOCH
from ottla.replication.replica_manager import ReplicaManager
from ottla.runtime.interfaces import Runtime

log = logging.getLogger(__name__)

TRANSACTION_VERSION = "transaction.version"
# How long until a partition that could not take its marker is tried again.
MARKER_RETRY_MS = 100
# A batch of tombstones must fit max.message.bytes whatever the ids are.
TOMBSTONES_PER_WRITE_MAX = 100

TransactionLed = Led[TransactionShard]

# The partition has seen a later epoch of this producer, so nothing of this one is open there.
_ALREADY_ENDED = frozenset((ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH))
_EXPIRED: WriteKey = ("expired", "")


class InitResult(NamedTuple):
    error_code: ErrorCode
    producer: ProducerIdentity = NOBODY
    ongoing: ProducerIdentity = NOBODY  # whose transaction was kept for this one to end


class EndResult(NamedTuple):
    error_code: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class TransactionCoordinator:
    def __init__(
        self,
        runtime: Runtime,
        replicas: ReplicaManager,
        writer: MarkerWriter,
        *,
        broker_id: BrokerId,
        config: Callable[[], BrokerConfig],
        image: Callable[[], MetadataImage],
        create_topic: TopicCreator,
        new_producer_id: Callable[[], Awaitable[int]],
    ) -> None:
        self._runtime = runtime
        self._writer = writer
        self._broker_id = broker_id
        self._config = config
        self._image = image
        self._topic = CoordinatorTopic(
            TRANSACTION_TOPIC, config=config, image=image, create_topic=create_topic
        )
        self._new_producer_id = new_producer_id
        self._markers = MarkerQueue(self._leader_of)
        self._is_sending = False
        self._retry: asyncio.TimerHandle | None = None
        self.shards: CoordinatorRuntime[TransactionShard] = CoordinatorRuntime(
            runtime,
            replicas,
            TRANSACTION_TOPIC,
            new_shard=TransactionShard,
            settings=self._load_settings,
            on_loaded=self._on_loaded,
            on_unloaded=self._on_unloaded,
        )

    # Following the metadata

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Load what this broker leads now, give up what it no longer does. After the replicas."""
        self.shards.follow(delta, self._broker_id)

    async def stop(self) -> None:
        """Answer everybody who waits; another broker takes over."""
        await self.shards.stop()
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    async def locate(self, transactional_id: str) -> int:
        """The partition that coordinates an id, after the topic was created if need be."""
        return await self._topic.locate(transactional_id)

    # Requests of producers

    async def init_producer(
        self,
        transactional_id: str,
        *,
        timeout_ms: int,
        expected: ProducerIdentity | None,
        is_two_phase: bool = False,
        keeps_prepared: bool = False,
    ) -> InitResult:
        """An id and an epoch that fences whoever used this transactional id before."""
        try:
            self._check_init(
                transactional_id,
                timeout_ms,
                is_two_phase=is_two_phase,
                keeps_prepared=keeps_prepared,
            )
            spare: int | None = None
            while True:
                try:
                    return await self._init_producer(
                        transactional_id,
                        NO_TIMEOUT_MS if is_two_phase else timeout_ms,
                        expected,
                        spare,
                        keeps_prepared=keeps_prepared,
                    )
                except ProducerIdNeeded:
                    spare = await self._new_producer_id()
        except KafkaError as error:
            return InitResult(error.code)

    def _check_init(
        self, transactional_id: str, timeout_ms: int, *, is_two_phase: bool, keeps_prepared: bool
    ) -> None:
        config = self._config()
        _check_id(transactional_id)
        if is_two_phase and not config.transaction_two_phase_commit_enable:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if keeps_prepared and not (
            config.transaction_two_phase_commit_enable and self._version() >= EPOCH_BUMPING_VERSION
        ):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if not is_two_phase and not 0 < timeout_ms <= config.transaction_max_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)

    async def _init_producer(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdentity | None,
        spare_producer_id: int | None,
        *,
        keeps_prepared: bool,
    ) -> InitResult:
        led = self._led(transactional_id)
        now_ms = self._now_ms()
        transaction = led.shard.transactions.get(transactional_id)
        if transaction is None:
            if spare_producer_id is None:
                raise ProducerIdNeeded
            transaction = led.shard.get_or_new(
                transactional_id, spare_producer_id, timeout_ms, now_ms
            )
        is_open = transaction.check_open(expected)
        if is_open and not keeps_prepared:
            code = await self._abort_and_fence(led, transaction)
            return InitResult(ErrorCode.CONCURRENT_TRANSACTIONS if code is _NONE else code)
        decide = transaction.decide_keep if is_open else transaction.decide_init
        decided = decide(
            timeout_ms=timeout_ms,
            expected=expected,
            spare_producer_id=spare_producer_id,
            now_ms=now_ms,
        )
        code = await self._written(led, transaction, decided)
        if code is not _NONE:
            return InitResult(code)
        return InitResult(code, decided.client, decided.identity if is_open else NOBODY)

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: frozenset[TopicPartition],
        *,
        client_version: int,
    ) -> ErrorCode | Awaitable[ErrorCode]:
        """Make partitions part of the transaction, which begins with the first."""
        try:
            _check_id(transactional_id)
            led = self._led(transactional_id)
            transaction = led.shard.get(transactional_id)
            decided = transaction.decide_add(
                producer, partitions, client_version=client_version, now_ms=self._now_ms()
            )
        except KafkaError as error:
            return error.code
        return _NONE if decided is None else answer(self._written(led, transaction, decided))

    def verify(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: frozenset[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether each partition belongs to the producer's open transaction."""
        try:
            _check_id(transactional_id)
            return (
                self._led(transactional_id).shard.get(transactional_id).verify(producer, partitions)
            )
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)

    def end(self, transactional_id: str, request: EndRequest) -> EndResult | Awaitable[EndResult]:
        """Commit or abort; from transactions v2 on with who the producer is from now on."""
        try:
            return self._end(transactional_id, request, None)
        except ProducerIdNeeded:
            return self._end_with_new_id(transactional_id, request)
        except KafkaError as error:
            return EndResult(error.code)

    async def _end_with_new_id(self, transactional_id: str, request: EndRequest) -> EndResult:
        try:
            ended = self._end(transactional_id, request, await self._new_producer_id())
        except KafkaError as error:
            return EndResult(error.code)
        return ended if isinstance(ended, EndResult) else await ended

    def _end(
        self, transactional_id: str, request: EndRequest, spare_producer_id: int | None
    ) -> EndResult | Awaitable[EndResult]:
        _check_id(transactional_id)
        led = self._led(transactional_id)
        transaction = led.shard.get(transactional_id)
        decided = transaction.decide_end(
            request, spare_producer_id=spare_producer_id, now_ms=self._now_ms()
        )
        if decided is None:
            return EndResult(_NONE, *transaction.current.client)
        ended: asyncio.Future[EndResult] = asyncio.get_running_loop().create_future()

        def on_done(code: ErrorCode) -> None:
            if code is not _NONE:
                result = EndResult(code)
            else:
                result = EndResult(_NONE, *transaction.current.client)
                self._send_markers(led, transaction)
            if not ended.done():
                ended.set_result(result)

        self._write(led, transaction, decided, on_done)
        return answer(ended)

    # Markers

    def _send_markers(self, led: TransactionLed, transaction: Transaction) -> None:
        current = transaction.current
        if current.state not in PREPARED:
            return
        owner = Owner(led.index, transaction.transactional_id)
        marker = EndMarker(
            current.producer_id,
            current.producer_epoch,
            led.epoch,
            current.state is TransactionState.PREPARE_COMMIT,
            current.client_version,
        )
        if self._markers.add(owner, marker, current.partitions):
            self._complete(owner)
        self._send()

    def _send(self) -> None:
        """Hand out what is queued. Markers to other brokers wait until they lead here."""
        if self._is_sending:
            return  # reached from the outcome of a marker; the loop below goes on
        self._is_sending = True
        try:
            while self._broker_id in self._markers.destinations:
                for owner, marker, partitions in self._markers.take(self._broker_id):
                    for one in partitions:
                        self._writer.write(
                            marker, one, partial(self._on_marker, owner, marker, one)
                        )
        finally:
            self._is_sending = False
        self._arm_retry()

    def _on_marker(
        self, owner: Owner, marker: EndMarker, at: TopicPartition, code: ErrorCode
    ) -> None:
        if code in _ALREADY_ENDED:
            if code is not _NONE and owner in self._markers:
                log.warning("the marker of %s is out of date for %s", owner.transactional_id, at)
            if self._markers.on_written(owner, marker, at):
                self._complete(owner)
        elif code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            self._markers.forget(owner)  # a later coordinator ends it
        else:
            log.info("the marker of %s waits for %s: %s", owner.transactional_id, at, code.name)
            self._markers.on_refused(owner, marker, at)
            self._arm_retry()

    def _complete(self, owner: Owner) -> None:
        """All partitions know the end: so the transaction is over."""
        try:
            led = self.shards.led(owner.shard)
        except KafkaError:
            return  # another broker completes it
        transaction = led.shard.transactions.get(owner.transactional_id)
        if transaction is None or transaction.state not in PREPARED or transaction.pending:
            return

        def on_done(code: ErrorCode) -> None:
            if code is not _NONE:
                log.info("%s is not complete yet: %s", owner.transactional_id, code.name)
                self._arm_retry(has_more=True)

        self._write(led, transaction, transaction.decide_complete(now_ms=self._now_ms()), on_done)

    def _arm_retry(self, *, has_more: bool = False) -> None:
        if self._retry is None and (
            has_more or self._markers.has_set_aside or self._markers.destinations
        ):
            self._retry = asyncio.get_running_loop().call_later(
                MARKER_RETRY_MS / 1000, self._on_retry
            )

    def _on_retry(self) -> None:
        self._retry = None
        for owner in self._markers.retry():
            self._complete(owner)
        self._resume_prepared()
        self._send()

    def _resume_prepared(self) -> None:
        for led in self.shards:
            for transaction in led.shard.prepared():
                owner = Owner(led.index, transaction.transactional_id)
                if transaction.pending is None and owner not in self._markers:
                    self._send_markers(led, transaction)

    def _leader_of(self, at: TopicPartition) -> int | None:
        partition = self._image().partition(at.topic, at.partition)
        if partition is None:
            return None
        return partition.leader if partition.leader >= 0 else NO_LEADER

    # Time

    async def on_timeout_tick(self) -> None:
        """Abort transactions whose producers took too long, and fence them."""
        for led in self.shards:
            for transaction in led.shard.timed_out(self._now_ms()):
                if not transaction.is_timed_out(self._now_ms()):
                    continue  # it ended while others were aborted
                code = await self._abort_and_fence(led, transaction)
                log.info("%s timed out: %s", transaction.transactional_id, code.name)
        self._resume_prepared()

    async def on_expiry_tick(self) -> None:
        """Forget transactional ids that nobody has used for long."""
        expiration_ms = self._config().transactional_id_expiration_ms
        for led in self.shards:
            expired = led.shard.expired(self._now_ms(), expiration_ms)
            for start in range(0, len(expired), TOMBSTONES_PER_WRITE_MAX):
                await self._forget(led, expired[start : start + TOMBSTONES_PER_WRITE_MAX])

    async def _forget(self, led: TransactionLed, names: list[str]) -> None:
        found = [one for name in names if (one := led.shard.transactions.get(name)) is not None]
        idle = [one for one in found if one.pending is None]
        for transaction in idle:
            transaction.pending = transaction.current._replace(state=TransactionState.DEAD)
        done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        tombstones = [transaction_tombstone(one.transactional_id) for one in idle]
        self.shards.write(led, _EXPIRED, tombstones, done.set_result)
        if await done is not _NONE and not led.in_flight[_EXPIRED]:
            for transaction in idle:
                transaction.pending = None

    def _abort_and_fence(
        self, led: TransactionLed, transaction: Transaction
    ) -> "asyncio.Future[ErrorCode]":
        decided = transaction.decide_fencing_abort(
            server_version=self._version(), now_ms=self._now_ms()
        )
        return self._written(
            led, transaction, decided, then=partial(self._send_markers, led, transaction)
        )

    # What administrators see

    def list_transactions(self) -> Iterator[Transaction]:
        """All ids of the partitions led here; COORDINATOR_LOAD_IN_PROGRESS until they are."""
        if self.shards.is_loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        for led in self.shards:
            yield from led.shard.transactions.values()

    def describe(self, transactional_id: str) -> TransactionMetadata:
        _check_id(transactional_id)
        transaction = self._led(transactional_id).shard.transactions.get(transactional_id)
        if transaction is None or _is_dying(transaction):
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return transaction.current

    # Small steps

    def _written(
        self,
        led: TransactionLed,
        transaction: Transaction,
        decided: TransactionMetadata,
        *,
        then: Callable[[], None] | None = None,
    ) -> "asyncio.Future[ErrorCode]":
        outcome: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def on_done(code: ErrorCode) -> None:
            if code is _NONE and then is not None:
                then()
            if not outcome.done():
                outcome.set_result(code)

        self._write(led, transaction, decided, on_done)
        return outcome

    def _write(
        self,
        led: TransactionLed,
        transaction: Transaction,
        decided: TransactionMetadata,
        on_done: OnDone,
    ) -> None:
        transactional_id = transaction.transactional_id
        key = ("transaction", transactional_id)
        record = transaction_record(transactional_id, decided, transaction_version=self._version())

        def after_write(code: ErrorCode) -> None:
            # After a timeout the record may yet be committed: until then nothing else may be.
            if code is not _NONE and not led.in_flight[key]:
                transaction.pending = None
            on_done(ErrorCode.UNKNOWN_SERVER_ERROR if code in TOO_LARGE else code)

        led.shard.expect(transaction, decided, record)
        self.shards.write(led, key, [record], after_write)

    def _on_loaded(self, led: TransactionLed) -> None:
        for transaction in led.shard.prepared():
            self._send_markers(led, transaction)

    def _on_unloaded(self, led: TransactionLed) -> None:
        self._markers.forget_shard(led.index)

    def _led(self, transactional_id: str) -> TransactionLed:
        return self.shards.led(self._topic.index_of(transactional_id))

    def _version(self) -> int:
        """The level of transactions that the cluster has finalized."""
        return self._image().features.get(TRANSACTION_VERSION, 0)

    def _now_ms(self) -> int:
        return self._runtime.clock.wall_ms()

    def _load_settings(self) -> LoadSettings:
        config = self._config()
        return LoadSettings(
            config.transaction_state_log_load_buffer_size, config.request_timeout_ms
        )


# Looking a member up in its enumeration costs as much as a comparison.
_NONE = ErrorCode.NONE


def _check_id(transactional_id: str) -> None:
    if not transactional_id or len(transactional_id.encode()) > STRING_BYTES_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST)


def _is_dying(transaction: Transaction) -> bool:
    pending = transaction.pending
    return pending is not None and pending.state is TransactionState.DEAD
