"""`/metrics` of a real broker: consumer group lag under kafka_exporter's names."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from ottla.config.broker import BrokerConfig
from ottla.runtime.real import real_runtime
from ottla.server import exposition
from ottla.server.broker import Broker
from ottla.server.exposition import Page, label, render
from ottla.server.single_node import format_if_needed, single_node_properties

RECORDS = 10
ODD_GROUP = 'back\\slash "quoted" \nnew line'


def samples(page: bytes) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    """Every sample by name and labels, as Prometheus' own parser reads the page."""
    found: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            labels = frozenset(sample.labels.items())
            assert labels not in found.setdefault(sample.name, {}), sample
            found[sample.name][labels] = sample.value
    return found


def of(group: str, topic: str | None = None, partition: int | None = None) -> Any:
    labels = {"consumergroup": group, "topic": topic, "partition": partition}
    return frozenset((name, str(value)) for name, value in labels.items() if value is not None)


def work(bootstrap: str) -> None:
    """Ten records in each of three partitions, and two groups at different places."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(3 * RECORDS):
        producer.produce("orders", b"v", partition=number % 3)
    assert producer.flush(10) == 0
    for group, offsets in (("billing", (4, 10)), (ODD_GROUP, (0,))):
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
        places = [TopicPartition("orders", p, offset) for p, offset in enumerate(offsets)]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes, bytes]:
    """The page under load, the same with few group partitions allowed, and after a restart."""
    directory = tmp_path_factory.mktemp("metrics")

    async def serve(steps: int) -> list[bytes]:
        runtime = real_runtime()
        config = BrokerConfig.from_properties(
            single_node_properties(str(directory), 0, {"num.partitions": "3"})
        )
        format_if_needed(runtime, config)
        broker = Broker(runtime, config)
        await broker.start()
        try:
            if steps == 1:
                while not list(broker.services.groups.shards):
                    await asyncio.sleep(0.01)  # the groups are being loaded
                return [render(broker.services)]
            host, port = broker.listeners["PLAINTEXT"]
            await asyncio.to_thread(work, f"{host}:{port}")
            whole = render(broker.services)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(exposition, "GROUP_PARTITIONS_MAX", 1)
                return [whole, render(broker.services)]
        finally:
            await broker.stop()
            runtime.offload.close()

    whole, short = asyncio.run(serve(2))
    (restarted,) = asyncio.run(serve(1))
    return whole, short, restarted


def test_lag_is_told_for_each_partition_and_summed_for_each_topic(
    pages: tuple[bytes, bytes, bytes],
) -> None:
    found = samples(pages[0])
    assert found["kafka_consumergroup_current_offset"][of("billing", "orders", 0)] == 4
    assert found["kafka_consumergroup_lag"][of("billing", "orders", 0)] == 6
    assert found["kafka_consumergroup_lag"][of("billing", "orders", 1)] == 0
    assert of("billing", "orders", 2) not in found["kafka_consumergroup_lag"]
    assert found["kafka_consumergroup_lag_sum"][of("billing", "orders")] == 6
    assert found["kafka_consumergroup_current_offset_sum"][of("billing", "orders")] == 14
    assert found["kafka_consumergroup_members"][of("billing")] == 0


def test_hostile_group_names_stay_one_label(pages: tuple[bytes, bytes, bytes]) -> None:
    assert samples(pages[0])["kafka_consumergroup_lag"][of(ODD_GROUP, "orders", 0)] == 10


def test_topics_and_brokers_keep_the_names_that_dashboards_read(
    pages: tuple[bytes, bytes, bytes],
) -> None:
    found = samples(pages[0])
    place = frozenset({("topic", "orders"), ("partition", "1")})
    assert found["kafka_topic_partition_current_offset"][place] == RECORDS
    assert found["kafka_topic_partition_oldest_offset"][place] == 0
    assert found["kafka_topic_partition_leader"][place] == 1
    assert found["kafka_topic_partitions"][frozenset({("topic", "orders")})] == 3
    assert found["kafka_brokers"][frozenset()] == 1
    assert found["kafka_server_brokertopicmetrics_messagesin_total"][
        frozenset({("topic", "orders")})
    ] == (3 * RECORDS)
    assert found["kafka_log_log_size"][place] > 0
    assert found["process_cpu_seconds_total"][frozenset()] > 0


def test_beyond_the_bound_only_sums_are_told(pages: tuple[bytes, bytes, bytes]) -> None:
    found = samples(pages[1])
    assert len(found["kafka_consumergroup_lag"]) == 1
    assert found["ottla_consumergroup_partitions_omitted"][frozenset()] == 2
    whole = samples(pages[0])
    assert found["kafka_consumergroup_lag_sum"] == whole["kafka_consumergroup_lag_sum"]
    assert whole["ottla_consumergroup_partitions_omitted"][frozenset()] == 0


def test_lag_is_right_after_a_restart_before_anyone_reads(
    pages: tuple[bytes, bytes, bytes],
) -> None:
    before, after = samples(pages[0]), samples(pages[2])
    for name in ("kafka_consumergroup_lag", "kafka_consumergroup_lag_sum"):
        assert after[name] == before[name]
    offsets = "kafka_topic_partition_current_offset"
    orders = {labels for labels in before[offsets] if ("topic", "orders") in labels}
    assert {labels: after[offsets][labels] for labels in orders} == dict.fromkeys(orders, RECORDS)


def test_numbers_are_exact_and_labels_escaped(tmp_path: Path) -> None:
    page = Page()
    page.add("a", "gauge", "text", [("", 2**62), (label("x", 'a"\\\n'), True)])
    assert page.encode().decode().splitlines()[2:] == [
        f"a {2**62}.0",
        'a{x="a\\"\\\\\\n"} 1.0',
    ]
