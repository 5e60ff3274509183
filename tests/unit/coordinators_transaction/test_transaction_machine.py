"""One transactional id under any order of requests, repeated and delayed, with failing writes.

Requests that were sent may arrive at any later time and any number of times. The model counts
transactions: it knows which one each request was meant for, which the machine under test can only
tell by epochs.
"""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.coordinators.transaction.metadata import ProducerIdentity, TransactionMetadata
from ottla.coordinators.transaction.records import transaction_record, transaction_tombstone
from ottla.coordinators.transaction.shard import TransactionShard
from ottla.coordinators.transaction.states import PREPARED, PREVIOUS, TransactionState
from ottla.coordinators.transaction.transaction import EndRequest, ProducerIdNeeded
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import TopicPartition
from ottla.protocol.producers import NO_PRODUCER_EPOCH, PRODUCER_EPOCH_MAX

NAME = "id"
PARTITIONS = [TopicPartition("t", index) for index in range(3)]
TIMEOUT_MS = 100
EXPIRATION_MS = 10_000
# Close to the end of the epochs, so that running out of them is met.
KINDS = ["begin", "keep", "go on", "add", "add", "add", "end", "end", "late end", "late end"]
KINDS += ["markers", "markers", "whole", "time", "much time", "time out", "epoch of nobody"]
RARELY = st.sampled_from([False] * 7 + [True])
FIRST_EPOCHS = st.sampled_from([0, 0, PRODUCER_EPOCH_MAX - 4, PRODUCER_EPOCH_MAX - 2])


@dataclass
class Client:
    """A producer as it sees itself."""

    identity: ProducerIdentity
    version: int  # of transactions that it speaks
    serial: int  # of the transaction that it believes to be in


@dataclass(frozen=True)
class SentEnd:
    request: EndRequest
    serial: int


def check_refusal(error: KafkaError) -> None:
    assert error.code in (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    )


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.shard = TransactionShard()
        self.log: list[tuple[bytes, bytes | None]] = []
        self.now_ms = 1_000_000
        self.next_producer_id = 100
        self.serial = 0  # of the latest transaction
        self.outcomes: dict[int, bool] = {}
        self.clients: list[Client] = []
        self.ends: list[SentEnd] = []
        self.latest: Client | None = None  # the producer that was not replaced yet
        self.highest: dict[int, int] = {}
        self.told: set[ProducerIdentity] = set()

    # The world around the machine

    def write(self, decided: TransactionMetadata, *, fails: bool) -> bool:
        transaction = self.shard.transactions[NAME]
        assert transaction.pending is None
        assert transaction.state in PREVIOUS[decided.state]
        record = transaction_record(NAME, decided, transaction_version=2)
        self.shard.expect(transaction, decided, record)
        if fails:
            transaction.pending = None
            return False
        self.log.append(record)
        self.shard.replay(-1, *record)
        assert transaction.pending is None
        assert transaction.current == decided
        return True

    def new_producer_id(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id

    def init(
        self, expected: ProducerIdentity | None, *, fails: bool, keeps: bool = False
    ) -> ProducerIdentity | None:
        transaction = self.shard.get_or_new(NAME, self.new_producer_id(), TIMEOUT_MS, self.now_ms)
        try:
            is_open = transaction.check_open(expected)
            if is_open and not keeps:
                if self.write(
                    transaction.decide_fencing_abort(server_version=2, now_ms=self.now_ms),
                    fails=fails,
                ):
                    self.outcomes[self.serial] = False
                return None
            decide = transaction.decide_keep if is_open else transaction.decide_init
            asked = {"timeout_ms": TIMEOUT_MS, "expected": expected, "now_ms": self.now_ms}
            try:
                decided = decide(**asked, spare_producer_id=None)
            except ProducerIdNeeded:
                decided = decide(**asked, spare_producer_id=self.new_producer_id())
        except KafkaError as error:
            check_refusal(error)
            return None
        before = transaction.current
        if not self.write(decided, fails=fails):
            return None
        if is_open:
            assert decided.identity == before.identity, "another's transaction was kept"
            assert decided.partitions == before.partitions
        if expected is None:
            assert decided.client not in self.told, "two producers are told to be the same"
        self.tell(decided.client)
        return decided.client

    def tell(self, identity: ProducerIdentity) -> None:
        assert identity.producer_epoch < PRODUCER_EPOCH_MAX, "nobody is left to fence it"
        self.told.add(identity)

    def a_producer_begins(
        self, version: int, epoch: int, *, fails: bool, keeps: bool = False
    ) -> None:
        if not self.shard.transactions and epoch:
            old = TransactionMetadata(
                self.new_producer_id(),
                epoch,
                TIMEOUT_MS,
                TransactionState.EMPTY,
                last_update_ms=self.now_ms,
            )
            record = transaction_record(NAME, old, transaction_version=2)
            self.log.append(record)
            self.shard.replay(-1, *record)
        identity = self.init(None, fails=fails, keeps=keeps)
        if identity is not None:
            is_kept = self.shard.transactions[NAME].current.is_kept
            self.latest = Client(identity, version, self.serial + (not is_kept))
            self.clients.append(self.latest)

    def a_producer_goes_on_after_an_error(self, client: Client, *, fails: bool) -> None:
        identity = self.init(client.identity, fails=fails)
        if identity is not None:
            client.identity = identity
            client.serial = self.serial + 1

    def a_partition_is_added(self, client: Client, at: TopicPartition, *, fails: bool) -> None:
        transaction = self.shard.transactions.get(NAME)
        if transaction is None:
            return
        was_open = transaction.state is TransactionState.ONGOING
        try:
            decided = transaction.decide_add(
                client.identity,
                frozenset((at,)),
                client_version=client.version if client.version >= 2 else 0,
                now_ms=self.now_ms,
            )
        except KafkaError as error:
            check_refusal(error)
            return
        assert client.identity == transaction.current.client, "a zombie added a partition"
        assert not transaction.current.is_kept, "a kept transaction got a partition"
        if decided is not None and self.write(decided, fails=fails):
            assert at in transaction.current.partitions
            if not was_open:
                self.serial += 1
                client.serial = self.serial
        assert not client.version >= 2 or not was_open or client.serial == self.serial

    def an_end_is_sent(self, client: Client, is_commit: bool) -> SentEnd:
        version = 2 if client.version >= 2 else 0
        sent = SentEnd(EndRequest(*client.identity, is_commit, version), client.serial)
        self.ends.append(sent)
        return sent

    def an_end_arrives(self, sent: SentEnd, client: Client, *, fails: bool) -> None:
        """Perhaps late, perhaps again. `client` gets the answer if it is the one who asked."""
        transaction = self.shard.transactions.get(NAME)
        if transaction is None:
            return
        before = transaction.current
        try:
            try:
                decided = transaction.decide_end(
                    sent.request, spare_producer_id=None, now_ms=self.now_ms
                )
            except ProducerIdNeeded:
                decided = transaction.decide_end(
                    sent.request, spare_producer_id=self.new_producer_id(), now_ms=self.now_ms
                )
        except KafkaError as error:
            check_refusal(error)
            return
        bumps = sent.request.client_version >= 2
        if decided is None:
            if bumps and sent.serial in self.outcomes:
                assert self.outcomes[sent.serial] is sent.request.is_commit
            return
        assert ProducerIdentity(*sent.request[:2]) == before.client, "a zombie ended it"
        if before.state is TransactionState.ONGOING and bumps:
            assert sent.serial == self.serial, "it was meant for another transaction"
        if before.state is not TransactionState.ONGOING:
            assert not sent.request.is_commit, "a transaction was committed that never began"
        if not self.write(decided, fails=fails):
            return
        if before.state is TransactionState.ONGOING:
            self.outcomes[self.serial] = sent.request.is_commit
        else:
            self.serial += 1  # an empty one
            self.outcomes[self.serial] = False
        identity = transaction.current.client
        if bumps:
            assert identity not in self.told, "two producers are told to be the same"
            self.tell(identity)
            assert identity != ProducerIdentity(*sent.request[:2]), "the epoch was not bumped"
            if client.identity == ProducerIdentity(*sent.request[:2]):
                client.identity = identity
                client.serial = self.serial + 1

    def a_whole_transaction_passes(self, is_commit: bool) -> None:
        """Nothing goes wrong, but its EndTxn may come again."""
        client = self.latest
        if client is None or client.version < 2 or not self.shard.transactions:
            return
        self.all_markers_are_written(fails=False)
        self.a_partition_is_added(client, PARTITIONS[0], fails=False)
        sent = self.an_end_is_sent(client, is_commit)
        self.an_end_arrives(sent, client, fails=False)
        self.all_markers_are_written(fails=False)

    def all_markers_are_written(self, *, fails: bool) -> None:
        transaction = self.shard.transactions.get(NAME)
        if transaction is not None and transaction.state in PREPARED:
            was = transaction.current.client
            if self.write(transaction.decide_complete(now_ms=self.now_ms), fails=fails):
                assert transaction.current.identity == was
                assert not transaction.current.partitions

    def time_passes(self, passed_ms: int, *, fails: bool) -> None:
        self.now_ms += passed_ms
        for transaction in self.shard.timed_out(self.now_ms):
            assert transaction.state is TransactionState.ONGOING
            decided = transaction.decide_fencing_abort(server_version=2, now_ms=self.now_ms)
            if self.write(decided, fails=fails):
                self.outcomes[self.serial] = False

    def a_transaction_times_out_and_its_producer_goes_on(
        self, client: Client, at: TopicPartition
    ) -> None:
        """As a client does that hears of it (KIP-588)."""
        self.all_markers_are_written(fails=False)
        self.a_partition_is_added(client, at, fails=False)
        self.time_passes(TIMEOUT_MS + 1, fails=False)
        self.all_markers_are_written(fails=False)
        self.a_producer_goes_on_after_an_error(client, fails=False)

    def somebody_claims_an_epoch_that_nobody_has(self, at: TopicPartition) -> None:
        """The last one is there to fence producers."""
        transaction = self.shard.transactions.get(NAME)
        if transaction is not None:
            before = transaction.current.client
            if before.producer_epoch == PRODUCER_EPOCH_MAX:
                liar = Client(before, 2, serial=-1)
                self.a_partition_is_added(liar, at, fails=False)
                self.an_end_arrives(self.an_end_is_sent(liar, False), liar, fails=False)
                assert transaction.current.client == before

    def much_time_passes(self) -> None:
        self.now_ms += EXPIRATION_MS
        for name in self.shard.expired(self.now_ms, EXPIRATION_MS):
            record = transaction_tombstone(name)
            self.log.append(record)
            self.shard.replay(-1, *record)

    # One rule for all that may happen: hypothesis leaves out some rules in each run, and what
    # is looked for here takes many kinds of steps.
    @rule(data=st.data(), kind=st.sampled_from(KINDS), is_commit=st.booleans(), fails=RARELY)
    def something_happens(
        self, data: st.DataObject, kind: str, is_commit: bool, fails: bool
    ) -> None:
        if kind in ("begin", "keep") or not self.clients:
            version, epoch = data.draw(st.sampled_from([1, 2, 2])), data.draw(FIRST_EPOCHS)
            self.a_producer_begins(version, epoch, fails=fails, keeps=kind == "keep")
            return
        client = data.draw(st.sampled_from([*self.clients[-3:], self.clients[-1]]))
        if kind == "go on":
            self.a_producer_goes_on_after_an_error(client, fails=fails)
        elif kind == "add":
            self.a_partition_is_added(client, data.draw(st.sampled_from(PARTITIONS)), fails=fails)
        elif kind == "end":
            self.an_end_arrives(self.an_end_is_sent(client, is_commit), client, fails=fails)
        elif kind == "late end" and self.ends:
            self.an_end_arrives(data.draw(st.sampled_from(self.ends)), client, fails=fails)
        elif kind == "markers":
            self.all_markers_are_written(fails=fails)
        elif kind == "whole":
            self.a_whole_transaction_passes(is_commit)
        elif kind == "time":
            self.time_passes(data.draw(st.sampled_from([1, 2, 5, TIMEOUT_MS + 1])), fails=fails)
        elif kind == "time out":
            at = data.draw(st.sampled_from(PARTITIONS))
            self.a_transaction_times_out_and_its_producer_goes_on(client, at)
        elif kind == "epoch of nobody":
            self.somebody_claims_an_epoch_that_nobody_has(PARTITIONS[0])
        elif kind == "much time" and fails:
            self.much_time_passes()

    # What must hold

    @invariant()
    def replaying_the_log_gives_the_same_state(self) -> None:
        again = TransactionShard()
        for key, value in self.log:
            again.replay(-1, key, value)
        live = {
            name: one.current._replace(last_producer_epoch=-1)
            for name, one in self.shard.transactions.items()
            if one.current.producer_epoch != NO_PRODUCER_EPOCH
        }
        assert {name: one.current for name, one in again.transactions.items()} == live

    @invariant()
    def epochs_never_go_back(self) -> None:
        for transaction in self.shard.transactions.values():
            current = transaction.current
            producer_id, epoch = current.identity
            assert epoch >= self.highest.get(producer_id, -1)
            assert epoch <= PRODUCER_EPOCH_MAX
            self.highest[producer_id] = epoch
            if current.is_kept and current.next_producer_id == producer_id:
                assert current.next_producer_epoch > epoch


TransactionMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
TestTransactionMachine = TransactionMachine.TestCase
