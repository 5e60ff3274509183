"""What a pipeline says of itself, and how it goes on after failures."""

import json
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from ottla.spark.pipelines import Pipeline, PipelineError
from ottla.spark.pipelines.failures import failure_of
from ottla.spark.pipelines.load import load_pipeline
from ottla.spark.pipelines.restarts import HEALTHY_AFTER_MS, Restarts
from ottla.spark.pipelines.run_directory import AlreadyRunning, RunDirectory, all_pipelines
from ottla.spark.pipelines.session import JavaMissing, check_java, settings_of
from ottla.spark.pipelines.spark_options import source_options
from ottla.spark.pipelines.start import data_frames
from ottla.spark.pipelines.status import (
    empty_query,
    graph_of,
    lag_of,
    metrics_text,
    with_progress,
)

PROGRESS = {
    "id": "q",
    "runId": "r",
    "batchId": 7,
    "numInputRows": 50,
    "inputRowsPerSecond": 10.04,
    "processedRowsPerSecond": "NaN",
    "batchDuration": 120,
    "eventTime": {"watermark": "2026-01-01T00:00:00.000Z"},
    "stateOperators": [{"numRowsTotal": 3}, {"numRowsTotal": 4}],
    "sources": [
        {
            "endOffset": {"t": {"0": 5, "1": 8}, "$start": {"t": {"0": 0}}},
            "latestOffset": '{"t": {"0": 9, "1": 8, "2": 2}}',
        },
        {"endOffset": None, "latestOffset": "not json"},
    ],
}


def pipeline() -> Pipeline:
    made = Pipeline("p", bootstrap="b:1")
    made.source("lines", topic="lines", format="text")
    made.sql("words", "SELECT explode(split(value, ' ')) AS word FROM lines")

    @made.transform(inputs=["words"])
    def counts(words: object) -> object:
        return words

    made.sink("counts", topic="counts", key="word", create=3)
    made.sink("archive", input="lines", path="/archive")
    return made


def test_python_and_toml_make_the_same_kind_of_definition() -> None:
    found = pipeline().definition
    assert [one.name for one in found.ordered_transforms()] == ["words", "counts"]
    assert found.sinks[0].create is not None
    assert found.sinks[0].create.partitions == 3


def test_a_pipeline_in_python_that_makes_no_sense_is_told_so() -> None:
    with pytest.raises(PipelineError, match=r"sinks\.out\.from: there is no 'x'"):
        _ = pipeline().sink("out", input="x", topic="o").definition


def test_a_python_file_is_loaded_by_the_pipeline_in_it(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    text = "from ottla.spark.pipelines import Pipeline\n"
    one = "{0} = Pipeline('{0}', bootstrap='b:1').source('s', topic='t')"
    sink = ".sink('o', input='s', topic='u')\n"
    path.write_text(text + one.format("a") + sink)
    assert load_pipeline(str(path), {}).name == "a"
    path.write_text(text + one.format("a") + sink + one.format("b") + sink)
    assert load_pipeline(f"{path}:b", {}).name == "b"
    with pytest.raises(PipelineError, match="2 pipelines"):
        load_pipeline(str(path), {})
    with pytest.raises(PipelineError, match="no such file"):
        load_pipeline(str(tmp_path / "none.py"), {})


def test_the_graph_leads_from_topics_to_topics() -> None:
    graph = graph_of(pipeline().definition)
    assert ["topic:lines", "source:lines"] in graph["edges"]
    assert ["source:lines", "transform:words"] in graph["edges"]
    assert ["transform:counts", "sink:counts"] in graph["edges"]
    assert ["sink:counts", "topic:counts"] in graph["edges"]
    assert ["sink:archive", "files:/archive"] in graph["edges"]
    ids = {node["id"] for node in graph["nodes"]}
    assert {end for edge in graph["edges"] for end in edge} == ids


def test_lag_is_what_is_there_and_not_read() -> None:
    assert lag_of(PROGRESS["sources"]) == {"t": 4 + 0 + 2}  # type: ignore[arg-type]


def test_progress_is_added_up_and_told_to_prometheus() -> None:
    definition = pipeline().definition
    query = empty_query(definition, definition.sinks[0])
    query = with_progress(with_progress(query, PROGRESS, 1000), PROGRESS, 2000)
    assert (query["rows_total"], query["state_rows"], query["batch_id"]) == (100, 7, 7)
    assert (query["input_rows_per_second"], query["processed_rows_per_second"]) == (10.0, 0.0)
    status = {"name": 'p"', "state": "running", "restarts": 2, "queries": [query]}
    text = metrics_text(status)
    assert 'ottla_pipeline_up{pipeline="p\\""} 1' in text
    assert 'ottla_pipeline_input_rows_total{pipeline="p\\"",query="counts"} 100' in text
    assert 'ottla_pipeline_lag_records{pipeline="p\\"",query="counts",topic="t"} 6' in text
    assert 'ottla_pipeline_batch_duration_seconds{pipeline="p\\"",query="counts"} 0.12' in text


def test_a_query_names_the_groups_that_show_its_progress() -> None:
    made = Pipeline("p", bootstrap="b:1")
    made.source("a", topic="t")
    made.source("b", topic="u", options={"kafka.group.id": "mine"})
    made.source("files", path="/in", schema="value STRING")
    made.sql("both", "SELECT a.value FROM a JOIN b ON a.key = b.key JOIN files")
    made.sink("out", input="both", topic="o")
    made.sink("copy", input="a", topic="c")
    definition = made.definition
    named = [empty_query(definition, sink)["groups"] for sink in definition.sinks]
    assert named == [["p-out-a", "mine"], ["p-copy-a"]]


def test_pauses_double_up_to_a_limit_and_begin_anew_after_a_good_run() -> None:
    restarts = Restarts()
    pauses = [restarts.pause_ms_after(10) for _ in range(9)]
    assert pauses == [1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000, 60000]
    assert restarts.pause_ms_after(HEALTHY_AFTER_MS) == 1000
    assert restarts.pause_ms_after(10) == 2000
    assert restarts.count == 11


CAPTURED = json.loads(Path(__file__).with_name("failures_of_spark.json").read_text())


@pytest.mark.parametrize(
    ("name", "message", "is_permanent"),
    [
        ("data loss in the driver", "Partition a-0's offset was changed from 10 to 1. Some", True),
        ("data loss in a task", "Cannot fetch offsets 0 to 9 of t-0, which now holds", True),
        ("topic gone", "Topic 'absent' does not exist. If it was deleted, remove it", True),
        ("option of a source", "maxOffsetsPerTrigger is 'abc', not a whole number", True),
        ("option of a sink", "kafka.acks is '7', not one of all, -1, 0, 1", True),
        ("columns of a sink", "The rows have no column 'value', which every record needs", True),
        ("rows that cannot be written", "A row asks for partition 9 of topic out", True),
        ("marker gone", "The checkpoint is at micro-batch 1, but the marker that says", True),
        ("another driver", "Another driver took over the transactional id 'ottla-", True),
        ("sink topic missing", "Topic 'absent' does not exist, and the broker does not", True),
        ("sink topic missing in foreachBatch", "Topic 'absent' does not exist, and the br", True),
        ("corrupt batch", "The batch at offset 0 of topic t, partition 0, is corrupt: its", True),
        ("broker away", "No broker of the cluster can be reached: 127.0.0.1:", False),
        ("sql that does not parse", "Syntax error at or near 'SELEC'.", True),
        ("sql of an unknown table", "The table or view `b` cannot be found.", True),
    ],
)
def test_what_spark_says_of_an_error_becomes_a_sentence_and_a_decision(
    name: str, message: str, is_permanent: bool
) -> None:
    """Captured from Spark 4.3 as it ended queries."""
    found = failure_of(*CAPTURED[name])
    assert found.message.startswith(message), found.message
    assert found.is_permanent is is_permanent


@pytest.mark.parametrize(
    ("kind", "text", "message", "is_permanent"),
    [
        (
            "AnalysisException",
            "[PYTHON_DATA_SOURCE_ERROR] Failed\nTraceback\n"
            "ottla.spark.sink_errors.SinkError: b:1 cannot be reached.\n\tat",
            "b:1 cannot be reached.",
            False,
        ),
        ("StreamingQueryException", "Traceback:\nValueError: odd\n", "ValueError: odd", False),
        ("RuntimeError", "", "RuntimeError", False),
    ],
)
def test_whose_error_it_is_decides(kind: str, text: str, message: str, is_permanent: bool) -> None:
    assert failure_of(kind, text) == (message, is_permanent)


def test_one_directory_belongs_to_one_supervisor(tmp_path: Path) -> None:
    first, second = RunDirectory(tmp_path, "p"), RunDirectory(tmp_path, "p")
    assert not first.is_running()
    first.acquire()
    assert second.is_running()
    with pytest.raises(AlreadyRunning):
        second.acquire()
    first.write_status({"name": "p", "state": "running"}, "")
    assert (second.read_status() or {})["state"] == "running"
    first.release()
    assert (second.read_status() or {})["state"] == "dead"
    assert [found.name for found in all_pipelines(tmp_path)] == ["p"]
    assert RunDirectory(tmp_path, "q").read_status() is None


def test_java_that_is_missing_is_one_sentence(tmp_path: Path) -> None:
    for environment in ({"PATH": str(tmp_path)}, {"JAVA_HOME": str(tmp_path)}):
        with pytest.raises(JavaMissing, match="default-jre-headless"):
            check_java(environment)


def test_java_that_is_too_old_is_one_sentence(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    with pytest.raises(JavaMissing, match="Java 11, which is too old"):
        check_java({"PATH": str(tmp_path)})


def test_settings_are_tuned_and_the_pipelines_own_win() -> None:
    definition = Pipeline("p", spark={"spark.driver.memory": "4g"}, bootstrap="b:1")
    definition.source("s", topic="t").sink("o", input="s", topic="u")
    settings = settings_of(definition.definition, None, 8)
    assert settings["spark.python.unix.domain.socket.enabled"] == "true"
    assert settings["spark.sql.shuffle.partitions"] == "8"
    assert settings["spark.driver.memory"] == "4g"
    cluster = settings_of(definition.definition, "spark://h:7077", 8)
    assert "spark.sql.shuffle.partitions" not in cluster
    # A cluster's own options for its JVMs are not replaced.
    assert "spark.executor.extraJavaOptions" not in cluster


def test_each_query_has_a_group_and_a_beginning_of_its_own() -> None:
    made = pipeline().definition
    both = [source_options(made, made.sources[0], sink.name, "/c") for sink in made.sinks]
    groups = [options["kafka.group.id"] for options in both]
    assert groups == ["p-counts-lines", "p-archive-lines"]
    assert len({options["checkpointLocation"] for options in both}) == 2


@pytest.mark.parametrize(
    ("timeout", "poll_timeout_ms"), [("90", "90000"), ("300s", "300000"), ("5m", "300000")]
)
def test_tasks_wait_for_records_as_long_as_sparks_network_may_take(
    timeout: str, poll_timeout_ms: str
) -> None:
    """As Spark's own connector does."""
    session = MagicMock()
    session.conf = {"spark.network.timeout": timeout}
    raw = Pipeline("p", bootstrap="b:1").source("s", topic="t").sink("o", input="s", topic="u")
    made = raw.definition
    data_frames(session, made, made.sinks[0])
    told = session.readStream.format.return_value.options.call_args.kwargs
    assert told["kafkaConsumer.pollTimeoutMs"] == poll_timeout_ms
    session.conf = {}
    data_frames(session, made, made.sinks[0])
    told = session.readStream.format.return_value.options.call_args.kwargs
    assert "kafkaConsumer.pollTimeoutMs" not in told
