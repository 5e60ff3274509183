"""What the options of a write mean, and which are refused."""

import pickle
import re

import pytest

from ottla.client.transactions import ProducerFenced
from ottla.protocol.codecs import Codec
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.spark.exactly_once import MarkerMismatch, MismatchPolicy
from ottla.spark.option_values import OptionError
from ottla.spark.partitioner import Partitioning
from ottla.spark.sink_errors import (
    FencedError,
    Moment,
    SinkError,
    TopicMissing,
    TransactionExpired,
    explained,
    mismatch,
)
from ottla.spark.sink_options import Field, check_columns, parse_sink_options

BROKER = {"kafka.bootstrap.servers": "b:9092"}


def test_defaults_are_exactly_once_with_all_acks() -> None:
    options = parse_sink_options(BROKER)
    assert options.is_exactly_once
    assert options.is_idempotent
    assert options.acks == -1
    assert options.codec is Codec.NONE
    assert options.partitioning is Partitioning.BY_KEY
    assert options.request_bytes_max == 1_048_576
    assert options.mismatch_policy is MismatchPolicy.FAIL
    assert pickle.loads(pickle.dumps(options)) == options


def test_names_of_options_are_not_case_sensitive() -> None:
    options = parse_sink_options(
        {
            "Kafka.Bootstrap.Servers": "b:1",
            "TOPIC": "t",
            "stageDirectory": "/shared",
            "transactionalIdPrefix": "mine",
            "markerTopic": "m",
            "markerMismatch": "SKIP",
            "writeId": "w",
            "kafka.compression.type": "zstd",
            "kafka.compression.zstd.level": "7",
            "kafka.batch.size": "1000",
            "kafka.max.request.size": "2000",
            "kafka.transaction.timeout.ms": "5",
            "kafka.delivery.timeout.ms": "6",
            "kafka.partitioner.ignore.keys": "true",
        }
    )
    assert (options.topic, options.stage_directory, options.write_id) == ("t", "/shared", "w")
    assert (options.transactional_id_prefix, options.marker_topic) == ("mine", "m")
    assert options.mismatch_policy is MismatchPolicy.SKIP
    assert (options.codec, options.codec_level) == (Codec.ZSTD, 7)
    assert (options.batch_bytes_max, options.request_bytes_max) == (1000, 2000)
    assert (options.transaction_timeout_ms, options.delivery_timeout_ms) == (5, 6)
    assert options.partitioning is Partitioning.STICKY


def test_plain_spellings_are_understood() -> None:
    given = {"bootstrap.servers": "b:7", "compression.type": "zstd", "max.block.ms": "5"}
    options = parse_sink_options(given)
    assert options.client.bootstrap_servers[0].port == 7
    assert options.codec is Codec.ZSTD
    assert options.client.api_timeout_ms == 5  # as long as a producer may be blocked


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "kafka.bootstrap.servers"),
        ({**BROKER, "kafka.key.serializer": "x"}, "key.serializer"),
        ({**BROKER, "kafka.value.serializer": "x"}, "STRING or BINARY"),
        ({**BROKER, "kafka.interceptor.classes": "x"}, "Java"),
        ({**BROKER, "kafka.transactional.id": "x"}, "transactionalIdPrefix"),
        ({**BROKER, "delivery": "perhaps"}, "exactly_once, at_least_once"),
        ({**BROKER, "kafka.acks": "1"}, "at_least_once"),
        ({**BROKER, "kafka.acks": "2"}, "not one of"),
        ({**BROKER, "kafka.enable.idempotence": "false"}, "at_least_once"),
        ({**BROKER, "kafka.compression.type": "rar"}, "zstd"),
        ({**BROKER, "kafka.batch.size": "many"}, "not a whole number"),
        ({**BROKER, "kafka.max.request.size": "0"}, "at least 1"),
        ({**BROKER, "markerMismatch": "ignore"}, "publish"),
        ({**BROKER, "writeId": "../../etc"}, "writeId is '../../etc'"),
        ({**BROKER, "queryId": ".."}, "queryId is '..'"),
        ({**BROKER, "writer": "a/b"}, "no '/' in it"),
        ({**BROKER, "kafka.partitioner.class": "com.example.P"}, "partition"),
        ({"kafka.bootstrap.servers": "b:x"}, "host:port"),
        ({**BROKER, "kafka.security.protocol": "MAGIC"}, "security.protocol"),
    ],
)
def test_what_cannot_be_obeyed_is_refused_with_what_to_do(
    options: dict[str, str], said: str
) -> None:
    with pytest.raises(OptionError, match=said):
        parse_sink_options(options)


def test_fewer_acks_are_allowed_at_least_once() -> None:
    options = parse_sink_options({**BROKER, "delivery": "at_least_once", "kafka.acks": "1"})
    assert options.acks == 1
    assert not options.is_idempotent


HEADERS = "array<struct<key:string,value:binary>>"


def test_the_columns_of_sparks_own_sink_are_accepted_and_others_ignored() -> None:
    check_columns(
        [
            Field("key", "string"),
            Field("value", "binary"),
            Field("topic", "string"),
            Field("partition", "int"),
            Field("headers", HEADERS),
            Field("anything", "map<string,int>"),
        ],
        None,
    )


@pytest.mark.parametrize(
    ("fields", "topic", "said"),
    [
        ([Field("key", "string")], "t", "no column 'value'"),
        ([Field("value", "string")], None, "option 'topic'"),
        ([Field("value", "bigint")], "t", "'value' is of type bigint"),
        ([Field("value", "string"), Field("key", "int")], "t", "'key'"),
        ([Field("value", "string"), Field("topic", "binary")], None, "'topic'"),
        ([Field("value", "string"), Field("partition", "bigint")], "t", "'partition'"),
        ([Field("value", "string"), Field("headers", "map<string,string>")], "t", "'headers'"),
    ],
)
def test_columns_that_do_not_fit_are_named(
    fields: list[Field], topic: str | None, said: str
) -> None:
    with pytest.raises(OptionError, match=said):
        check_columns(fields, topic)


@pytest.mark.parametrize(
    ("marker", "said"), [(None, "is gone"), (2, "only 2 micro-batches"), (9, "older than")]
)
def test_a_marker_that_does_not_fit_is_explained_with_the_way_out(
    marker: int | None, said: str
) -> None:
    text = str(mismatch("ottla-q", MarkerMismatch(marker, 5)))
    assert said in text
    assert "ottla-q" in text
    assert "markerMismatch" in text


FENCED = ProducerFenced(ErrorCode.PRODUCER_FENCED, "PRODUCER_FENCED")
AWAY = KafkaError(ErrorCode.NETWORK_EXCEPTION, "b:1 cannot be reached")


@pytest.mark.parametrize(
    ("error", "moment", "kind", "said"),
    [
        (FENCED, Moment(False, False, True), FencedError, "Nothing of this micro-batch was publ"),
        (FENCED, Moment(False, True, True), TransactionExpired, "transaction.timeout.ms.*Nothing"),
        (FENCED, Moment(True, True, True), TransactionExpired, "not known.*starting again finds"),
        (FENCED, Moment(True, False, True), FencedError, "stop one of them.*not known"),
        (AWAY, Moment(False, False, True), SinkError, "cannot be reached. Nothing of this"),
        (AWAY, Moment(True, False, True), SinkError, "cannot be reached. Whether.*starting again"),
        (AWAY, Moment(True, False, False), SinkError, "Whether the rows.*'writeId'"),
        (
            KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t-0"),
            Moment(False, False, True),
            TopicMissing,
            "create it.*Nothing",
        ),
    ],
)
def test_what_is_told_of_a_failure_is_what_is_known_then(
    error: KafkaError, moment: Moment, kind: type[SinkError], said: str
) -> None:
    found = explained(error, "ottla-q", moment)
    assert type(found) is kind
    assert re.search(said, str(found)), str(found)
