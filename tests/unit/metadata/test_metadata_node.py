"""The metadata node on a real disk and on one whose power fails."""

import asyncio
import shutil
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest
from metadata_worlds import check_invariants

from ottla.metadata.brokers import (
    BrokerHeartbeat,
    BrokerRegistration,
    decide_heartbeat,
    decide_register_broker,
)
from ottla.metadata.decision import Decision
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.features import RELEASE_FEATURES, supported_feature_records
from ottla.metadata.formatting import FormatError, format_storage
from ottla.metadata.image import ConfigResource, MetadataImage
from ottla.metadata.node import SNAPSHOT_RETRY_S, LogPolicy, MetadataNode
from ottla.metadata.records import (
    BeginTransactionRecord,
    ConfigRecord,
    RecordEndpoint,
    TopicRecord,
    encode_record,
)
from ottla.metadata.topics import (
    CreatedTopic,
    NewTopic,
    TopicDefaults,
    decide_create_topics,
    decide_delete_topics,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.ids import Epoch, Offset
from ottla.raft.batches import data_batch, parse_batches
from ottla.raft.control_records import VoterEndpoint
from ottla.raft.driver import QuorumError, own_voter
from ottla.raft.log import DIRECTORY_NAME, MetadataLog
from ottla.raft.snapshots import SnapshotId
from ottla.runtime.interfaces import Runtime
from ottla.runtime.real import real_runtime
from ottla.runtime.simulated import Simulation
from ottla.runtime.simulated.incarnation import PowerCut
from ottla.storage.files.meta_properties import MetaProperties, encode_meta_properties

GOLDEN = Path(__file__).parent / "golden"
CONTROLLER = VoterEndpoint("CONTROLLER", "127.0.0.1", 21001)


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    real = real_runtime()
    yield real
    real.offload.close()


def format_directory(runtime: Runtime, directory: str) -> None:
    format_storage(
        runtime,
        log_dirs=[directory],
        node_id=1,
        cluster_id="c",
        standalone_endpoints=[CONTROLLER],
        ignore_formatted=True,
    )


def node_on(runtime: Runtime, directory: str, **options: object) -> MetadataNode:
    return MetadataNode(runtime, node_id=1, directory=directory, **options)  # type: ignore[arg-type]  # passed on by name


async def join(node: MetadataNode) -> None:
    known = node.image.brokers.get(1)
    registration = BrokerRegistration(
        1,
        node.incarnation_id,
        (),
        supported_feature_records(),
        log_dirs=(node.directory_id,),
        previous_broker_epoch=-1 if known is None else known.epoch,
    )
    epoch = await node.submit(lambda image: decide_register_broker(image, registration))
    beat = BrokerHeartbeat(1, epoch, node.image.offset)
    await node.submit(lambda image: decide_heartbeat(image, beat))


def creating(*names: str) -> Callable[[MetadataImage], Decision[list[CreatedTopic]]]:
    random = Random("".join(names))

    def no_check(resource: ConfigResource, configs: object) -> None: ...

    return lambda image: decide_create_topics(
        image,
        [NewTopic(name, 2, 1) for name in names],
        defaults=TopicDefaults(),
        chance=random,
        new_id=lambda: UUID(int=random.getrandbits(128)),
        check_config=no_check,
    )


def content(image: MetadataImage) -> MetadataImage:
    return replace(image, offset=Offset(0), epoch=Epoch(0), timestamp_ms=0)


def run(scenario: Callable[[], Coroutine[object, object, None]]) -> None:
    asyncio.run(scenario())


def test_a_new_cluster_starts_with_the_features_of_the_release(
    runtime: Runtime, tmp_path: Path
) -> None:
    async def scenario() -> None:
        format_directory(runtime, str(tmp_path))
        endpoint = RecordEndpoint("CONTROLLER", "127.0.0.1", 21001, 0)
        node = node_on(runtime, str(tmp_path))
        await node.start(controller_endpoints=[endpoint])
        assert node.image.features == RELEASE_FEATURES
        assert node.image.config(4, "") == {"min.insync.replicas": "1"}
        assert node.image.controllers[1].endpoints == (endpoint,)
        assert (node.controller_epoch, node.kraft_version) == (1, 1)
        assert node.high_watermark == node.log_end_offset == node.image.next_offset
        await node.stop()

    run(scenario)


def test_the_first_leader_writes_the_start_of_its_epoch_as_kafka_does(
    runtime: Runtime, tmp_path: Path
) -> None:
    async def scenario() -> None:
        format_directory(runtime, str(tmp_path))
        node = node_on(runtime, str(tmp_path))
        await node.start()
        await node.stop()
        ours = (tmp_path / DIRECTORY_NAME / f"{0:020d}.log").read_bytes()
        kafkas = (GOLDEN / "kafka-dynamic.log").read_bytes()
        for own, theirs in zip(
            list(parse_batches(ours))[:2], list(parse_batches(kafkas))[:2], strict=True
        ):
            assert [type(record) for record in own.control] == [
                type(record) for record in theirs.control
            ]
            assert own.values == theirs.values
            assert (own.base_offset, own.epoch) == (theirs.base_offset, theirs.epoch)

    run(scenario)


def test_a_restart_replays_everything_in_a_later_epoch(runtime: Runtime, tmp_path: Path) -> None:
    async def scenario() -> None:
        format_directory(runtime, str(tmp_path))
        node = node_on(runtime, str(tmp_path))
        await node.start()
        await join(node)
        await node.submit(creating("a", "b"))
        await node.submit(lambda image: decide_delete_topics(image, ["a"]))
        await node.stop()
        again = node_on(runtime, str(tmp_path), cluster_id="c")
        await again.start()
        assert content(again.image) == content(node.image)
        assert again.controller_epoch == 2
        assert again.image.offset == node.image.offset + 1  # the start of the epoch
        await again.stop()

    run(scenario)


def test_many_changes_share_one_sync_and_are_published_in_order(
    runtime: Runtime, tmp_path: Path
) -> None:
    syncs: list[object] = []

    class CountingOffload:
        async def run(self, function: Callable[..., object], *args: object) -> object:
            syncs.append(function)
            return await runtime.offload.run(function, *args)

        def close(self) -> None: ...

    async def scenario() -> None:
        format_directory(runtime, str(tmp_path))
        node = node_on(replace(runtime, offload=CountingOffload()), str(tmp_path))  # type: ignore[arg-type]  # generic in the result only
        await node.start()
        await join(node)
        published: list[int] = []
        node.subscribe(lambda image, delta: published.append(image.offset))
        before = len(syncs)
        results = await asyncio.gather(*(node.submit(creating(f"t{n}")) for n in range(50)))
        assert len(syncs) - before <= 2
        assert published == sorted(published)
        assert len(published) == 50
        assert all(r[0].error_code is ErrorCode.NONE for r in results)
        await node.stop()

    run(scenario)


def test_a_decision_sees_what_is_not_committed_and_its_answer_waits_for_it(
    runtime: Runtime, tmp_path: Path
) -> None:
    async def scenario() -> None:
        format_directory(runtime, str(tmp_path))
        node = node_on(runtime, str(tmp_path))
        await node.start()
        await join(node)
        first = asyncio.ensure_future(node.submit(creating("a")))
        second = asyncio.ensure_future(node.submit(creating("a")))
        refused = asyncio.ensure_future(node.submit(refusing))
        await asyncio.wait({second, refused}, return_when=asyncio.FIRST_COMPLETED)
        assert "a" in node.image.topics  # committed before anyone was told that it exists
        await asyncio.wait({first, second, refused})
        assert second.result()[0].error_code is ErrorCode.TOPIC_ALREADY_EXISTS
        assert isinstance(refused.exception(), KafkaError)
        await node.stop()

    run(scenario)


def refusing(image: MetadataImage) -> Decision[None]:
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"there are {len(image.topics)} topics")


def test_subscribers_get_the_image_with_its_delta(runtime: Runtime, tmp_path: Path) -> None:
    async def scenario() -> None:
        format_directory(runtime, str(tmp_path))
        node = node_on(runtime, str(tmp_path))
        seen: list[tuple[MetadataImage, MetadataDelta]] = []
        node.subscribe(lambda image, delta: seen.append((image, delta)))
        await node.start()
        await join(node)
        await node.submit(creating("a"))
        image, delta = seen[-1]
        assert image is node.image
        assert [topic.name for topic in delta.topics.values()] == ["a"]
        count = len(seen)
        await node.submit(lambda image: Decision((), None))
        assert len(seen) == count
        await node.stop()

    run(scenario)


def test_a_snapshot_replaces_the_log_before_it(runtime: Runtime, tmp_path: Path) -> None:
    async def scenario() -> None:
        format_directory(runtime, str(tmp_path))
        policy = LogPolicy(retention_bytes=0)
        node = node_on(runtime, str(tmp_path), policy=policy)
        await node.start()
        await join(node)
        await node.submit(creating("a", "b"))
        first = await node.snapshot()
        assert await node.snapshot() is None  # nothing happened since
        await node.submit(creating("c"))
        second = await node.snapshot()
        assert first is not None
        assert second is not None
        await node.submit(creating("d"))
        await node.stop()
        names = sorted(path.name for path in (tmp_path / DIRECTORY_NAME).iterdir())
        assert [name for name in names if name.endswith(".checkpoint")] == [second.file_name]
        assert [n for n in names if n.endswith(".log")] == [f"{second.end_offset:020d}.log"]
        again = node_on(runtime, str(tmp_path))
        await again.start()
        assert content(again.image) == content(node.image)
        assert again.quorum == node.quorum
        await again.stop()

    run(scenario)


def test_a_snapshot_is_taken_when_enough_was_written(runtime: Runtime, tmp_path: Path) -> None:
    async def scenario() -> None:
        format_directory(runtime, str(tmp_path))
        policy = LogPolicy(record_bytes_between=2000)
        node = node_on(runtime, str(tmp_path), policy=policy)
        await node.start()
        await join(node)
        for number in range(40):
            await node.submit(creating(f"t{number}"))
        await node.stop()
        snapshots = list((tmp_path / DIRECTORY_NAME).glob("*.checkpoint"))
        assert len(snapshots) >= 3  # the one of formatting included
        again = node_on(runtime, str(tmp_path))
        await again.start()
        assert content(again.image) == content(node.image)
        await again.stop()

    run(scenario)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("defect")])
def test_a_snapshot_that_failed_is_tried_again(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[SnapshotId] = []
    write = MetadataLog.write_snapshot

    def fail_twice(log: MetadataLog, snapshot: SnapshotId, batches: Any) -> int:
        tries.append(snapshot)
        if len(tries) <= 2:
            raise error
        return write(log, snapshot, batches)

    monkeypatch.setattr(MetadataLog, "write_snapshot", fail_twice)

    async def scenario() -> None:
        node = node_on(runtime, "/d", policy=LogPolicy(record_bytes_between=2000))
        await node.start()
        await join(node)
        number = 0
        while not tries:
            await node.submit(creating(f"t{number}"))
            number += 1
        for more in range(5):  # none of these starts another, as the disk is given some time
            await node.submit(creating(f"more{more}"))
        assert len(tries) == 1
        while len(tries) < 3:
            await asyncio.sleep(SNAPSHOT_RETRY_S)
        await node.stop()
        assert node.image.next_offset == tries[2].end_offset
        again = node_on(runtime, "/d")
        await again.start()
        assert content(again.image) == content(node.image)
        await again.stop()

    with Simulation(3) as simulation:
        runtime = simulation.runtime("node")
        format_directory(runtime, "/d")
        simulation.run(scenario(), seconds_max=600)


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_a_directory_of_apache_kafka_is_opened_and_continued(
    runtime: Runtime, tmp_path: Path, kind: str
) -> None:
    log_directory = tmp_path / DIRECTORY_NAME
    log_directory.mkdir()
    shutil.copy(GOLDEN / f"kafka-{kind}.log", log_directory / f"{0:020d}.log")
    directory_id = UUID("c502be6f-ab03-0bb5-ae90-81fb0cafb05c")
    if kind == "dynamic":
        directory_id = UUID("109f0344-a8d7-4cfe-a129-ff03db671ab0")
        name = "00000000000000000000-0000000000.checkpoint"
        shutil.copy(GOLDEN / "kafka-dynamic-0-0.checkpoint", log_directory / name)
    properties = MetaProperties(1, "MkU3OEVBNTcwNTJENDM2Qk", 1, directory_id)
    (tmp_path / "meta.properties").write_bytes(encode_meta_properties(properties))

    async def scenario() -> None:
        static = (1,) if kind == "static" else ()
        node = node_on(runtime, str(tmp_path), static_voter_ids=static)
        await node.start()
        check_invariants(node.image)
        assert node.image.features == RELEASE_FEATURES
        assert node.kraft_version == (0 if kind == "static" else 1)
        assert node.controller_epoch == 2
        topic = "st" if kind == "static" else "orders"
        assert set(node.image.topics) == {topic}
        partition = node.image.partition(topic, 0)
        assert partition is not None
        assert (partition.leader, partition.eligible_leader_replicas) == (-1, (1,))
        if kind == "static":
            assert ("bob", 1) in node.image.scram
            assert list(node.image.client_quotas.values()) == [{"producer_byte_rate": 1000.0}]
        else:
            assert node.image.topic_config("orders") == {"retention.ms": "60000"}
            assert node.image.config(4, "")["log.retention.ms"] == "5000"
            assert node.image.next_producer_id == 1000
        await join(node)
        partition = node.image.partition(topic, 0)
        assert partition is not None
        assert (partition.leader, partition.isr, partition.leader_epoch) == (1, (1,), 2)
        await node.stop()

    run(scenario)


def test_an_open_transaction_is_aborted_by_the_next_leader(
    runtime: Runtime, tmp_path: Path
) -> None:
    async def scenario() -> None:
        format_directory(runtime, str(tmp_path))
        node = node_on(runtime, str(tmp_path))
        await node.start()
        await node.stop()
        segment = tmp_path / DIRECTORY_NAME / f"{0:020d}.log"
        records = [BeginTransactionRecord(), TopicRecord(name="half", topic_id=UUID(int=5))]
        batch = data_batch(
            [encode_record(record) for record in records],
            base_offset=node.log_end_offset,
            epoch=node.controller_epoch,
            timestamp_ms=1,
        )
        segment.write_bytes(segment.read_bytes() + batch)
        again = node_on(runtime, str(tmp_path))
        await again.start()
        assert not again.image.topics
        await join(again)
        await again.submit(creating("whole"))
        await again.stop()
        last = node_on(runtime, str(tmp_path))
        await last.start()
        assert set(last.image.topics) == {"whole"}
        await last.stop()

    run(scenario)


def test_wrong_directories_are_refused(runtime: Runtime, tmp_path: Path) -> None:
    async def scenario() -> None:
        with pytest.raises(FormatError, match="not formatted"):
            await node_on(runtime, str(tmp_path)).start()
        format_directory(runtime, str(tmp_path))
        with pytest.raises(FormatError, match="cluster c"):
            await node_on(runtime, str(tmp_path), cluster_id="other").start()
        with pytest.raises(FormatError, match="node 1"):
            await MetadataNode(runtime, node_id=2, directory=str(tmp_path)).start()

    run(scenario)


def test_a_directory_of_its_own_is_locked_until_the_node_stops(
    runtime: Runtime, tmp_path: Path
) -> None:
    async def scenario() -> None:
        format_directory(runtime, str(tmp_path))
        node = node_on(runtime, str(tmp_path), lock_directory=True)
        await node.start()
        with pytest.raises(QuorumError, match="in use"):
            await node_on(runtime, str(tmp_path), lock_directory=True).start()
        await node.stop()
        again = node_on(runtime, str(tmp_path), lock_directory=True)
        await again.start()
        await again.stop()

    run(scenario)


def test_a_quorum_of_more_nodes_is_refused(runtime: Runtime, tmp_path: Path) -> None:
    async def scenario() -> None:
        own = own_voter(1, runtime.random.uuid4(), [CONTROLLER])
        other = own_voter(2, runtime.random.uuid4(), [CONTROLLER])
        format_storage(
            runtime,
            log_dirs=[str(tmp_path)],
            node_id=1,
            cluster_id="c",
            initial_voters=[own, other],
        )
        with pytest.raises(QuorumError, match="voters are 1, 2"):
            await node_on(runtime, str(tmp_path)).start()

    run(scenario)


def test_a_failed_sync_refuses_all_changes_from_then_on() -> None:
    failures: list[BaseException] = []
    with Simulation(seed=3) as simulation:

        async def scenario() -> None:
            runtime = simulation.runtime("a")
            format_directory(runtime, "/d")
            node = node_on(runtime, "/d", on_failure=failures.append)
            await node.start()
            await join(node)
            image = node.image
            simulation.disk("a").fail_sync("/d")
            first = asyncio.ensure_future(node.submit(creating("a")))
            second = asyncio.ensure_future(node.submit(creating("b")))
            for change in (first, second, asyncio.ensure_future(node.submit(creating("c")))):
                with pytest.raises(KafkaError) as refused:
                    await change
                assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
            with pytest.raises(KafkaError):
                await node.submit(creating("d"))
            assert node.image is image

        simulation.run(scenario())
    assert len(failures) == 1


async def live(runtime: Runtime, acknowledged: list[str], deleted: list[str]) -> None:
    """A node's life with everything that touches the disk; notes what it was promised."""
    format_directory(runtime, "/d")
    node = node_on(runtime, "/d", policy=LogPolicy(retention_bytes=0))
    await node.start()
    await join(node)
    await node.submit(creating("a", "b"))
    acknowledged += ["a", "b"]
    await node.snapshot()
    await node.submit(creating("c"))
    acknowledged.append("c")
    await node.submit(lambda image: decide_delete_topics(image, ["a"]))
    deleted.append("a")
    await node.snapshot()
    await node.submit(creating("d"))
    acknowledged.append("d")
    await node.submit(
        lambda _: Decision(
            [ConfigRecord(resource_type=2, resource_name="d", name="k", value="v")], None
        )
    )
    await node.stop()


def operations_of_a_life() -> int:
    with Simulation(seed=0) as simulation:
        count = 0

        def note(*_: object) -> None:
            nonlocal count
            count += 1

        simulation.disk("a").on_operation(note)
        simulation.run(_spawned(simulation, live(simulation.runtime("a"), [], [])))
    return count


async def _spawned(simulation: Simulation, life: Coroutine[object, object, None]) -> None:
    await simulation.spawn("a", life)


@pytest.mark.parametrize("part", range(4))
def test_what_was_acknowledged_survives_a_power_cut_at_any_moment(part: int) -> None:
    operations = operations_of_a_life()
    assert operations > 40
    for after in range(part, operations, 4):
        with Simulation(seed=after) as simulation:
            acknowledged: list[str] = []
            deleted: list[str] = []
            simulation.disk("a").cut_power_after(after)

            async def first_life(simulation: Simulation = simulation) -> None:
                life = live(simulation.runtime("a"), acknowledged, deleted)  # noqa: B023  run at once
                with pytest.raises(PowerCut):
                    await simulation.spawn("a", life)

            async def second_life(simulation: Simulation = simulation) -> None:
                runtime = simulation.runtime("a")
                format_directory(runtime, "/d")
                node = node_on(runtime, "/d")
                await node.start()
                check_invariants(node.image)
                topics = set(node.image.topics)
                assert set(acknowledged) - {"a"} <= topics  # noqa: B023  run at once
                assert "a" not in topics or not deleted  # noqa: B023  run at once
                if acknowledged and not deleted and "c" not in acknowledged:  # noqa: B023  run at once
                    assert "a" in topics
                await join(node)
                await node.submit(creating("later"))
                await node.stop()

            simulation.run(first_life())
            simulation.power_loss("a")
            simulation.run(_spawned(simulation, second_life()))


def test_snapshots_are_written_as_batches_that_kafka_reads(
    runtime: Runtime, tmp_path: Path
) -> None:
    async def scenario() -> None:
        format_directory(runtime, str(tmp_path))
        node = node_on(runtime, str(tmp_path))
        await node.start()
        await join(node)
        snapshot = await node.snapshot()
        assert snapshot is not None
        path = tmp_path / DIRECTORY_NAME / snapshot.file_name
        batches = list(parse_batches(path.read_bytes()))
        assert [batch.base_offset for batch in batches] == [0, 3, batches[-1].base_offset]
        assert {batch.epoch for batch in batches} == {snapshot.epoch}
        assert snapshot.end_offset == node.image.next_offset
        await node.stop()

    run(scenario)
