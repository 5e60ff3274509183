"""Consumer groups with three clients against a broker process: share, commit, resume, survive."""

import asyncio
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from bench.brokers import BrokerProcess, Kind
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

with warnings.catch_warnings():
    # It reads its schemas in a way that Python 3.11 calls deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer
    from kafka import TopicPartition as PythonPartition

PARTITIONS = 4
RECORDS = 40
WAIT_S = 40.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    overrides = {"offsets.topic.num.partitions": "5", "group.min.session.timeout.ms": "100"}
    with BrokerProcess(Kind.OTTLA, tmp_path_factory.mktemp("groups"), overrides) as broker:
        broker.format()
        broker.start()
        yield broker


@pytest.fixture
def topic(broker: BrokerProcess, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", "-").replace("]", "")[-100:]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
    produce(broker, name, range(RECORDS))
    return name


def produce(broker: BrokerProcess, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def consumer(broker: BrokerProcess, group: str, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 200,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


def until(done: Callable[[], bool], *polled: Consumer) -> list[int]:
    """Poll in turns until `done`; the numbers that were read meanwhile."""
    numbers: list[int] = []
    deadline = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < deadline, "it did not happen"
        for one in polled:
            message = one.poll(0.05)
            if message is not None:
                assert message.error() is None, message.error()
                numbers.append(int(message.value()))
    return numbers


def read(one: Consumer, count: int) -> list[int]:
    numbers: list[int] = []
    deadline = time.monotonic() + WAIT_S
    while len(numbers) < count:
        assert time.monotonic() < deadline, f"{len(numbers)} of {count} came"
        message = one.poll(0.1)
        if message is not None:
            assert message.error() is None, message.error()
            numbers.append(int(message.value()))
    return numbers


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_partitions_are_shared_out_and_in_again(
    broker: BrokerProcess, topic: str, strategy: str
) -> None:
    settings = {"partition_assignment_strategy": strategy}
    first, second = (consumer(broker, topic, **settings) for _ in range(2))
    try:
        first.subscribe([topic])
        until(lambda: len(first.assignment()) == PARTITIONS, first)
        second.subscribe([topic])
        until(
            lambda: len(first.assignment()) == len(second.assignment()) == PARTITIONS // 2,
            first,
            second,
        )
        both = [*first.assignment(), *second.assignment()]
        assert {one.partition for one in both} == set(range(PARTITIONS))
        first.close()
        until(lambda: len(second.assignment()) == PARTITIONS, second)
    finally:
        second.close()


def test_commit_is_where_the_group_resumes(broker: BrokerProcess, topic: str) -> None:
    first = consumer(broker, topic)
    first.subscribe([topic])
    assert sorted(read(first, RECORDS)) == list(range(RECORDS))
    first.commit(asynchronous=False)
    first.close()
    produce(broker, topic, range(RECORDS, RECORDS + 8))
    second = consumer(broker, topic)
    second.subscribe([topic])
    assert sorted(read(second, 8)) == list(range(RECORDS, RECORDS + 8))
    second.close()


def test_static_member_that_restarts_keeps_its_partitions(
    broker: BrokerProcess, topic: str
) -> None:
    stays = consumer(broker, topic, group_instance_id="stays")
    leaves = consumer(broker, topic, group_instance_id="leaves")
    rebalances: list[int] = []
    stays.subscribe([topic], on_assign=lambda _, given: rebalances.append(len(given)))
    leaves.subscribe([topic])
    until(lambda: len(stays.assignment()) == len(leaves.assignment()) == 2, stays, leaves)
    before = {one.partition for one in leaves.assignment()}
    seen = len(rebalances)
    leaves.close()  # a static member does not leave the group
    back = consumer(broker, topic, group_instance_id="leaves")
    back.subscribe([topic])
    until(lambda: len(back.assignment()) == 2, stays, back)
    assert {one.partition for one in back.assignment()} == before
    assert len(rebalances) == seen
    back.close()
    stays.close()


def test_aiokafka_shares_commits_and_resumes(broker: BrokerProcess, topic: str) -> None:
    async def scenario() -> None:
        settings = {
            "bootstrap_servers": broker.bootstrap,
            "group_id": topic,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "heartbeat_interval_ms": 200,
            "session_timeout_ms": 6000,
        }
        first = AIOKafkaConsumer(topic, **settings)
        second = AIOKafkaConsumer(topic, **settings)
        await first.start()
        try:
            seen = [int((await first.getone()).value) for _ in range(RECORDS)]
            assert sorted(seen) == list(range(RECORDS))
            await first.commit()
            await second.start()
            async with asyncio.timeout(WAIT_S):
                while not len(first.assignment()) == len(second.assignment()) == 2:
                    await asyncio.sleep(0.05)  # a poll of what its background task reports
            await first.stop()
            async with asyncio.timeout(WAIT_S):
                while len(second.assignment()) != PARTITIONS:
                    await asyncio.sleep(0.05)
            for one in second.assignment():
                assert await second.committed(one) == RECORDS // PARTITIONS
        finally:
            await first.stop()
            await second.stop()

    asyncio.run(scenario())


def test_kafka_python_shares_commits_and_resumes(broker: BrokerProcess, topic: str) -> None:
    def new() -> KafkaConsumer:
        return KafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
            session_timeout_ms=6000,
        )

    first, second = new(), new()
    stop = threading.Event()
    try:
        seen: list[int] = []
        deadline = time.monotonic() + WAIT_S
        while len(seen) < RECORDS:
            assert time.monotonic() < deadline
            for batch in first.poll(timeout_ms=200).values():
                seen += [int(record.value) for record in batch]
        assert sorted(seen) == list(range(RECORDS))
        first.commit()

        def keep_polling() -> None:
            while not stop.is_set():
                first.poll(timeout_ms=50)

        thread = threading.Thread(target=keep_polling)
        thread.start()
        while len(second.assignment()) != PARTITIONS // 2:
            assert time.monotonic() < deadline
            second.poll(timeout_ms=50)
        stop.set()
        thread.join()
        first.close()
        while len(second.assignment()) != PARTITIONS:
            assert time.monotonic() < deadline
            second.poll(timeout_ms=50)
        for partition in range(PARTITIONS):
            at = second.committed(PythonPartition(topic, partition))
            assert at == RECORDS // PARTITIONS
    finally:
        stop.set()
        second.close()


def test_offsets_and_members_survive_kill_9(tmp_path: Path) -> None:
    with BrokerProcess(Kind.OTTLA, tmp_path, {"offsets.topic.num.partitions": "3"}) as broker:
        broker.format()
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(30)
        produce(broker, "t", range(RECORDS))
        member = consumer(broker, "alive")
        member.subscribe(["t"])
        read(member, RECORDS)
        member.commit(asynchronous=False)
        for number in range(30):  # commits of many groups, over all partitions
            one = consumer(broker, f"group-{number}")
            one.commit(
                offsets=[TopicPartition("t", 1, number, metadata=f"note {number}")],
                asynchronous=False,
            )
            one.close()
        broker.kill()
        broker.start()
        for number in range(30):
            one = consumer(broker, f"group-{number}")
            (committed,) = one.committed([TopicPartition("t", 1)], timeout=30)
            assert committed.offset == number
            assert committed.metadata == f"note {number}"
            one.close()
        described = admin.describe_consumer_groups(["alive"])["alive"].result(30)
        assert len(described.members) == 1
        produce(broker, "t", range(RECORDS, RECORDS + 4))
        assert sorted(read(member, 4)) == list(range(RECORDS, RECORDS + 4))
        member.commit(asynchronous=False)
        member.close()
        broker.stop()
        broker.start()
        again = consumer(broker, "alive")
        committed = again.committed([TopicPartition("t", one) for one in range(4)], timeout=30)
        assert [one.offset for one in committed] == [RECORDS // PARTITIONS + 1] * 4
        again.close()


def test_administrators_list_describe_and_delete(broker: BrokerProcess, topic: str) -> None:
    member = consumer(broker, topic, client_id="someone")
    member.subscribe([topic])
    read(member, RECORDS)
    member.commit(asynchronous=False)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    listed = {one.group_id: one for one in admin.list_consumer_groups().result(30).valid}
    assert listed[topic].state.name == "STABLE"
    described = admin.describe_consumer_groups([topic])[topic].result(30)
    assert [one.client_id for one in described.members] == ["someone"]
    assert len(described.members[0].assignment.topic_partitions) == PARTITIONS
    error = admin.delete_consumer_groups([topic])[topic].exception(30)
    assert error is not None
    assert error.args[0].name() == "NON_EMPTY_GROUP"
    member.close()
    assert admin.delete_consumer_groups([topic])[topic].exception(30) is None
    again = consumer(broker, topic)
    (committed,) = again.committed([TopicPartition(topic, 0)], timeout=30)
    assert committed.offset < 0
    again.close()


def test_offsets_of_a_deleted_topic_are_gone(broker: BrokerProcess, topic: str) -> None:
    one = consumer(broker, topic)
    one.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.delete_topics([topic])[topic].result(30)
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    (committed,) = one.committed([TopicPartition(topic, 0)], timeout=30)
    assert committed.offset < 0
    one.close()
