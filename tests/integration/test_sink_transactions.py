"""The steps of a transaction against a real broker, with faults at every request."""

from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from ottla.client.client import Client
from ottla.client.config import ClientConfig
from ottla.client.metadata import TopicPartition
from ottla.client.offsets import LATEST, committed_offsets, list_offsets
from ottla.client.transactions import Batch, BatchProducer, MarkedOffset, ProducerFenced
from ottla.protocol.api import ApiKey
from ottla.protocol.batches import Record, build_batch
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.spark.exactly_once import Outcome
from ottla.spark.publish import Output, QueryPublisher
from ottla.spark.sink_errors import FencedError, MarkerError, SinkError, TransactionExpired
from ottla.spark.sink_options import parse_sink_options
from support.fault_proxy import MOMENTS, Fault, FaultProxy, is_any
from support.spark_runs import broker, create_topic, values_of

pytestmark = pytest.mark.timeout(300)

KEPT = {"retention.ms": "-1"}  # records of 1970 would be taken by retention
STEPS = (
    ApiKey.FIND_COORDINATOR,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.OFFSET_FETCH,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.PRODUCE,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
)


class Place:
    """A broker behind a proxy."""

    def __init__(self, proxy: FaultProxy) -> None:
        self.proxy = proxy
        self.bootstrap = f"127.0.0.1:{proxy.port}"
        self._topics = 0

    def topic(self, partitions: int = 2) -> str:
        self._topics += 1
        name = f"topic-{self._topics}"
        create_topic(self.bootstrap, name, partitions, **KEPT)
        return name


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    proxy = FaultProxy(("127.0.0.1", 0))
    directory: Path = tmp_path_factory.mktemp("broker")
    with proxy, broker(directory, proxy=proxy):
        yield Place(proxy)


def batch(topic: str, partition: int, *values: bytes) -> Batch:
    records = [Record(n, 1, None, value) for n, value in enumerate(values)]
    return Batch(TopicPartition(topic, partition), memoryview(build_batch(records)))


def test_a_transaction_counts_once_it_is_committed(place: Place) -> None:
    topic = place.topic()
    with Client(ClientConfig.of(place.bootstrap)) as client:
        producer = BatchProducer(client, "tx-plain")
        producer.take_producer_id()
        for round_ in (b"a", b"b"):
            producer.add_partitions([TopicPartition(topic, 0), TopicPartition(topic, 1)])
            producer.produce([batch(topic, n % 2, round_ + b"%d" % n) for n in range(20)])
            mark = {TopicPartition(topic, 0): MarkedOffset(7, "why")}
            producer.send_offsets("tx-plain", mark)
            assert committed_offsets(client, "tx-plain", None) == {} or round_ == b"b"
            producer.end_transaction(is_commit=True)
        found = committed_offsets(client, "tx-plain", None, require_stable=True)
        assert found[TopicPartition(topic, 0)][:2] == (7, "why")
    assert sum(values_of(place.bootstrap, topic).values()) == 40


def test_what_a_dead_producer_left_open_is_not_read(place: Place) -> None:
    topic = place.topic()
    config = ClientConfig.of(place.bootstrap)
    with Client(config) as first, Client(config) as second:
        old, new = BatchProducer(first, "tx-left"), BatchProducer(second, "tx-left")
        old.take_producer_id()
        old.add_partitions([TopicPartition(topic, 0)])
        old.produce([batch(topic, 0, b"lost")])
        new.take_producer_id()
        with pytest.raises(ProducerFenced):
            old.end_transaction(is_commit=True)
        new.add_partitions([TopicPartition(topic, 0)])
        new.produce([batch(topic, 0, b"kept")])
        new.end_transaction(is_commit=True)
    assert values_of(place.bootstrap, topic) == Counter([b"kept"])


def test_a_topic_that_is_gone_is_named(place: Place) -> None:
    with Client(ClientConfig.of(place.bootstrap, default_api_timeout_ms="500")) as client:
        producer = BatchProducer(client, "tx-gone")
        producer.take_producer_id()
        with pytest.raises(KafkaError, match="nowhere"):
            producer.add_partitions([TopicPartition("nowhere", 0)])


def test_a_batch_that_was_damaged_before_it_is_sent_is_refused_at_once(place: Place) -> None:
    topic = place.topic(1)
    with Client(ClientConfig.of(place.bootstrap)) as client:
        producer = BatchProducer(client, "tx-damaged", delivery_timeout_ms=10**9)
        producer.take_producer_id()
        producer.add_partitions([TopicPartition(topic, 0)])
        damaged = batch(topic, 0, b"damaged")
        damaged.data[-2] ^= 1
        with pytest.raises(KafkaError) as caught:
            producer.produce([batch(topic, 0, b"sound"), damaged])
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
        producer.take_producer_id()
    assert values_of(place.bootstrap, topic) == Counter()


def test_without_transactions_a_batch_is_written_once_though_its_answer_is_lost(
    place: Place,
) -> None:
    topic = place.topic(1)
    with Client(ClientConfig.of(place.bootstrap)) as client:
        producer = BatchProducer(client)
        producer.take_producer_id()
        fault = place.proxy.arm(Fault(ApiKey.PRODUCE, 3, "inside", lambda pid: None, counts=is_any))
        producer.produce([batch(topic, 0, b"%d" % n) for n in range(12)])
        assert fault.is_done.wait(30)
    assert values_of(place.bootstrap, topic) == Counter(b"%d" % n for n in range(12))


@pytest.mark.parametrize(("step", "moment"), list(product(STEPS, MOMENTS)))
@pytest.mark.parametrize("is_crash", [False, True], ids=["cut", "crash"])
def test_a_fault_at_any_request_loses_and_repeats_nothing(
    place: Place, step: ApiKey, moment: str, is_crash: bool
) -> None:
    """The connection is cut, and the driver goes on or is replaced by a new one."""
    topic = place.topic()
    options = parse_sink_options(
        {
            "kafka.bootstrap.servers": place.bootstrap,
            "topic": topic,
            "kafka.retry.backoff.ms": "20",
            "kafka.default.api.timeout.ms": "1" if is_crash else "30000",
            "kafka.delivery.timeout.ms": "1" if is_crash else "30000",
        }
    )
    name = f"tx-{step.name}-{moment}-{is_crash}"
    publisher = QueryPublisher(options, name)
    expected: Counter[bytes] = Counter()
    batch_id = 0
    while batch_id < 3:
        values = [b"%d-%d" % (batch_id, n) for n in range(4)]
        output = Output([batch(topic, n % 2, value) for n, value in enumerate(values)], 4)
        if batch_id == 1 and batch_id * 4 == sum(expected.values()):
            fault = place.proxy.arm(Fault(step, 1, moment, lambda pid: None, counts=is_any))
            if step in STEPS[:3]:
                publisher.close()
                publisher = QueryPublisher(options, name)
            expected.update([b"armed"])
        try:
            publisher.publish(batch_id, lambda output=output: output)
        except SinkError:
            publisher.close()
            publisher = QueryPublisher(options, name)  # Spark fails the query; it is restarted
            continue
        expected.update(values)
        batch_id += 1
    assert fault.is_done.wait(30)
    del expected[b"armed"]
    assert values_of(place.bootstrap, topic) == expected
    publisher.close()


@pytest.mark.parametrize(
    ("step", "moment", "said"),
    [
        (ApiKey.ADD_PARTITIONS_TO_TXN, "inside", "Nothing of this micro-batch was published"),
        (ApiKey.PRODUCE, "inside", "Nothing of this micro-batch was published"),
        (ApiKey.TXN_OFFSET_COMMIT, "inside", "Nothing of this micro-batch was published"),
        (ApiKey.END_TXN, "before", "is not known.*starting again finds out"),
        (ApiKey.END_TXN, "inside", "is not known.*starting again finds out"),
    ],
)
def test_a_driver_that_gives_up_says_what_it_knows_of_its_output(
    place: Place, step: ApiKey, moment: str, said: str
) -> None:
    topic = place.topic()
    impatient = {"kafka.default.api.timeout.ms": "1", "kafka.delivery.timeout.ms": "1"}
    broker_of = {"kafka.bootstrap.servers": place.bootstrap, "topic": topic}
    name = f"tx-said-{step.name}-{moment}"
    patient = QueryPublisher(parse_sink_options(broker_of), name)  # coordinators may have to load
    patient.publish(0, lambda: Output([batch(topic, 0, b"0")], 1))
    patient.close()
    publisher = QueryPublisher(parse_sink_options({**broker_of, **impatient}), name)
    fault = place.proxy.arm(Fault(step, 1, moment, lambda pid: None, counts=is_any))
    with pytest.raises(SinkError, match=said):
        publisher.publish(1, lambda: Output([batch(topic, 0, b"1")], 1))
    assert fault.is_done.wait(30)
    publisher.close()
    again = QueryPublisher(parse_sink_options(broker_of), name)
    outcome = again.publish(1, lambda: Output([batch(topic, 0, b"1")], 1))
    is_published = (step, moment) == (ApiKey.END_TXN, "inside")
    assert outcome is (Outcome.ALREADY_PUBLISHED if is_published else Outcome.PUBLISHED)
    assert values_of(place.bootstrap, topic) == Counter([b"0", b"1"])
    again.close()


def test_a_transaction_that_took_too_long_may_be_tried_again(place: Place) -> None:
    topic = place.topic(1)
    options = {
        "kafka.bootstrap.servers": place.bootstrap,
        "topic": topic,
        "kafka.transaction.timeout.ms": "1000",
    }
    publisher = QueryPublisher(parse_sink_options(options), "tx-slow")

    def wait_for_the_broker(pid: int | None) -> None:
        """Until it has ended the transaction, so that readers get past it."""
        partition = TopicPartition(topic, 0)
        with Client(ClientConfig.of(place.bootstrap)) as client:
            while True:
                ends = [
                    list_offsets(client, {partition: LATEST}, is_read_committed=is_committed)
                    for is_committed in (True, False)
                ]
                if ends[0][partition].offset == ends[1][partition].offset:
                    return

    place.proxy.arm(
        Fault(ApiKey.ADD_OFFSETS_TO_TXN, 1, "before", wait_for_the_broker, counts=is_any)
    )
    with pytest.raises(TransactionExpired, match=r"transaction\.timeout\.ms.*Nothing"):
        publisher.publish(0, lambda: Output([batch(topic, 0, b"0")], 1))
    publisher.publish(0, lambda: Output([batch(topic, 0, b"0")], 1))
    publisher.close()
    assert values_of(place.bootstrap, topic) == Counter([b"0"])


def test_two_drivers_fence_one_another_and_the_later_one_goes_on(place: Place) -> None:
    topic = place.topic()
    options = parse_sink_options({"kafka.bootstrap.servers": place.bootstrap, "topic": topic})
    first, second = QueryPublisher(options, "tx-two"), QueryPublisher(options, "tx-two")
    assert first.publish(0, lambda: Output([batch(topic, 0, b"0")], 1)) is Outcome.PUBLISHED
    outcome = second.publish(0, lambda: Output([batch(topic, 0, b"0")], 1))
    assert outcome is Outcome.ALREADY_PUBLISHED
    with pytest.raises(FencedError, match="Two drivers"):
        first.publish(1, lambda: Output([batch(topic, 0, b"1")], 1))
    second.publish(1, lambda: Output([batch(topic, 0, b"1")], 1))
    with pytest.raises(MarkerError, match="only 2 micro-batches"):
        first.publish(5, lambda: Output([], 0))
    first.close()
    second.close()
    assert values_of(place.bootstrap, topic) == Counter([b"0", b"1"])
