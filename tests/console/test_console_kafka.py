"""The same console over Apache Kafka 4.3.1, where its jars are at hand."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import confluent_kafka
import pytest
from bench.brokers import BrokerProcess, Kind, Missing, kafka_jars
from confluent_kafka.admin import AdminClient, NewTopic
from console_world import QUIET, ConsoleProcess, World, told_when_well, wait_until
from kafka_pair import kafka_pair


class Pair(NamedTuple):
    first: BrokerProcess
    second: BrokerProcess
    console: ConsoleProcess


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    try:
        kafka_jars()
    except Missing as error:
        pytest.skip(str(error))
    directory: Path = tmp_path_factory.mktemp("console-kafka")
    with World(directory, kind=Kind.KAFKA, interval_s=0.5) as world:
        world.shop.start(("billing",))
        yield world


def test_every_page_serves_apache_kafka(kafka: World) -> None:
    pages = {
        "/": told_when_well()[0],
        "/topics": "orders",
        "/topics/orders": "EUR",
        "/topics/orders/partitions": "High watermark",
        "/topics/orders/configs": "controls the maximum size",
        "/topics/orders/consumers": "billing",
        "/groups": "billing",
        "/groups/view?id=billing": "billing-1",
        "/brokers": "controller",
        "/brokers/1": "log.dirs",
        "/quorum": "leader",
        "/transactions?hanging=1": "No transaction is hanging",
    }
    with kafka.console.client() as client:
        wait_until(
            lambda: client.get("/api/v1/groups/billing").json().get("members"),
            "billing has members",
        )
        for path, text in pages.items():
            answer = client.get(path)
            assert answer.status_code == 200, (path, answer.text)
            # What the group has read is told by its next commit, and seen by the next sample.
            wait_until(lambda path=path, text=text: text in client.get(path).text, path)


def test_changes_work_on_apache_kafka(kafka: World) -> None:
    with kafka.console.client() as client:
        client.headers["X-CSRF-Token"] = kafka.console.token()
        made = {"name": "made", "partitions": 2, "replication_factor": 1}
        assert client.post("/api/v1/topics", json=made).status_code == 200
        sent = client.post("/api/v1/topics/made/messages", json={"key": "k", "value": '{"n": 1}'})
        assert sent.status_code == 200, sent.text
        found = client.get("/api/v1/topics/made/messages", params={"filter": "value.n == 1"}).json()
        assert [json.loads(one["value"]) for one in found["messages"]] == [{"n": 1}]
        bad = client.patch(
            "/api/v1/topics/made/configs", json={"name": "retention.ms", "value": "x"}
        )
        assert bad.status_code >= 400
        page = client.post(
            "/topics/made/configs", data={"name": "retention.ms", "value": "1234567"}
        )
        assert "<td" in page.text, page.text  # the row, as it is now
        assert "1234567" in page.text.split("config-value", 1)[1].split("</td>")[0]
        shown = client.post(
            "/api/v1/groups/nightly-report/reset", json={"strategy": "latest", "dry_run": False}
        )
        assert shown.status_code == 200, shown.text
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": kafka.bootstrap, "group.id": "nightly-report", **QUIET}
        )
        asked = [confluent_kafka.TopicPartition("payments", p) for p in range(3)]
        after = [one.offset for one in consumer.committed(asked, 15)]
        consumer.close()
        assert after == [move["after"] for move in shown.json()["moves"]]
        with client.stream("GET", "/topics/orders/tail") as tail:
            lines = tail.iter_lines()
            assert any(line.startswith("event: records") for line in lines)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    try:
        kafka_jars()
    except Missing as error:
        pytest.skip(str(error))
    with (
        kafka_pair(tmp_path_factory.mktemp("kafka-pair")) as (first, second),
        ConsoleProcess(first.bootstrap, "--interval", "0.5") as console,
    ):
        admin = AdminClient({"bootstrap.servers": first.bootstrap, **QUIET})
        topics = [NewTopic("spread", 4, 1), NewTopic("copied", 2, 2)]
        for future in admin.create_topics(topics).values():
            future.result(30)
        producer = confluent_kafka.Producer({"bootstrap.servers": first.bootstrap, **QUIET})
        for number in range(40):
            producer.produce("spread", str(number), partition=number % 4)
        assert producer.flush(30) == 0
        yield Pair(first, second, console)


def test_settings_of_each_broker_are_changed_on_that_broker(pair: Pair) -> None:
    with pair.console.client() as client:
        client.headers["X-CSRF-Token"] = pair.console.token()
        for broker, size in (("1", "2000001"), ("2", "2000002")):
            wait_until(lambda b=broker: client.get(f"/brokers/{b}").is_success, "the broker")
            change = {"name": "message.max.bytes", "value": size}
            answer = client.patch(f"/api/v1/brokers/{broker}/configs", json=change)
            assert answer.status_code == 200, answer.text
            refused = client.patch(
                f"/api/v1/brokers/{broker}/configs", json={**change, "value": "x"}
            )
            assert refused.status_code == 422, refused.text
        page = client.post("/brokers/2", data={"name": "message.max.bytes", "value": "3000000"})
        assert "message.max.bytes = 3000000." in page.text
        values = [
            {one["name"]: one["value"] for one in client.get(path).json()["configs"]}
            for path in ("/api/v1/brokers/1/configs", "/api/v1/brokers/2/configs")
        ]
        assert [one["message.max.bytes"] for one in values] == ["2000001", "3000000"]


def test_a_broker_that_leaves_takes_its_partitions_and_nothing_else(pair: Pair) -> None:
    with pair.console.client() as client:
        wait_until(lambda: len(client.get("/api/v1/brokers").json()["brokers"]) == 2, "both")
        led = {
            one["number"]: one["leader"]
            for one in client.get("/api/v1/topics/spread").json()["partitions"]
        }
        lost = {number for number, leader in led.items() if leader == 2}
        assert lost
        assert len(lost) < 4
        pair.second.kill()
        try:
            wait_until(
                lambda: "without a leader" in client.get("/").text, "the page says so", seconds=60
            )
            page = client.get("/api/v1/topics/spread/messages").json()
            read = {one["partition"] for one in page["messages"]}
            assert read == led.keys() - lost
            assert {one["partition"] for one in page["unread"]} == lost
            assert page["is_complete"] is False
            shown = client.get("/topics/spread").text
            assert "Not everything could be read" in shown
            assert client.get("/topics/spread/export").status_code == 502
            hanging = client.get("/transactions", params={"hanging": 1}).text
            assert "not everybody answered" in hanging
            assert len(client.get("/api/v1/topics/copied/messages").json()["unread"]) == 0
        finally:
            pair.second.start()
        wait_until(
            lambda: client.get("/api/v1/topics/spread/messages").json().get("is_complete"),
            "all of it is read again",
            seconds=60,
        )
