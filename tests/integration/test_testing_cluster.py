"""The fixture that other people's tests use."""

import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.testing import Cluster

pytest_plugins = ["pytester"]

SECONDS_MAX = 20.0


def produce(cluster: Cluster, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    errors: list[object] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(SECONDS_MAX) == 0
    assert errors == [None] * len(values)


def consume(cluster: Cluster, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "g",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = consumer.consume(count, timeout=SECONDS_MAX)
        return [message.value() for message in messages]
    finally:
        consumer.close()


def test_a_cluster_takes_records_and_leaves_nothing_behind() -> None:
    with Cluster() as cluster:
        directory = cluster.directory
        cluster.create_topic("t")
        produce(cluster, "t", b"a", b"b")
        assert consume(cluster, "t", 2) == [b"a", b"b"]
        assert directory.is_dir()
    assert not directory.exists()
    assert not cluster.is_running


def test_two_clusters_do_not_meet() -> None:
    with Cluster() as one, Cluster() as other:
        assert one.bootstrap_servers != other.bootstrap_servers
        one.create_topic("t")
        other.create_topic("t")
        produce(one, "t", b"one")
        produce(other, "t", b"other")
        assert consume(one, "t", 1) == [b"one"]
        assert consume(other, "t", 1) == [b"other"]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_records_survive_the_end_of_the_broker_and_the_address_stays(end: str) -> None:
    with Cluster() as cluster:
        address = cluster.bootstrap_servers
        cluster.create_topic("t", partitions=1, config={"retention.ms": "60000000"})
        for round_number in range(3):
            produce(cluster, "t", b"%d" % round_number)
            getattr(cluster, end)()
            assert not cluster.is_running
            cluster.start()
            assert cluster.bootstrap_servers == address
        assert consume(cluster, "t", 3) == [b"0", b"1", b"2"]


def test_only_a_clean_stop_leaves_the_marker_of_one() -> None:
    with Cluster() as cluster:
        marker = cluster.directory / ".kafka_cleanshutdown"
        cluster.create_topic("t")
        produce(cluster, "t", b"x")
        cluster.stop()
        assert marker.exists()
        cluster.start()
        cluster.kill()
        assert not marker.exists()


def test_a_client_lives_through_a_restart() -> None:
    with Cluster() as cluster:
        cluster.create_topic("t")
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        producer.produce("t", b"before")
        assert producer.flush(SECONDS_MAX) == 0
        cluster.restart()
        producer.produce("t", b"after")
        assert producer.flush(SECONDS_MAX) == 0
        assert consume(cluster, "t", 2) == [b"before", b"after"]


def test_a_given_directory_is_kept(tmp_path: Path) -> None:
    with Cluster(directory=tmp_path) as cluster:
        cluster.create_topic("t")
        produce(cluster, "t", b"kept")
    with Cluster(directory=tmp_path) as cluster:
        assert consume(cluster, "t", 1) == [b"kept"]


def test_broker_settings_reach_the_broker() -> None:
    from confluent_kafka.admin import AdminClient

    with Cluster(config={"auto.create.topics.enable": "true", "num.partitions": "4"}) as cluster:
        produce(cluster, "made-on-the-way", b"x")
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        assert len(admin.list_topics(timeout=SECONDS_MAX).topics["made-on-the-way"].partitions) == 4


def test_a_wrong_setting_is_raised_where_the_cluster_starts() -> None:
    with pytest.raises(Exception, match=r"no\.such\.key"), Cluster(config={"no.such.key": "1"}):
        pass


def test_a_port_that_is_taken_is_raised_and_leaves_no_directory(tmp_path: Path) -> None:
    with Cluster() as cluster:
        taken = f"PLAINTEXT://{cluster.bootstrap_servers},CONTROLLER://127.0.0.1:0"
        second = Cluster(config={"listeners": taken})
        with pytest.raises(OSError, match="in use"):
            second.start()
        assert not second.is_running


def test_more_brokers_than_one_are_refused() -> None:
    with pytest.raises(ValueError, match="one broker"):
        Cluster(brokers=3)


def test_an_address_is_asked_for_only_of_a_started_cluster() -> None:
    with pytest.raises(RuntimeError, match="not started"):
        _ = Cluster().bootstrap_servers


def test_a_forgotten_cluster_does_not_keep_the_interpreter_alive() -> None:
    code = "from ottla.testing import Cluster; c = Cluster().start(); print(c.directory)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_plugin_costs_no_import_of_ottla_in_runs_that_do_not_use_it() -> None:
    code = (
        "import sys, ottla.testing.pytest_plugin; "
        "print(sorted(m for m in sys.modules if m.startswith(('ottla.', 'confluent', 'asyncio')) "
        "and not m.startswith('ottla.testing')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.strip()
    assert "ottla." not in loaded
    assert "confluent" not in loaded


def test_a_project_gets_its_fixtures_by_installing_ottla(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_one(ottla_cluster, ottla_bootstrap):
            ottla_cluster.create_topic("t")
            assert ottla_bootstrap == ottla_cluster.bootstrap_servers

        def test_two(ottla_cluster):
            assert ottla_cluster.is_running
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=2)


def test_topics_of_one_session_do_not_collide(ottla_cluster: Cluster) -> None:
    name = f"t-{uuid4().hex}"
    ottla_cluster.create_topic(name)
    produce(ottla_cluster, name, b"x")
    assert consume(ottla_cluster, name, 1) == [b"x"]
