"""The same console over Apache Kafka 4.3.1, where its jars are at hand."""

import json
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from bench.brokers import Kind, Missing, kafka_jars
from console_world import QUIET, World, wait_until


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
        "/": "All is well",
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
