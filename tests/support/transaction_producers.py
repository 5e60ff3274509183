"""Producers of the simulated world: what they send, resend, give up, and take for an answer.

All number their batches, send several without waiting, and send again what was not acknowledged, in
order, as real clients do. A transactional one speaks v1 or v2; it may be replaced and go on as a
zombie, or go on after an error under another epoch (KIP-360). One kind has a transactional id of
its own in each life, as consumers of a group have: only its group can tell a zombie (KIP-447).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.protocol.api import ApiKey
from ottla.protocol.batches import Record, build_batch
from ottla.protocol.errors import ErrorCode
from support.transaction_history import Outcome, Refused, Sent

if TYPE_CHECKING:
    from support.transaction_world import World

PARTITIONS = 3
GROUP = "group"
GROUP_WITH_MEMBERS = "members"
TIMEOUT_MS = 4_000
IN_FLIGHT_MAX = 5
UNKNOWN = (ConnectionError, TimeoutError)
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"

RETRIABLE = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
# What a producer may be told for good; anything else is a fault of the broker.
DEFINITE = frozenset(
    (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTION_ABORTABLE,
    )
)
NOT_STORED = frozenset(
    (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.PRODUCER_FENCED,
    )
)
NOT_A_MEMBER = frozenset((ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID))


class TransactionFailed(Exception):
    """The transaction is over for its producer, who was told so."""


@dataclass
class Batch:
    sent: Sent
    partition: int
    values: list[bytes]
    fields: Mapping[str, Any]
    is_acknowledged: bool = False


class Sender:
    """A producer id, an epoch, and the numbers of its batches."""

    def __init__(self, world: "World", name: str, transactional_id: str | None) -> None:
        self.world = world
        self.name = name
        self.transactional_id = transactional_id
        self.client = world.client()
        self.producer_id = self.epoch = -1
        self.sequences: dict[int, int] = {}
        self.produce_version = 12
        # Whether a batch may overtake those before it by another way. A partition that does not
        # know the producer takes any first sequence, except in transactions v2.
        self.may_overtake = False

    async def pause(self) -> None:
        await asyncio.sleep(self.world.chance.uniform(0, 0.15))

    def expect(self, code: int, also: frozenset[ErrorCode] = frozenset()) -> None:
        if code not in RETRIABLE and code not in DEFINITE and code not in also:
            self.world.history.problems.append(f"{self.name} was told {ErrorCode(code).name}")

    async def init(self, expected: tuple[int, int] = (-1, -1)) -> bool:
        """Begin, or go on as who it is; False if it is refused."""
        fields = {
            "transactional_id": self.transactional_id,
            "transaction_timeout": TIMEOUT_MS,
            "producer_id": expected[0],
            "producer_epoch": expected[1],
        }
        while True:
            try:
                answer = await self.client.ask(ApiKey.INIT_PRODUCER_ID, 4, fields)
            except UNKNOWN:
                await self.pause()
                continue
            if answer.error_code == ErrorCode.NONE:
                self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
                self.sequences.clear()
                return True
            self.expect(answer.error_code)
            if answer.error_code not in RETRIABLE and expected != (-1, -1):
                return False
            await self.pause()

    def batch(self, sent: Sent, partition: int, values: list[bytes]) -> Batch:
        """The next batch to a partition."""
        for value in values:
            sent.values[value] = (partition, -1)
        sequence = self.sequences.get(partition, 0)
        self.sequences[partition] = sequence + len(values)
        # A producer whose records are old is forgotten at the next start, as it has expired.
        now_ms = self.world.simulation.clock("client").wall_ms()
        data = build_batch(
            [Record(n, now_ms, None, value) for n, value in enumerate(values)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=self.transactional_id is not None,
        )
        partitions = [{"index": partition, "records": bytes(data)}]
        fields = {
            "transactional_id": self.transactional_id,
            "acks": -1,
            "timeout": 3000,
            "topic_data": [{"name": "t", "partition_data": partitions}],
        }
        return Batch(sent, partition, values, fields)

    async def send(self, batches: Sequence[Batch], *, patience: float = 1.0) -> bool:
        """All of one partition, until each is acknowledged; False if it loses patience."""
        waiting = list(batches)
        while True:
            answers = await self._ask_all(waiting)
            for batch, answer in zip(waiting, answers, strict=False):
                is_next = all(one.is_acknowledged for one in waiting[: waiting.index(batch)])
                self._on_answer(batch, answer.responses[0].partition_responses[0], is_next)
            is_lost = len(answers) < len(waiting)
            waiting = [one for one in waiting if not one.is_acknowledged]
            if not waiting:
                return True
            if is_lost and self.world.chance.random() > patience:
                for one in waiting if self.may_overtake else waiting[:1]:
                    self.world.gremlin.keep(ApiKey.PRODUCE, self.produce_version, one.fields)
                return False
            await self.pause()

    def send_and_forget(self, batch: Batch) -> None:
        twin = self.world.gremlin.send_twin(ApiKey.PRODUCE, self.produce_version, batch.fields)
        self.world.in_background(twin)

    async def _ask_all(self, waiting: Sequence[Batch]) -> list[Any]:
        chance, gremlin, version = self.world.chance, self.world.gremlin, self.produce_version
        for batch in waiting if self.may_overtake else waiting[:1]:
            if chance.random() < 0.4:
                gremlin.keep(ApiKey.PRODUCE, version, batch.fields)
            if chance.random() < 0.15:
                self.send_and_forget(batch)
        if len(waiting) > 1 and self.world.restarts_unheard and chance.random() < 0.05:
            self.world.restarts_unheard -= 1
            self.world.in_background(self.world.restart_unheard())
        return await self.client.ask_all(
            ApiKey.PRODUCE,
            version,
            [batch.fields for batch in waiting],
            seconds_max=chance.choice([5.0, 5.0, 5.0, 0.1]),
        )

    def _on_answer(self, batch: Batch, result: Any, is_next: bool) -> None:
        code = ErrorCode(result.error_code)
        if code is ErrorCode.NONE:
            batch.is_acknowledged = True
            for n, value in enumerate(batch.values):
                batch.sent.values[value] = (batch.partition, result.base_offset + n)
            return
        self.expect(code)
        is_overtaken = code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not is_next
        if code in RETRIABLE or is_overtaken:
            return  # a client sends it again after those before it
        history = self.world.history
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            history.problems.append(f"{self.name} was told {code.name} for the next in line")
        if code in NOT_STORED:
            is_transactional = self.transactional_id is not None
            history.refused.append(
                Refused(self.name, batch.partition, batch.values, code, is_transactional)
            )
        raise TransactionFailed(code.name)


class Idempotent(Sender):
    """Writes outside of transactions, with as many batches in flight as a client may have."""

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world, name, None)

    async def work(self) -> None:
        chance, name = self.world.chance, self.name.encode()
        await self.init()
        for number in range(2 * self.world.transactions):
            partition, n, batches = chance.randrange(PARTITIONS), 0, []
            for _ in range(chance.randint(1, IN_FLIGHT_MAX)):
                count = chance.randint(1, 2)
                values = [b"%s/%d/%d" % (name, number, n + at) for at in range(count)]
                sent = Sent(self.name, number, outcome=Outcome.UNKNOWN)
                self.world.history.sent.append(sent)
                batches.append(self.batch(sent, partition, values))
                n += count
            try:
                await self.send(batches)
            except TransactionFailed:
                await self.init()  # as somebody new
            for batch in batches:
                if batch.is_acknowledged:
                    batch.sent.outcome = Outcome.COMMITTED
            await asyncio.sleep(chance.uniform(0, 0.8))
        self.client.disconnect()


class Producer:
    """One transactional id, with successors under the same one, or under one of their own."""

    def __init__(
        self, world: "World", number: int, *, version: int, is_member: bool = False
    ) -> None:
        self._world = world
        self._number = number
        self._is_v2 = version >= 2
        self._is_member = is_member
        self._lives = 0

    async def work(self) -> None:
        done, world = 0, self._world
        while done < world.transactions:
            self._lives += 1
            session = Session(
                world,
                self._number,
                self._lives,
                is_v2=self._is_v2,
                is_member=self._is_member,
                done=done,
            )
            if self._is_member:
                await session.join()
            await session.init()
            world.lives[session.name] = session.life
            done = await session.work()
            if session.is_zombie:
                done += 1
                world.in_background(session.go_on())
            else:
                session.client.disconnect()


class Session(Sender):
    """One producer in one life."""

    def __init__(
        self, world: "World", number: int, life: int, *, is_v2: bool, is_member: bool, done: int
    ) -> None:
        name = f"p{number}"
        super().__init__(world, name, f"{name}-{life}" if is_member else name)
        self.number = number
        self.is_v2 = self.may_overtake = is_v2
        self.produce_version = 12 if is_v2 else 9
        self.life = life
        self.done = done
        self.added: set[int] = set()
        self.is_zombie = False
        self.is_repeated = False  # somebody else may send the same request, too
        self.last_marker: dict[str, Any] | None = None  # of the transaction before
        # Of v1: from which epoch of the coordinator on each transaction was ended, and where.
        self.ended: list[tuple[int, set[int]]] = []
        self.member_id = ""
        self.generation = -1

    @property
    def is_replaced(self) -> bool:
        """Whether another producer has begun under the same transactional id."""
        latest = self.world.lives.get(self.name, self.life)
        return latest > self.life and self.transactional_id == self.name

    async def ask(self, key: ApiKey, version: int, fields: Any, *, repeats: bool = True) -> Any:
        if repeats and self.world.chance.random() < 0.4:
            self.is_repeated = True
            self.world.gremlin.keep(key, version, fields)
        if repeats and self.world.chance.random() < 0.15:
            self.is_repeated = True
            self.world.in_background(self.world.gremlin.send_twin(key, version, fields))
        return await self.client.ask(key, version, fields)

    async def work(self) -> int:
        """Transactions until there were enough, or until one ended the session."""
        chance = self.world.chance
        while self.done < self.world.transactions:
            sent = self._next()
            self.done += 1
            try:
                await self._transaction(sent)
            except TransactionFailed:
                if chance.random() < 0.5 or not await self._go_on_as_who_it_is():
                    return self.done
            if chance.random() < (0.25 if self.is_v2 else 0.15):
                self.is_zombie = chance.random() < 0.6
                return self.done  # a successor takes over
            await self.pause()
        return self.done

    async def go_on(self) -> None:
        """One more transaction, not knowing of the successor."""
        await asyncio.sleep(self.world.chance.uniform(0, 0.6))
        try:
            if self.world.chance.random() < 0.3 and not await self._go_on_as_who_it_is():
                return
            await self._transaction(self._next())
        except TransactionFailed:
            pass
        finally:
            self.client.disconnect()

    def _next(self) -> Sent:
        sent = Sent(self.name, self.done * 100 + self.life)  # unique, and rising
        self.world.history.sent.append(sent)
        return sent

    async def _go_on_as_who_it_is(self) -> bool:
        was_replaced = self.is_replaced
        self.last_marker = None
        self.ended.clear()
        goes_on = await self.init((self.producer_id, self.epoch))
        if goes_on and was_replaced:
            self.world.history.problems.append(f"{self.name} was replaced and goes on")
        return goes_on

    # A transaction

    async def _transaction(self, sent: Sent) -> None:
        chance = self.world.chance
        self.added.clear()
        places = chance.sample(range(PARTITIONS), chance.randint(1, 2))
        n = 0
        for _ in range(chance.randint(1, 3)):
            partition = chance.choice(places)
            await self._maybe_add(partition)
            batches = []
            for _ in range(chance.choice([1, 1, 2, 3])):
                count = chance.randint(1, 2)
                start = f"{self.transactional_id}/{sent.number}/".encode()
                values = [start + b"%d" % (n + at) for at in range(count)]
                batches.append(self.batch(sent, partition, values))
                n += count
            if chance.random() < 0.06:
                self.send_and_forget(batches[0])
                await asyncio.sleep(chance.uniform(0, 0.1))
                break
            if not await self.send(batches, patience=0.7):
                break  # it gives up and aborts, with batches perhaps still on their way
            await self._send_late_markers(partition)
            if chance.random() < 0.05:
                raise TransactionFailed  # it dies; whoever comes next aborts this
        else:
            if chance.random() < 0.5:
                await self._commit_offset(sent)
            await self._end(sent, is_commit=chance.random() < 0.7)
            return
        await self._end(sent, is_commit=False)
        if not self.is_v2:
            # Which sequence numbers are taken is not known: a new epoch begins anew (KIP-360).
            raise TransactionFailed

    async def _until_told(
        self,
        key: ApiKey,
        version: int,
        fields: Any,
        code_of: Callable[[Any], int],
        *,
        repeats: bool = True,
        also: frozenset[ErrorCode] = frozenset(),
    ) -> Any:
        """Ask until there is an answer that counts; TransactionFailed if it is a refusal."""
        while True:
            try:
                answer = await self.ask(key, version, fields, repeats=repeats)
            except UNKNOWN:
                await self.pause()
                continue
            code = code_of(answer)
            if code == ErrorCode.NONE:
                return answer
            self.expect(code, also)
            if code not in RETRIABLE:
                raise TransactionFailed(ErrorCode(code).name)
            await self.pause()

    # Partitions

    async def _maybe_add(self, partition: int) -> None:
        """Of v2 the produce does it; a client may, too."""
        chance = self.world.chance
        if partition in self.added:
            return
        self.added.add(partition)
        if self.is_v2:
            if chance.random() < 0.1:
                await self._ask_whether_it_is_added(partition)
            if chance.random() < 0.1:
                await self._add_as_broker(partition, 5)
        elif chance.random() < 0.5:
            await self._add_as_broker(partition, 4)
        else:
            await self._add_as_client(partition)

    async def _add_as_client(self, partition: int) -> None:
        fields = {
            "v3_and_below_transactional_id": self.transactional_id,
            "v3_and_below_producer_id": self.producer_id,
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": [{"name": "t", "partitions": [partition]}],
        }
        await self._until_told(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            fields,
            lambda answer: _code_of_first(answer.results_by_topic_v3_and_below),
        )

    async def _add_as_broker(self, partition: int, version: int) -> None:
        """As a broker does for the producers that write to it (KIP-890)."""
        await self._until_told(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            version,
            self._of_many(partition, verify_only=False),
            lambda answer: _code_of_first(answer.results_by_transaction[0].topic_results),
        )

    async def _ask_whether_it_is_added(self, partition: int) -> None:
        try:
            answer = await self.ask(
                ApiKey.ADD_PARTITIONS_TO_TXN, 4, self._of_many(partition, verify_only=True)
            )
        except UNKNOWN:
            return
        if _code_of_first(answer.results_by_transaction[0].topic_results) == ErrorCode.NONE:
            problem = f"{self.name} has partition {partition} without having added it"
            self.world.history.problems.append(problem)

    def _of_many(self, partition: int, *, verify_only: bool) -> dict[str, Any]:
        transaction = {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "verify_only": verify_only,
            "topics": [{"name": "t", "partitions": [partition]}],
        }
        return {"transactions": [transaction]}

    # Offsets

    async def join(self) -> None:
        """Be the one member of the group; the one before is thrown out."""
        world, before = self.world, self.world.member_id
        if before:
            leaving = {"members": [{"member_id": before, "group_instance_id": None}]}
            fields = {"group_id": GROUP_WITH_MEMBERS, **leaving}
            await world.until_known(self.client, ApiKey.LEAVE_GROUP, 3, fields)
        while True:
            joined = await world.until_known(
                self.client,
                ApiKey.JOIN_GROUP,
                3,
                {
                    "group_id": GROUP_WITH_MEMBERS,
                    "session_timeout": 300_000,
                    "rebalance_timeout": 1_000,
                    "member_id": "",
                    "protocol_type": "consumer",
                    "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
                },
            )
            if joined.error_code == ErrorCode.NONE:
                generation, member_id = joined.generation_id, joined.member_id
                synced = await world.until_known(
                    self.client,
                    ApiKey.SYNC_GROUP,
                    2,
                    {
                        "group_id": GROUP_WITH_MEMBERS,
                        "generation_id": generation,
                        "member_id": member_id,
                        "assignments": [{"member_id": member_id, "assignment": b"all"}],
                    },
                )
                if synced.error_code == ErrorCode.NONE:
                    self.member_id, self.generation = member_id, generation
                    world.member_id, world.generation = member_id, generation
                    return
            await self.pause()

    async def _commit_offset(self, sent: Sent) -> None:
        identity = {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "group_id": GROUP_WITH_MEMBERS if self.member_id else GROUP,
        }
        if not self.is_v2:
            await self._until_told(
                ApiKey.ADD_OFFSETS_TO_TXN, 3, identity, lambda answer: answer.error_code
            )
        offset = {
            "partition_index": self.number,
            "committed_offset": sent.number,
            "committed_leader_epoch": -1,
            "committed_metadata": None,
        }
        fields = {
            **identity,
            "member_id": self.member_id,
            "generation_id": self.generation,
            "topics": [{"name": "t", "partitions": [offset]}],
        }
        sent.offset = sent.number
        was_thrown_out = self.world.generation > self.generation and bool(self.member_id)
        await self._until_told(
            ApiKey.TXN_OFFSET_COMMIT,
            5 if self.is_v2 else 3,
            fields,
            lambda answer: answer.topics[0].partitions[0].error_code,
            repeats=self.is_v2,
            also=NOT_A_MEMBER if self.member_id else frozenset(),
        )
        if was_thrown_out:
            problem = f"{self.name} is no member any more and committed {sent.number}"
            self.world.history.problems.append(problem)

    # The end

    async def _end(self, sent: Sent, *, is_commit: bool) -> None:
        fields = {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "committed": is_commit,
        }
        is_first = True
        self.is_repeated = False
        coordinator_epoch = self.world.coordinator_epoch(self.transactional_id or "")
        while True:
            if is_commit:
                sent.outcome = Outcome.UNKNOWN
            try:
                answer = await self.ask(
                    ApiKey.END_TXN, 5 if self.is_v2 else 3, fields, repeats=self.is_v2
                )
            except UNKNOWN:
                is_first = False
                await self.pause()
                continue
            code = answer.error_code
            if code == ErrorCode.NONE:
                break
            self.expect(code)
            if code not in RETRIABLE:
                if is_first and not self.is_repeated:
                    sent.outcome = Outcome.ABORTED  # it was refused, and never asked before
                raise TransactionFailed(ErrorCode(code).name)
            if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                is_first = False
            await self.pause()
        sent.outcome = Outcome.COMMITTED if is_commit else Outcome.ABORTED
        places = {partition for partition, _ in sent.values.values()}
        if not self.is_v2:
            self.ended.append((coordinator_epoch, places))
            return
        self._keep_marker(places, is_commit=is_commit)
        if (answer.producer_id, answer.producer_epoch) == (self.producer_id, self.epoch):
            self.world.history.problems.append(f"the epoch of {self.name} was not bumped")
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()

    def _keep_marker(self, places: set[int], *, is_commit: bool) -> None:
        """The coordinator's marker of this transaction, held back on its way."""
        marker = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch + 1,
            "transaction_result": is_commit,
            "topics": [{"name": "t", "partition_indexes": sorted(places)}],
            "coordinator_epoch": 0,
            "transaction_version": 2,
        }
        self.world.gremlin.keep(ApiKey.WRITE_TXN_MARKERS, 2, {"markers": [marker]})
        self.last_marker = {"markers": [marker]}

    async def _send_late_markers(self, partition: int) -> None:
        """While a transaction is open here, the end of one before it arrives."""
        chance, gremlin = self.world.chance, self.world.gremlin
        if self.last_marker is not None and chance.random() < 0.2:
            late = gremlin.send_twin(ApiKey.WRITE_TXN_MARKERS, 2, self.last_marker)
            self.world.in_background(late)
        epochs = [epoch for epoch, places in self.ended if partition in places and epoch >= 0]
        if epochs and min(epochs) < epochs[-1]:
            # A coordinator that lives on although another has taken its place. Of v1 nothing else
            # tells its marker from one of this transaction.
            marker = {
                "producer_id": self.producer_id,
                "producer_epoch": self.epoch,
                "transaction_result": chance.random() < 0.5,
                "topics": [{"name": "t", "partition_indexes": [partition]}],
                "coordinator_epoch": min(epochs),
                "transaction_version": 0,
            }
            await gremlin.send_twin(ApiKey.WRITE_TXN_MARKERS, 2, {"markers": [marker]})


def _code_of_first(topics: Any) -> int:
    code: int = topics[0].results_by_partition[0].partition_error_code
    return code
