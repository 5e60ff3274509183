"""The group coordinator of one broker: requests in, answers out once the log has them.

Shell around the shards: it finds the shard of a group, creates the offsets topic when it is first
needed, follows leadership and the topics that groups read, keeps offsets and looks for expired
ones. Members are served by membership.py. What it is asked returns the answer at once where there
is one, else a future.

Owned by the event loop's thread.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence

from ottla.config.broker import BrokerConfig
from ottla.config.broker_checks import CONSUMER_ASSIGNORS
from ottla.config.dynamic import group_values
from ottla.config.resources import ConfigResourceType
from ottla.coordinators.group.classic_group import ClassicGroup
from ottla.coordinators.group.consumer.changes import (
    has_rack_change,
    is_concerned,
    touched_topics,
)
from ottla.coordinators.group.consumer.decisions import check_fetch
from ottla.coordinators.group.consumer.group import ConsumerGroup
from ottla.coordinators.group.consumer.requests import (
    HeartbeatRequest,
    check_heartbeat,
    heartbeat_error,
)
from ottla.coordinators.group.consumer.rest import Rest, rest_of
from ottla.coordinators.group.consumer.settings import ConsumerGroupSettings, Context
from ottla.coordinators.group.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from ottla.coordinators.group.effects import Fields, Moment
from ottla.coordinators.group.membership import Membership
from ottla.coordinators.group.records import CoordinatorRecord
from ottla.coordinators.group.requests import (
    GroupLimits,
    JoinRequest,
    LeavingMember,
    SyncRequest,
    join_error,
    sync_error,
)
from ottla.coordinators.group.shard import (
    CommitRequest,
    Group,
    GroupShard,
    WantedOffset,
)
from ottla.coordinators.group.turns import GroupLed, decision_key, group_key
from ottla.coordinators.runtime import (
    TOO_LARGE,
    CoordinatorRuntime,
    EndMarker,
    LoadSettings,
    OnDone,
    ProducerWrite,
    WriteKey,
    answer,
)
from ottla.coordinators.topic import CoordinatorTopic, TopicCreator
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.protocol.codecs import Codec
from ottla.protocol.errors import ErrorCode, InvariantError, KafkaError
from ottla.protocol.ids import BrokerId
from ottla.protocol.internal_topics import OFFSETS_TOPIC
from ottla.protocol.primitives import STRING_BYTES_MAX
from ottla.replication.replica_manager import ReplicaManager
from ottla.runtime.interfaces import Runtime

log = logging.getLogger(__name__)

GROUP_VERSION = "group.version"  # the feature that brings consumer groups
# A batch of tombstones must fit max.message.bytes whatever the names are.
RECORDS_PER_WRITE_MAX = 500
# Groups looked at for expiry before others get their turn on the loop.
EXPIRY_SLICE_GROUPS = 50
MS_PER_MINUTE = 60_000
_GONE_TOPICS: WriteKey = ("gone topics", "")


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
        self._topic = CoordinatorTopic(
            OFFSETS_TOPIC, config=config, image=image, create_topic=create_topic
        )
        self._settings: tuple[BrokerConfig, ConsumerGroupSettings] | None = None
        self._write_settings: tuple[BrokerConfig, LoadSettings] | None = None
        self.shards: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            runtime,
            replicas,
            OFFSETS_TOPIC,
            new_shard=lambda: GroupShard(
                self._limits, lambda: self._config().offset_metadata_max_bytes
            ),
            settings=self._load_settings,
            on_loaded=lambda led: self._members.on_loaded(led),
            on_unloaded=lambda led: self._members.on_unloaded(led),
        )
        self._members = Membership(self.shards, now=self._now, image=image, context=self._context)

    # Following the metadata

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Load what this broker leads now, give up what it no longer does. After the replicas."""
        self.shards.follow(delta, self._broker_id)
        gone = frozenset(
            one.name for one in delta.deleted_topics.values() if one.name not in image.topics
        )
        if gone:
            for led in self.shards:
                self._write_all(led, _GONE_TOPICS, led.shard.decide_forget_topics(gone))
        self._refresh_groups(delta)

    def _refresh_groups(self, delta: MetadataDelta) -> None:
        """Have groups look at their topics again, with the next heartbeat of any member."""
        topics = touched_topics(delta)
        is_everything = has_rack_change(delta)
        if not topics and not is_everything:
            return
        for led in self.shards:
            for group in led.shard.groups.values():
                if isinstance(group, ConsumerGroup) and (
                    is_everything or is_concerned(group, topics)
                ):
                    group.is_metadata_stale = True

    async def stop(self) -> None:
        """Answer everybody who waits; another broker takes over."""
        await self.shards.stop()

    async def locate(self, group_id: str) -> int:
        """The partition that coordinates a group, after the topic was created if need be."""
        _check_group_id(group_id, may_be_empty=True)
        return await self._topic.locate(group_id)

    # Requests of members

    def consumer_heartbeat(self, request: HeartbeatRequest) -> Fields | Awaitable[Fields]:
        try:
            if not self._serves_consumer_groups():
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
            check_heartbeat(request, self._consumer_settings(request.group_id))
            _check_group_id(request.group_id)
            for text in (request.member_id, request.instance_id, request.rack_id, request.regex):
                _check_text(text or "")
            led = self._led(request.group_id)
        except KafkaError as error:
            return heartbeat_error(error.code, error.message)
        return self._members.consumer_heartbeat(led, request)

    def rest_of(self, request: HeartbeatRequest, response: Fields) -> Rest | None:
        """What to `stay` with if a member sends this request, just answered, again and again."""
        group_id = request.group_id
        try:
            group = self._led(group_id).shard.groups.get(group_id)
        except KafkaError:
            return None
        if not isinstance(group, ConsumerGroup):
            return None
        return rest_of(group, request, response, self._consumer_settings(group_id))

    def stay(self, rest: Rest) -> bool:
        """Take the heartbeat of a member that is still at rest, and answered as before."""
        group_id = rest.group.group_id
        if not self._serves_consumer_groups() or self._consumer_settings(group_id) != rest.settings:
            return False
        try:
            led = self._led(group_id)
        except KafkaError:
            return False
        return self._members.stay(led, rest)

    def _serves_consumer_groups(self) -> bool:
        return (
            CONSUMER_PROTOCOL_TYPE in self._config().group_coordinator_rebalance_protocols
            and self._image().features.get(GROUP_VERSION, 0) >= 1
        )

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
        except KafkaError as error:
            return join_error(error.code, request.member_id)
        return self._members.join(led, group_id, request)

    def sync(self, group_id: str, request: SyncRequest) -> Fields | Awaitable[Fields]:
        try:
            _check_group_id(group_id)
            led = self._led(group_id)
        except KafkaError as error:
            code = error.code
            if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                # A client retries a sync only for this; the group starts over.
                code = ErrorCode.REBALANCE_IN_PROGRESS
            return sync_error(code)
        return self._members.sync(led, group_id, request)

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> Fields | Awaitable[Fields]:
        try:
            _check_group_id(group_id)
            led = self._led(group_id)
        except KafkaError as error:
            if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return {"error_code": ErrorCode.NONE}  # nobody expires before it is loaded
            return {"error_code": error.code}
        return self._members.heartbeat(led, group_id, member_id, instance_id, generation)

    def leave(self, group_id: str, leaving: Sequence[LeavingMember]) -> Fields | Awaitable[Fields]:
        try:
            _check_group_id(group_id)
            led = self._led(group_id)
        except KafkaError as error:
            return {"error_code": error.code, "members": []}
        return self._members.leave(led, group_id, leaving)

    # Offsets

    def commit(
        self,
        request: CommitRequest,
        wanted: Sequence[WantedOffset],
        on_decided: Callable[[list[ErrorCode]], None],
    ) -> None:
        """Tell one code for each wanted offset; KafkaError for the request as a whole."""
        _check_group_id(request.group_id, may_be_empty=True)
        led = self._led(request.group_id)
        records, codes = led.shard.decide_commit(request, wanted, self._now())
        group = led.shard.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            self._members.arm(led, group)  # a commit is a sign of life there
        self.shards.gather(
            led,
            group_key(request.group_id),
            records,
            lambda code: on_decided(_codes_after(codes, code)),
        )

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

    def offsets_shard(
        self, group_id: str, member_id: str | None = None, member_epoch: int = -1
    ) -> GroupShard:
        """Where the offsets of a group are read; a member of an old epoch is refused."""
        _check_group_id(group_id, may_be_empty=True)
        shard = self._led(group_id).shard
        group = shard.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            check_fetch(group, member_id, member_epoch)
        return shard

    def delete_offsets(
        self, group_id: str, places: Sequence[tuple[str, int]]
    ) -> list[ErrorCode] | Awaitable[list[ErrorCode]]:
        """One code for each place; KafkaError for the request as a whole."""
        _check_group_id(group_id)
        led = self._led(group_id)
        records, codes = led.shard.decide_delete_offsets(
            group_id, places, has_writes_in_flight=led.in_flight[group_key(group_id)] > 0
        )
        return self._write_then(led, group_id, records, codes)

    async def delete_group(self, group_id: str) -> ErrorCode:
        try:
            _check_group_id(group_id, may_be_empty=True)
            led = self._led(group_id)
            while _is_in_flight(led, group_id):
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
                if _is_in_flight(led, group_id):
                    continue  # what is on its way may renew an offset
                records = led.shard.decide_expire(group_id, retention_ms, self._now())
                if records:
                    await self._write_or_revive(led, group_id, records)

    # What administrators see

    def list_groups(self) -> Iterator[Group]:
        """All groups of the partitions led here; COORDINATOR_LOAD_IN_PROGRESS until they are."""
        if self.shards.is_loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        for led in self.shards:
            yield from led.shard.groups.values()

    def group(self, group_id: str) -> Group:
        _check_group_id(group_id, may_be_empty=True)
        group = self._led(group_id).shard.group(group_id)
        if group.is_dead:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id[:200]} not found.")
        return group

    def classic_group(self, group_id: str) -> ClassicGroup:
        group = self.group(group_id)
        if isinstance(group, ClassicGroup):
            return group
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id[:200]} is not a classic group."
        )

    def consumer_group(self, group_id: str) -> ConsumerGroup:
        _check_group_id(group_id)
        group = self.group(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id[:200]} is not a consumer group."
        )

    def default_assignor(self, group_id: str) -> str:
        return self._consumer_settings(group_id).assignors[0]

    # Writing

    def _write_then(
        self,
        led: GroupLed,
        group_id: str,
        records: Sequence[CoordinatorRecord],
        codes: list[ErrorCode],
        producer: ProducerWrite | None = None,
    ) -> list[ErrorCode] | Awaitable[list[ErrorCode]]:
        """Commit the records; the codes then, or one error in place of each success."""
        decided: asyncio.Future[list[ErrorCode]] = asyncio.get_running_loop().create_future()

        def on_done(code: ErrorCode) -> None:
            if not decided.done():
                decided.set_result(_codes_after(codes, code))

        self.shards.write(led, group_key(group_id), records, on_done, producer=producer)
        return answer(decided)

    def _write_all(
        self, led: GroupLed, key: WriteKey, records: Sequence[CoordinatorRecord]
    ) -> "asyncio.Future[ErrorCode]":
        """Commit any number of records, in order; the outcome of the last."""
        done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        last = max(len(records) - 1, 0) // RECORDS_PER_WRITE_MAX * RECORDS_PER_WRITE_MAX
        for start in range(0, last + 1, RECORDS_PER_WRITE_MAX):
            chunk = records[start : start + RECORDS_PER_WRITE_MAX]
            on_done = done.set_result if start == last else _log_failure
            self.shards.write(led, key, chunk, on_done)
        return done

    async def _write_or_revive(
        self, led: GroupLed, group_id: str, records: Sequence[CoordinatorRecord]
    ) -> ErrorCode:
        code = await self._write_all(led, group_key(group_id), records)
        group = led.shard.groups.get(group_id)
        if code is not ErrorCode.NONE and group is not None and group.is_dead:
            group.revive()
        return code

    async def _committed(self, led: GroupLed) -> None:
        """Return once something that is being written now is written, or has failed."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        led.on_landed.append(done)
        await done

    # Small steps

    def _led(self, group_id: str) -> GroupLed:
        return self.shards.led(self._topic.index_of(group_id))

    def _now(self) -> Moment:
        clock = self._runtime.clock
        return Moment(int(clock.monotonic() * 1000), clock.wall_ms())

    def _context(self, group_id: str) -> Context:
        return Context(self._now(), self._image(), self._consumer_settings(group_id))

    def _consumer_settings(self, group_id: str) -> ConsumerGroupSettings:
        config = self._config()
        if self._settings is None or self._settings[0] is not config:
            self._settings = (config, _settings(config))
        settings = self._settings[1]
        own = self._image().config(ConfigResourceType.GROUP, group_id)
        if not own:
            return settings
        values = group_values(own, config)
        return settings._replace(
            session_timeout_ms=_number(values["consumer.session.timeout.ms"]),
            heartbeat_interval_ms=_number(values["consumer.heartbeat.interval.ms"]),
            assignment_interval_ms=_number(values["consumer.assignment.interval.ms"]),
        )

    def _limits(self) -> GroupLimits:
        config = self._config()
        return GroupLimits(config.group_initial_rebalance_delay_ms, config.group_max_size)

    def _load_settings(self) -> LoadSettings:
        config = self._config()
        if self._write_settings is None or self._write_settings[0] is not config:
            settings = LoadSettings(
                config.offsets_load_buffer_size,
                config.offsets_commit_timeout_ms,
                Codec(config.offsets_topic_compression_codec),
                config.group_coordinator_append_linger_ms,
            )
            self._write_settings = (config, settings)
        return self._write_settings[1]


def _is_in_flight(led: GroupLed, group_id: str) -> bool:
    """Whether anything of the group is being written."""
    return bool(led.in_flight[group_key(group_id)] or led.in_flight[decision_key(group_id)])


def _codes_after(codes: list[ErrorCode], code: ErrorCode) -> list[ErrorCode]:
    """What each offset is answered when the records were written with this outcome."""
    if code is ErrorCode.NONE:
        return codes
    if code in TOO_LARGE:
        code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return [code if one is ErrorCode.NONE else one for one in codes]


def _settings(config: BrokerConfig) -> ConsumerGroupSettings:
    policy = config.group_consumer_migration_policy.lower()
    return ConsumerGroupSettings(
        tuple(dict.fromkeys(CONSUMER_ASSIGNORS[one] for one in config.group_consumer_assignors)),
        config.group_consumer_max_size,
        config.group_max_size,
        config.group_consumer_session_timeout_ms,
        config.group_consumer_heartbeat_interval_ms,
        config.group_consumer_assignment_interval_ms,
        config.group_consumer_regex_refresh_interval_ms,
        policy in ("upgrade", "bidirectional"),
        policy in ("downgrade", "bidirectional"),
    )


def _number(value: object) -> int:
    if not isinstance(value, int):
        raise InvariantError(f"{value!r} is not a number")
    return value


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
