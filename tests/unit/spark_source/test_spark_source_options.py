"""Options in the words of Spark's own connector, and what they refuse."""

import pickle

import pytest

from ottla.client import TopicPartition
from ottla.client.offsets import EARLIEST, LATEST
from ottla.spark.option_values import GivenOptions, OptionError
from ottla.spark.options import (
    Position,
    SourceOptions,
    Subscription,
    check_batch_options,
    check_stream_options,
    parse_source_options,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def parsed(**given: str) -> SourceOptions:
    named = {"kafka.bootstrap.servers": "h:1"}
    named |= {name.replace("__", "."): value for name, value in given.items()}
    if not any(name.lower() in ("subscribe", "subscribepattern", "assign") for name in named):
        named["subscribe"] = "a"
    return parse_source_options(named)


def test_defaults_are_those_of_spark() -> None:
    options = parsed()
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert (options.starting, options.ending) == (None, None)
    assert options.group_id_prefix == "spark-kafka-source"
    assert options.poll_timeout_ms == 120_000
    assert (options.fetch_offset_attempts, options.fetch_offset_interval_ms) == (3, 1000)
    assert options.max_trigger_delay_ms == 15 * 60_000
    assert options.partition_cache_ttl_ms == -1
    assert not options.client.is_read_committed
    assert options.client.client_id == "spark-kafka-source"


def test_a_task_may_fetch_more_at_once_than_kafkas_default_unless_told() -> None:
    assert parsed().client.partition_fetch_bytes == 4 << 20
    assert parsed(kafka__max__partition__fetch__bytes="5000").client.partition_fetch_bytes == 5000


def test_names_are_not_case_sensitive_and_need_no_prefix() -> None:
    options = parse_source_options(
        {
            "Kafka.Bootstrap.Servers": "h:1",
            "SUBSCRIBE": "a, b ,a",
            "includeheaders": "TRUE",
            "MAXOFFSETSPERTRIGGER": "7",
            "isolation.level": "read_committed",
            "group.id": "mine",
        }
    )
    assert options.topics.names == ("a", "b")
    assert options.include_headers
    assert options.max_offsets_per_trigger == 7
    assert options.client.is_read_committed
    assert options.group_id == "mine"
    assert pickle.loads(pickle.dumps(options)) == options


def test_the_prefixed_spelling_wins() -> None:
    options = {"bootstrap.servers": "plain:1", "kafka.bootstrap.servers": "prefixed:1"}
    for given in (options, dict(reversed(options.items()))):
        found = GivenOptions(given).kafka_properties({})
        assert found["bootstrap.servers"] == "prefixed:1"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"kafka.bootstrap.servers": " "}, "'kafka.bootstrap.servers' must be specified"),
        ({"subscribe": ""}, "No topics to subscribe to"),
        ({"subscribePattern": " "}, "Pattern to subscribe is empty"),
        ({"subscribePattern": "("}, "not a pattern"),
        ({"assign": "a"}, "No topicpartitions to assign"),
        ({"assign": '{"a":0}'}, "Expected e.g."),
        ({"assign": "{}"}, "Expected e.g."),
        ({"subscribe": "a", "assign": "{}"}, "Only one of"),
        ({"minPartitions": "0"}, "minPartitions must be positive"),
        ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition must be positive"),
        ({"minPartitions": "few"}, "not a whole number"),
        ({"failOnDataLoss": "perhaps"}, "neither true nor false"),
        ({"startingOffsets": "middle"}, "startingOffsets: expected e.g."),
        ({"startingOffsetsByTimestampStrategy": "x"}, "not one of error, latest"),
        ({"partition.metadata.cache.ttl.ms": "0"}, "or -1"),
        ({"kafka.ssl.keystore.key": "x"}, "ssl.keystore.key is not read"),
        ({"maxTriggerDelay": "soon"}, "not a time"),
        ({"kafka.auto.offset.reset": "earliest"}, "'auto.offset.reset' is not supported"),
        ({"kafka.key.deserializer": "x"}, "'key.deserializer' is not supported"),
        ({"kafka.value.deserializer": "x"}, "'value.deserializer' is not supported"),
        ({"kafka.key.serializer": "x"}, "'key.serializer' is not supported"),
        ({"kafka.value.serializer": "x"}, "'value.serializer' is not supported"),
        ({"kafka.enable.auto.commit": "x"}, "'enable.auto.commit' is not supported"),
        ({"kafka.interceptor.classes": "x"}, "'interceptor.classes' is not supported"),
        ({"kafka.security.protocol": "x"}, "security.protocol"),
    ],
)
def test_what_spark_refuses_is_refused(given: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        parsed(**{name.replace(".", "__"): value for name, value in given.items()})


def test_one_way_to_name_topics_must_be_given() -> None:
    with pytest.raises(OptionError, match="One of the following options must be specified"):
        parse_source_options({"kafka.bootstrap.servers": "h:1"})


def test_positions() -> None:
    assert parsed(startingOffsets=" Earliest ").starting == Position(everywhere=EARLIEST)
    assert parsed(startingOffsets="latest").starting == Position(everywhere=LATEST)
    given = '{"a":{"0":23,"1":-1},"b":{"0":-2}}'
    assert parsed(startingOffsets=given).starting == Position(
        offsets={A0: 23, A1: LATEST, B0: EARLIEST}
    )
    assert parsed(endingOffsetsByTimestamp='{"a":{"0":5}}').ending == Position(
        timestamps_ms={A0: 5}, option="endingOffsetsByTimestamp"
    )


def test_one_time_goes_before_times_before_offsets() -> None:
    given = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"a":{"0":5}}'}
    starting = parsed(**given).starting
    assert starting is not None
    assert starting.option == "startingOffsetsByTimestamp"
    starting = parsed(**given, startingTimestamp="99").starting
    assert starting == Position(timestamp_ms=99, option="startingTimestamp")


def test_assigned_partitions_and_patterns() -> None:
    assert parsed(assign='{"a":[0,1],"b":[0]}').topics.partitions == (A0, A1, B0)
    assert parsed(subscribePattern="a.*").topics.kind is Subscription.PATTERN


@pytest.mark.parametrize(
    ("text", "expected_ms"), [("15m", 900_000), ("30 s", 30_000), ("500", 500), ("2h", 7_200_000)]
)
def test_delays(text: str, expected_ms: int) -> None:
    assert parsed(maxTriggerDelay=text).max_trigger_delay_ms == expected_ms


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"startingOffsets": "latest"}, "starting offset can't be latest"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, "a-0 can't be latest"),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, "a-0 can't be earliest"),
        (
            {"startingOffsets": '{"a":{"0":9}}', "endingOffsets": '{"a":{"0":8}}'},
            "start offset 9 is greater than the end offset 8 for topic a partition 0",
        ),
        (
            {
                "startingOffsetsByTimestamp": '{"a":{"0":9}}',
                "endingOffsetsByTimestamp": '{"a":{"0":8}}',
            },
            "start timestamp 9 is greater",
        ),
        (
            {"startingOffsets": '{"a":{"0":9}}', "endingOffsets": '{"a":{"1":10}}'},
            "must name the same partitions",
        ),
    ],
)
def test_what_a_batch_cannot_have(given: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        check_batch_options(parsed(**given))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"endingOffsets": "latest"}, "ending offset not valid in streaming"),
        ({"endingOffsetsByTimestamp": '{"a":{"0":1}}'}, "ending timestamp not valid"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "less than or equal to"),
    ],
)
def test_what_a_stream_cannot_have(given: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        check_stream_options(parsed(**given))
