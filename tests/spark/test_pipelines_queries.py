"""How queries start, end and fail together, and several exactly-once writes of one micro-batch."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from ottla.spark import register
from ottla.spark.pipelines import Pipeline
from ottla.spark.pipelines.start import PlanError, _newest_of_key, await_end, start_queries
from ottla.spark.sink_batches import exactly_once_batches
from support.spark_runs import broker, create_topic, patiently, values_of

pytestmark = pytest.mark.timeout(300)

_numbers = count()


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with broker(tmp_path_factory.mktemp("broker")) as process:
        yield process.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"queries-{next(_numbers)}"
    create_topic(bootstrap, name, 2)
    return name


@pytest.fixture
def files(tmp_path: Path) -> str:
    """A directory with one file of two rows."""
    path = tmp_path / "in"
    path.mkdir()
    (path / "0.json").write_text('{"value": "a"}\n{"value": "b"}\n')
    return str(path)


def in_a_thread(work: Callable[[], None]) -> None:
    """Run it in a thread of its own, which ends with what it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  # raised again below
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


def stream_of(spark: Any, files: str, checkpoint: Path) -> Any:
    frame = spark.readStream.schema("value STRING").json(files)
    return frame.writeStream.option("checkpointLocation", str(checkpoint)).trigger(
        availableNow=True
    )


def run_to_end(writer: Any) -> None:
    patiently(lambda: await_end([writer.start()]))


def test_a_query_is_started_in_any_thread_that_registered(
    spark: Any, bootstrap: str, topic: str, files: str, tmp_path: Path
) -> None:
    def run() -> None:
        register(spark)
        writer = stream_of(spark, files, tmp_path / "c").format("ottla")
        writer.options(**{"kafka.bootstrap.servers": bootstrap, "topic": topic})
        run_to_end(writer)

    in_a_thread(run)
    assert values_of(bootstrap, topic) == Counter([b"a", b"b"])


def test_a_pipeline_is_started_in_any_thread(
    spark: Any, bootstrap: str, topic: str, files: str, tmp_path: Path
) -> None:
    made = Pipeline("p", bootstrap=bootstrap, trigger="available_now")
    made.source("rows", path=files, file_format="json", schema="value STRING")
    made.sink("out", input="rows", topic=topic)
    checkpoint = str(tmp_path / "c")

    def run() -> None:
        patiently(lambda: await_end(start_queries(spark, made.definition, checkpoint)))

    in_a_thread(run)
    assert values_of(bootstrap, topic) == Counter([b"a", b"b"])


def test_the_failure_of_any_query_is_seen_and_ends_the_others(
    spark: Any, bootstrap: str, topic: str, files: str, tmp_path: Path
) -> None:
    made = Pipeline("p", bootstrap=bootstrap)
    made.source("rows", path=files, file_format="json", schema="value STRING")
    made.sql("wrong", "SELECT raise_error(value) AS value FROM rows")
    made.sink("lasting", input="rows", topic=topic)
    made.sink("failing", input="wrong", topic=topic)
    checkpoint = str(tmp_path / "c")
    with pytest.raises(Exception, match="USER_RAISED_EXCEPTION"):
        patiently(lambda: await_end(start_queries(spark, made.definition, checkpoint)))
    assert spark.streams.active == []


def test_what_only_spark_finds_is_told_of_its_part_before_any_query_starts(
    spark: Any, bootstrap: str, topic: str, files: str, tmp_path: Path
) -> None:
    made = Pipeline("p", bootstrap=bootstrap)
    made.source("rows", path=files, file_format="json", schema="value STRING")
    made.sql("wrong", "SELECT valeu AS value FROM rows")
    made.sink("good", input="rows", topic=topic)
    made.sink("bad", input="wrong", topic=topic)
    with pytest.raises(PlanError, match="valeu") as caught:
        start_queries(spark, made.definition, str(tmp_path / "c"))
    assert caught.value.problem.path == ("transforms", "wrong", "sql")
    assert spark.streams.active == []
    assert not (tmp_path / "c").exists()


def test_the_newest_record_of_a_key_is_newest_by_time_wherever_it_is(spark: Any) -> None:
    """A key moved from partition 1, where offsets were high, to partition 0."""
    columns = "key STRING, value STRING, partition INT, offset LONG, timestamp LONG"
    records = [
        ("moved", "old", 1, 900, 1),
        ("moved", "new", 0, 5, 2),
        ("same time", "old", 0, 6, 3),
        ("same time", "new", 0, 7, 3),
        ("gone", "was", 1, 901, 4),
        ("gone", None, 0, 8, 5),
    ]
    newest = _newest_of_key(spark.createDataFrame(records, columns)).collect()
    assert {row.key: row.value for row in newest} == {"moved": "new", "same time": "new"}


def test_every_write_of_a_foreach_batch_is_written_once(
    spark: Any, bootstrap: str, topic: str, files: str, tmp_path: Path
) -> None:
    create_topic(bootstrap, f"{topic}-other", 1)
    named = {"kafka.bootstrap.servers": bootstrap, "stageDirectory": str(tmp_path / "stage")}
    writes = [
        exactly_once_batches(**named, topic=topic),
        exactly_once_batches(**named, topic=f"{topic}-other"),
        exactly_once_batches(name="again", **named, topic=f"{topic}-other"),
    ]
    failing = [True]

    def write(frame: Any, batch_id: int) -> None:
        for number, one in enumerate(writes):
            if failing and number == 2:
                failing.clear()
                raise RuntimeError("between two writes")
            one(frame, batch_id)

    query = stream_of(spark, files, tmp_path / "c").foreachBatch(write)
    with pytest.raises(Exception, match="between two writes"):
        run_to_end(query)
    run_to_end(query)  # repeats the micro-batch
    assert values_of(bootstrap, topic) == Counter([b"a", b"b"])
    assert values_of(bootstrap, f"{topic}-other") == Counter([b"a", b"b"] * 2)


def test_a_write_that_would_be_taken_for_a_repetition_is_refused(
    spark: Any, bootstrap: str, topic: str, files: str, tmp_path: Path
) -> None:
    named = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
    one, two = exactly_once_batches(**named), exactly_once_batches(**named)

    def write(frame: Any, batch_id: int) -> None:
        one(frame, batch_id)
        two(frame, batch_id)

    query = stream_of(spark, files, tmp_path / "c").foreachBatch(write)
    with pytest.raises(Exception, match=r"twice under the name.*exactly_once_batches\(name="):
        run_to_end(query)
