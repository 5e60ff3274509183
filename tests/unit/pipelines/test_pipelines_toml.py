"""A pipeline file that is wrong is told with lines and reasons; a right one is read whole."""

from pathlib import Path

import pytest

from ottla.spark.pipelines.definition import SinkKind, SourceKind, ValueFormat, Watermark
from ottla.spark.pipelines.toml_file import PipelineError, load_toml, parse_toml
from ottla.spark.pipelines.toml_lines import line_of, lines_of

GOOD = """\
[pipeline]
name = "orders"
bootstrap = "${BROKER:-localhost:9092}"
trigger = "500 milliseconds"
spark = { "spark.sql.shuffle.partitions" = 4 }

[sources.orders]
topic = "orders"
format = "json"
schema = "customer STRING, amount DOUBLE, at TIMESTAMP"
watermark = { column = "at", delay = "10 seconds" }
options = { kafka.fetch.min.bytes = 1, failOnDataLoss = false }

[sources.customers]
kind = "table"
topic = "customers"
format = "json"
schema = "name STRING"

[sources.history]
path = "old"
schema = "customer STRING"

[transforms.totals]
sql = '''
  SELECT window(at, '1 minute') AS w, customer, sum(amount) AS total  -- from history
  FROM orders GROUP BY 1, 2
'''

[sinks.totals]
from = "totals"
topic = "totals"
key = "customer"
create = { partitions = 3, config = { "cleanup.policy" = "compact" } }

[sinks.archive]
from = "orders"
path = "archive"
partition_by = ["customer"]
"""


def parse(text: str, **environment: str) -> object:
    return parse_toml(text, Path("/p/pipeline.toml"), environment)


def test_every_setting_is_read() -> None:
    found = parse_toml(GOOD, Path("/p/pipeline.toml"), {"BROKER": "b:1"})
    assert (found.name, found.bootstrap, found.trigger) == ("orders", "b:1", "500 milliseconds")
    assert found.spark == {"spark.sql.shuffle.partitions": "4"}
    orders, customers, history = found.sources
    assert orders.watermark == Watermark("at", "10 seconds")
    assert orders.format is ValueFormat.JSON
    assert orders.options == {"kafka.fetch.min.bytes": "1", "failOnDataLoss": "false"}
    assert customers.kind is SourceKind.TABLE
    assert (history.kind, history.path) == (SourceKind.FILES, "/p/old")
    assert found.inputs_of(found.transforms[0]) == ("orders",)
    totals, archive = found.sinks
    assert totals.create is not None
    assert (totals.create.partitions, totals.create.config) == (3, {"cleanup.policy": "compact"})
    assert (archive.kind, archive.path, archive.partition_by) == (
        SinkKind.FILES,
        "/p/archive",
        ("customer",),
    )


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ('name = "orders"', 'name = "a b"', 2, "letters"),
        ('trigger = "500 milliseconds"', 'trigger = "often"', 4, "trigger"),
        ('topic = "orders"', 'topics = "orders"', 8, "no setting 'topics'"),
        ('format = "json"', 'format = "xml"', 9, "not one of"),
        ('delay = "10 seconds"', 'delay = "soon"', 11, "length of time"),
        ('kind = "table"', 'kind = "lake"', 15, "not one of"),
        ("FROM orders GROUP", "FROM nothing GROUP", 25, "reads none"),
        ("GROUP BY 1, 2", "GROUP BY (1, 2", 25, "not closed"),
        ('from = "totals"', 'from = "total"', 31, "there is no 'total'"),
        ('topic = "totals"', 'topic = "orders"', 32, "its own output"),
        ('topic = "totals"\n', "", 30, "either a 'topic'"),
        ('key = "customer"', "key = 5", 33, "must be a string"),
        ("partitions = 3", "partitions = 0", 34, "at least one partition"),
        ("${BROKER:-localhost:9092}", "${BROKER}", 3, "environment has no BROKER"),
        ("customer STRING, amount DOUBLE", "customer STRING, amount DOBLE", 10, "'DOBLE' is not"),
        ("failOnDataLoss = false", "maxOffsetsPerTrigger = 'abc'", 12, "not a whole number"),
        ("failOnDataLoss = false", "kafka.isolation.levle = 'x'", 12, "is isolation.level meant?"),
        ("failOnDataLoss = false", "kafka.ssl.keystore.key = 'x'", 12, "write the PEM to a file"),
        ('topic = "orders"', 'topic = "orders"\nstarting="middle"', 9, "startingOffsets"),
        ("SELECT window", "SELEC window", 25, "'SELEC' does not begin a query"),
        ("FROM orders GROUP", "FORM orders GROUP", 25, "reads none"),
        ('key = "customer"', "options.kafka.acks = 7", 33, "kafka.acks is '7'"),
        ('key = "customer"', 'delivery = "twice"', 33, "delivery is 'twice'"),
        ('path = "archive"', 'path = "archive"\noutput_mode = "update"', 39, "only be appended"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_reason(
    old: str, new: str, line: int, said: str
) -> None:
    assert old in GOOD
    with pytest.raises(PipelineError) as caught:
        parse(GOOD.replace(old, new, 1))
    message = next(text for text in caught.value.messages if said in text)
    assert message.startswith(f"/p/pipeline.toml:{line}: "), caught.value.messages


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(PipelineError) as caught:
        parse(
            GOOD.replace('from = "totals"', 'from = "x"').replace('from = "orders"', 'from = "y"')
        )
    assert len(caught.value.messages) == 2


def test_a_syntax_error_has_its_line() -> None:
    with pytest.raises(PipelineError, match=r"pipeline\.toml:2: "):
        parse("[pipeline]\nname = = 3\n")


def test_an_option_in_a_table_of_its_own_has_its_own_line() -> None:
    text = GOOD + '\n[sinks.more]\nfrom = "orders"\ntopic = "more"\n[sinks.more.options]\n'
    for written in ('"kafka.acks" = 7', "kafka.acks = 7", "kafka = { acks = 7 }"):
        with pytest.raises(PipelineError, match=r"pipeline\.toml:4[56]: kafka\.acks is '7'"):
            parse(f"{text}topic = 'x'\n{written}\n")


def test_a_column_may_have_the_name_of_a_transformation() -> None:
    text = GOOD + "\n[transforms.a]\nsql = 'SELECT customer AS b FROM orders'\n"
    found = parse_toml(text + "[transforms.b]\nsql = 'SELECT * FROM a'\n", Path("/p/p.toml"), {})
    assert [one.name for one in found.ordered_transforms()] == ["totals", "a", "b"]
    assert [one.name for one in found.needed_by(found.sinks[0])[1]] == ["totals"]
    assert [one.name for one in found.needed_by(found.sinks[1])[0]] == ["orders"]


def test_a_circle_is_named() -> None:
    text = (
        GOOD + "\n[transforms.a]\nsql = 'SELECT * FROM b'\n[transforms.b]\nsql='SELECT * FROM a'\n"
    )
    with pytest.raises(PipelineError, match="circle: a, b"):
        parse(text)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="No such file"):
        load_toml(tmp_path / "x.toml", {})


def test_python_functions_are_loaded_beside_the_file_and_checked(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("def two(a, b):\n    return a\nnumber = 3\n")
    start = GOOD[: GOOD.index("[transforms")] + GOOD[GOOD.index("[sinks.totals") :]

    def with_python(line: str) -> str:
        return start + f"\n[transforms.totals]\n{line}\n"

    path = tmp_path / "pipeline.toml"
    good = 'python = "steps.py:two"\ninputs = ["orders", "customers"]'
    found = parse_toml(with_python(good), path, {})
    assert found.transforms[0].function is not None
    for line, said in [
        ('python = "steps.py:three"\ninputs = ["orders"]', "no function 'three'"),
        ('python = "steps.py:number"\ninputs = ["orders"]', "no function 'number'"),
        ('python = "other.py:two"\ninputs = ["orders"]', "cannot be imported"),
        ('python = "two"\ninputs = ["orders"]', "file.py:function"),
        ('python = "steps.py:two"\ninputs = ["orders"]', "cannot be called with 1"),
        ('python = "steps.py:two"\ninputs = ["orders", "else"]', "no 'else'"),
        ('python = "steps.py:two"', "needs 'inputs'"),
        ("", "either 'sql' or 'python'"),
    ]:
        with pytest.raises(PipelineError, match=said):
            parse_toml(with_python(line), path, {})


def test_lines_are_found_past_strings_of_several_lines() -> None:
    lines = lines_of(GOOD)
    assert line_of(lines, ("sinks", "archive", "partition_by")) == 39
    assert line_of(lines, ("sinks", "archive", "unknown")) == 36
    assert line_of(lines, ("nothing",)) == 1
