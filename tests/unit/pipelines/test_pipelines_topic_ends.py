"""The lag of a query: what came while its micro-batch ran."""

import json
from typing import Any

from confluent_kafka import Producer

from ottla.spark.pipelines import Pipeline
from ottla.spark.pipelines.status import lag_of
from ottla.spark.pipelines.topic_ends import TopicEnds
from ottla.testing import Cluster

PLANNED = json.dumps({"orders": {"0": 4, "1": 0}, "$start": {"orders": {"0": 0}}})


def ends_for(bootstrap: str) -> TopicEnds:
    made = Pipeline("p", bootstrap=bootstrap)
    made.source("o", topic="orders", format="text", options={"kafka.request.timeout.ms": "500"})
    made.sink("out", input="o", topic="copies")
    return TopicEnds(made.definition)


def report() -> dict[str, Any]:
    return {"sources": [{"endOffset": PLANNED, "latestOffset": PLANNED}]}


def test_what_came_meanwhile_is_behind() -> None:
    with Cluster() as cluster:
        cluster.create_topic("orders", partitions=2)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for number in range(10):
            producer.produce("orders", str(number), partition=0)
        assert producer.flush(30) == 0
        progress = report()
        assert lag_of(progress["sources"]) == {"orders": 0}  # as Spark sees it
        ends = ends_for(cluster.bootstrap_servers)
        ends.put_into("out", progress)
        assert lag_of(progress["sources"]) == {"orders": 6}
        unknown = report()
        ends.put_into("another", unknown)
        assert unknown == report()


def test_a_report_stays_as_it_was_if_nobody_answers() -> None:
    with Cluster() as cluster:
        gone = cluster.bootstrap_servers
    progress = report()
    ends_for(gone).put_into("out", progress)
    assert progress == report()


def test_sources_that_are_no_topics_are_left_alone() -> None:
    progress = {"sources": [{"endOffset": {"logOffset": 3}}, {"endOffset": None}]}
    ends_for("localhost:1").put_into("out", progress)
    assert progress["sources"][0] == {"endOffset": {"logOffset": 3}}
