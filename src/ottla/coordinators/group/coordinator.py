"""The group coordinator of one broker: requests in, answers out once the log has them.

Shell around the shards: it finds the shard of a group, creates the offsets topic when it is first
needed, performs the effects of groups (answers, records, timers), follows leadership, and looks
for expired offsets. What it is asked returns the answer at once where there is one, else a future.

Owned by the event loop's thread. Invariant: each waiter is answered once; a group of a shard that
was given up gets no more events.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from ottla.config.broker import BrokerConfig
from ottla.coordinators.group.classic_group import NEVER_MS, ClassicGroup
from ottla.coordinators.group.effects import Effects, Fields, GroupWrite, Moment
from ottla.coordinators.group.records import CoordinatorRecord, group_record
from ottla.coordinators.group.requests import (
    GroupLimits,
    JoinRequest,
    LeavingMember,
    SyncRequest,
    join_error,
    sync_error,
)
from ottla.coordinators.group.shard import (
    STRING_BYTES_MAX,
    CommitRequest,
    GroupShard,
    WantedOffset,
)
from ottla.coordinators.group.states import GroupState
from ottla.coordinators.partitioning import partition_of
from ottla.coordinators.runtime import (
    CoordinatorRuntime,
    EndMarker,
    Led,
    LoadSettings,
    OnDone,
    ProducerWrite,
)
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metadata.topics import CreatedTopic, NewTopic
from ottla.protocol.codecs import Codec
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import BrokerId, Epoch
from ottla.replication.replica_manager import ReplicaManager
from ottla.runtime.interfaces import Runtime

log = logging.getLogger(__name__)

OFFSETS_TOPIC = "__consumer_offsets"
# A batch of tombstones must fit max.message.bytes whatever the names are.
RECORDS_PER_WRITE_MAX = 500
# Groups looked at for expiry before others get their turn on the loop.
EXPIRY_SLICE_GROUPS = 50
MS_PER_MINUTE = 60_000

T = TypeVar("T")
GroupLed = Led[GroupShard]
TopicCreator = Callable[[NewTopic], Awaitable[CreatedTopic]]


class GroupCoordinator:
    def __init__(
        self,
        runtime: Runtime,
        replicas: ReplicaManager,
        *,
        broker_id: BrokerId,
        config: Callable[[], BrokerConfig],
        image: Callable[[], MetadataImage],
        create_topic: TopicCreator,
    ) -> None:
        self._runtime = runtime
        self._broker_id = broker_id
        self._config = config
        self._image = image
        self._create_topic = create_topic
        self._timers: dict[ClassicGroup, tuple[int, asyncio.TimerHandle]] = {}
        self.shards: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            runtime,
            replicas,
            OFFSETS_TOPIC,
            new_shard=lambda: GroupShard(
                self._limits, lambda: self._config().offset_metadata_max_bytes
            ),
            settings=self._load_settings,
            on_loaded=self._on_loaded,
            on_unloaded=self._on_unloaded,
        )

    # Following the metadata

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Load what this broker leads now, give up what it no longer does. After the replicas."""
        for deleted in delta.deleted_topics.values():
            if deleted.name == OFFSETS_TOPIC:
                for index in deleted.partitions:
                    self.shards.resign(index)
        for topic in delta.topics.values():
            if topic.name != OFFSETS_TOPIC:
                continue
            for index, partition in topic.changed.items():
                if partition.leader == self._broker_id:
                    self.shards.lead(index, Epoch(partition.leader_epoch))
                else:
                    self.shards.resign(index)
        gone = frozenset(
            one.name for one in delta.deleted_topics.values() if one.name not in image.topics
        )
        if gone:
            for led in self.shards:
                self._write_all(led, "", led.shard.decide_forget_topics(gone))

    async def stop(self) -> None:
        """Answer everybody who waits; another broker takes over."""
        await self.shards.stop()

    async def locate(self, group_id: str) -> int:
        """The partition that coordinates a group, after the topic was created if need be."""
        _check_group_id(group_id, may_be_empty=True)
        topic = self._image().topics.get(OFFSETS_TOPIC)
        if topic is None:
            await self._create_offsets_topic()
            topic = self._image().topics.get(OFFSETS_TOPIC)
            if topic is None:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return partition_of(group_id, len(topic.partitions))

    # Requests of members

    def join(self, group_id: str, request: JoinRequest) -> Fields | Awaitable[Fields]:
        config = self._config()
        try:
            _check_group_id(group_id)
            for text in (request.instance_id or "", request.protocol_type):
                _check_text(text)
            for name, _ in request.protocols:
                _check_text(name)
            if not (
                config.group_min_session_timeout_ms
                <= request.session_timeout_ms
                <= config.group_max_session_timeout_ms
            ):
                raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
            led = self._led(group_id)
            if request.member_id and group_id not in led.shard.groups:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        except KafkaError as error:
            return join_error(error.code, request.member_id)
        now = self._now()
        group = led.shard.group_or_new(group_id, now)
        waiter = self._waiter()
        self._perform(led, group, group.decide_join(request, waiter, now))
        led.shard.forget_if_unused(group_id)
        return _answer(waiter)

    def sync(self, group_id: str, request: SyncRequest) -> Fields | Awaitable[Fields]:
        try:
            _check_group_id(group_id)
            led = self._led(group_id)
            group = led.shard.groups.get(group_id)
            if group is None or not group.members:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        except KafkaError as error:
            code = error.code
            if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                # A client retries a sync only for this; the group starts over.
                code = ErrorCode.REBALANCE_IN_PROGRESS
            return sync_error(code)
        waiter = self._waiter()
        self._perform(led, group, group.decide_sync(request, waiter, self._now()))
        return _answer(waiter)

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        try:
            _check_group_id(group_id)
            led = self._led(group_id)
        except KafkaError as error:
            if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return ErrorCode.NONE  # nobody expires before the group is loaded
            return error.code
        group = led.shard.groups.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        code = group.decide_heartbeat(member_id, instance_id, generation, self._now())
        self._arm(led, group)
        return code

    def leave(self, group_id: str, leaving: Sequence[LeavingMember]) -> Fields | Awaitable[Fields]:
        try:
            _check_group_id(group_id)
            led = self._led(group_id)
        except KafkaError as error:
            return {"error_code": error.code, "members": []}
        group = led.shard.groups.get(group_id)
        if group is None:
            unknown = ErrorCode.UNKNOWN_MEMBER_ID
            return {
                "error_code": ErrorCode.NONE,
                "members": [
                    {
                        "member_id": one.member_id,
                        "group_instance_id": one.instance_id,
                        "error_code": unknown,
                    }
                    for one in leaving
                ],
            }
        waiter = self._waiter()
        self._perform(led, group, group.decide_leave(leaving, waiter, self._now()))
        led.shard.forget_if_unused(group_id)
        return _answer(waiter)

    # Offsets

    def commit(
        self, request: CommitRequest, wanted: Sequence[WantedOffset]
    ) -> list[ErrorCode] | Awaitable[list[ErrorCode]]:
        """One code for each wanted offset; KafkaError for the request as a whole."""
        _check_group_id(request.group_id, may_be_empty=True)
        led = self._led(request.group_id)
        records, codes = led.shard.decide_commit(request, wanted, self._now())
        group = led.shard.groups.get(request.group_id)
        if group is not None:
            self._arm(led, group)
        return self._write_then(led, request.group_id, records, codes)

    def commit_in_transaction(
        self, request: CommitRequest, wanted: Sequence[WantedOffset], producer: ProducerWrite
    ) -> list[ErrorCode] | Awaitable[list[ErrorCode]]:
        """As `commit`; the offsets count once the producer's transaction does."""
        _check_group_id(request.group_id)
        led = self._led(request.group_id)
        records, codes = led.shard.decide_commit(request, wanted, self._now())
        return self._write_then(led, request.group_id, records, codes, producer)

    def end_transaction(self, index: int, marker: EndMarker, on_done: OnDone) -> None:
        """Write the end of a transaction that may have committed offsets to this partition."""
        try:
            led = self.shards.led(index)
        except KafkaError:
            on_done(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # the one error that makes others try again
            return
        self.shards.write_marker(led, marker, on_done)

    def partition_index(self, group_id: str) -> int:
        """Where the offsets of a group lie; NOT_COORDINATOR if nobody has asked for it before."""
        return self._led(group_id).index

    def offsets_shard(self, group_id: str) -> GroupShard:
        """Where the offsets of a group are read."""
        _check_group_id(group_id, may_be_empty=True)
        return self._led(group_id).shard

    def delete_offsets(
        self, group_id: str, places: Sequence[tuple[str, int]]
    ) -> list[ErrorCode] | Awaitable[list[ErrorCode]]:
        """One code for each place; KafkaError for the request as a whole."""
        _check_group_id(group_id)
        led = self._led(group_id)
        records, codes = led.shard.decide_delete_offsets(
            group_id, places, has_writes_in_flight=led.in_flight[group_id] > 0
        )
        return self._write_then(led, group_id, records, codes)

    async def delete_group(self, group_id: str) -> ErrorCode:
        try:
            _check_group_id(group_id, may_be_empty=True)
            led = self._led(group_id)
            while led.in_flight[group_id]:
                # What it committed last is not known yet, and must go too.
                await self._committed(led)
                led = self._led(group_id)
            records = led.shard.decide_delete_group(group_id)
        except KafkaError as error:
            return error.code
        return await self._write_or_revive(led, group_id, records)

    async def on_expiry_tick(self) -> None:
        """Drop offsets whose retention has passed, and groups that hold nothing any more."""
        retention_ms = self._config().offsets_retention_minutes * MS_PER_MINUTE
        for led in self.shards:
            for number, group_id in enumerate(list(led.shard.groups)):
                if number % EXPIRY_SLICE_GROUPS == 0:
                    await asyncio.sleep(0)
                if led.in_flight[group_id]:
                    continue  # what is on its way may renew an offset
                records = led.shard.decide_expire(group_id, retention_ms, self._now())
                if records:
                    await self._write_or_revive(led, group_id, records)

    # What administrators see

    def list_groups(self) -> Iterator[ClassicGroup]:
        """All groups of the partitions led here; COORDINATOR_LOAD_IN_PROGRESS until they are."""
        if self.shards.is_loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        for led in self.shards:
            yield from led.shard.groups.values()

    def group(self, group_id: str) -> ClassicGroup:
        _check_group_id(group_id, may_be_empty=True)
        group = self._led(group_id).shard.group(group_id)
        if group.state is GroupState.DEAD:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        return group

    # Effects

    def _perform(self, led: GroupLed, group: ClassicGroup, effects: Effects) -> None:
        for waiter, response in effects.replies:
            if isinstance(waiter, asyncio.Future) and not waiter.done():
                waiter.set_result(response)
        for write in effects.writes:
            self.shards.write(
                led,
                group.group_id,
                [group_record(group.group_id, write.metadata)],
                partial(self._on_group_write, led, group, write),
            )
        self._arm(led, group)

    def _on_group_write(
        self, led: GroupLed, group: ClassicGroup, write: GroupWrite, code: ErrorCode
    ) -> None:
        now = self._now()
        if code is ErrorCode.NONE:
            effects = group.on_written(write, now)
        else:
            log.warning("group %s could not be written: %s", group.group_id, code.name)
            if code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
                code = ErrorCode.UNKNOWN_SERVER_ERROR
            effects = group.on_write_failed(write, code, now)
        self._perform(led, group, effects)

    def _arm(self, led: GroupLed, group: ClassicGroup) -> None:
        """Have `on_time` called by the group's next deadline. One that moves back costs nothing."""
        wake_at_ms = group.wake_at_ms
        armed = self._timers.get(group)
        if wake_at_ms >= NEVER_MS or (armed is not None and armed[0] <= wake_at_ms):
            return
        if led.shard.groups.get(group.group_id) is not group:
            return
        if armed is not None:
            armed[1].cancel()
        # Deadlines are whole milliseconds, rounded down; a millisecond later it has passed.
        handle = asyncio.get_running_loop().call_at(
            (wake_at_ms + 1) / 1000, self._on_timer, led, group
        )
        self._timers[group] = (wake_at_ms, handle)

    def _on_timer(self, led: GroupLed, group: ClassicGroup) -> None:
        self._timers.pop(group, None)
        if led.shard.groups.get(group.group_id) is not group:
            return  # deleted meanwhile
        self._perform(led, group, group.on_time(self._now()))
        led.shard.forget_if_unused(group.group_id)

    def _on_loaded(self, led: GroupLed) -> None:
        led.shard.on_loaded(self._now())
        for group in led.shard.groups.values():
            self._arm(led, group)

    def _on_unloaded(self, led: GroupLed) -> None:
        for group in led.shard.groups.values():
            armed = self._timers.pop(group, None)
            if armed is not None:
                armed[1].cancel()
            group.wake_at_ms = NEVER_MS
            for waiter, response in group.abandon(ErrorCode.NOT_COORDINATOR).replies:
                if isinstance(waiter, asyncio.Future) and not waiter.done():
                    waiter.set_result(response)

    # Writing

    def _write_then(
        self,
        led: GroupLed,
        key: str,
        records: Sequence[CoordinatorRecord],
        codes: list[ErrorCode],
        producer: ProducerWrite | None = None,
    ) -> list[ErrorCode] | Awaitable[list[ErrorCode]]:
        """Commit the records; the codes then, or one error in place of each success."""
        answer: asyncio.Future[list[ErrorCode]] = asyncio.get_running_loop().create_future()

        def on_done(code: ErrorCode) -> None:
            if code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
                code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            if not answer.done():
                answer.set_result([code if one is ErrorCode.NONE else one for one in codes])

        self.shards.write(led, key, records, on_done, producer=producer)
        return _answer(answer)

    def _write_all(
        self, led: GroupLed, key: str, records: Sequence[CoordinatorRecord]
    ) -> "asyncio.Future[ErrorCode]":
        """Commit any number of records, in order; the outcome of the last."""
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        last = max(len(records) - 1, 0) // RECORDS_PER_WRITE_MAX * RECORDS_PER_WRITE_MAX
        for start in range(0, last + 1, RECORDS_PER_WRITE_MAX):
            chunk = records[start : start + RECORDS_PER_WRITE_MAX]
            on_done = answer.set_result if start == last else _log_failure
            self.shards.write(led, key, chunk, on_done)
        return answer

    async def _write_or_revive(
        self, led: GroupLed, group_id: str, records: Sequence[CoordinatorRecord]
    ) -> ErrorCode:
        code = await self._write_all(led, group_id, records)
        group = led.shard.groups.get(group_id)
        if code is not ErrorCode.NONE and group is not None and group.state is GroupState.DEAD:
            group.revive()
        return code

    async def _committed(self, led: GroupLed) -> None:
        """Return once something that is being written now is written, or has failed."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        led.on_landed.append(done)
        await done

    async def _create_offsets_topic(self) -> None:
        config = self._config()
        result = await self._create_topic(
            NewTopic(
                OFFSETS_TOPIC,
                config.offsets_topic_num_partitions,
                config.offsets_topic_replication_factor,
                configs=[
                    ("cleanup.policy", "compact"),
                    ("compression.type", "producer"),
                    ("segment.bytes", str(config.offsets_topic_segment_bytes)),
                ],
            )
        )
        if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            log.warning("%s cannot be created: %s", OFFSETS_TOPIC, result.error_message)
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, result.error_message)

    # Small steps

    def _led(self, group_id: str) -> GroupLed:
        topic = self._image().topics.get(OFFSETS_TOPIC)
        if topic is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return self.shards.led(partition_of(group_id, len(topic.partitions)))

    def _now(self) -> Moment:
        clock = self._runtime.clock
        return Moment(int(clock.monotonic() * 1000), clock.wall_ms())

    def _waiter(self) -> "asyncio.Future[Fields]":
        return asyncio.get_running_loop().create_future()

    def _limits(self) -> GroupLimits:
        config = self._config()
        return GroupLimits(config.group_initial_rebalance_delay_ms, config.group_max_size)

    def _load_settings(self) -> LoadSettings:
        config = self._config()
        return LoadSettings(
            config.offsets_load_buffer_size,
            config.offsets_commit_timeout_ms,
            Codec(config.offsets_topic_compression_codec),
        )


def _answer(future: "asyncio.Future[T]") -> T | Awaitable[T]:
    """The answer itself where there is one already: no task is needed for it."""
    return future.result() if future.done() else future


def _check_group_id(group_id: str | None, *, may_be_empty: bool = False) -> None:
    if (
        group_id is None
        or (not group_id and not may_be_empty)
        or len(group_id.encode()) > STRING_BYTES_MAX
    ):
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)


def _check_text(text: str) -> None:
    """What is stored in a record must fit its 16 bits of length, with a random suffix."""
    if len(text.encode()) > STRING_BYTES_MAX // 2:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A name is too long")


def _log_failure(code: ErrorCode) -> None:
    if code is not ErrorCode.NONE:
        log.warning("records of %s were not written: %s", OFFSETS_TOPIC, code.name)
