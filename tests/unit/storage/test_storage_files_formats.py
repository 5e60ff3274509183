"""The small files of a log directory, as Apache Kafka 4.3.1 wrote them and as they may go wrong."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol import uuids
from ottla.protocol.ids import Epoch, Offset, TopicPartition
from ottla.storage.core.leader_epochs import EpochEntry
from ottla.storage.files.checkpoint import (
    decode_leader_epochs,
    decode_offsets,
    encode_leader_epochs,
    encode_offsets,
)
from ottla.storage.files.clean_shutdown import decode_clean_shutdown, encode_clean_shutdown
from ottla.storage.files.malformed import MalformedFileError
from ottla.storage.files.meta_properties import (
    MetaProperties,
    decode_meta_properties,
    encode_meta_properties,
)
from ottla.storage.files.partition_metadata import (
    decode_partition_metadata,
    encode_partition_metadata,
)

KAFKA_OFFSETS = b"0\n3\ntxn 0 11\nidem 0 6\n__transaction_state 0 15\n"
KAFKA_EPOCHS = b"0\n1\n0 0\n"
KAFKA_PARTITION_METADATA = b"version: 0\ntopic_id: 7wKiNh9jQVuwB_PVk3iiOg"
KAFKA_META_PROPERTIES = (
    b"#\n#Mon Nov 16 11:26:54 UTC 2026\nnode.id=1\ndirectory.id=YnPt91LfRdW0N8d2NiUJbA\n"
    b"version=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qk\n"
)
KAFKA_CLEAN_SHUTDOWN = b'{"version":0,"brokerEpoch":14}'


def test_offset_checkpoint_of_apache_kafka_is_written_back_alike() -> None:
    offsets = decode_offsets(KAFKA_OFFSETS, "f")
    assert offsets == {
        TopicPartition("txn", 0): 11,
        TopicPartition("idem", 0): 6,
        TopicPartition("__transaction_state", 0): 15,
    }
    assert encode_offsets(offsets) == KAFKA_OFFSETS
    assert encode_offsets({}) == b"0\n0\n"


def test_leader_epoch_checkpoint_of_apache_kafka_is_written_back_alike() -> None:
    assert decode_leader_epochs(KAFKA_EPOCHS, "f") == [EpochEntry(Epoch(0), Offset(0))]
    assert encode_leader_epochs(decode_leader_epochs(KAFKA_EPOCHS, "f")) == KAFKA_EPOCHS


@pytest.mark.parametrize("content", [b"", b"0\n", b"0\n0\n", b"0\n0"])
def test_a_checkpoint_that_was_only_begun_is_empty(content: bytes) -> None:
    assert decode_offsets(content, "f") == {}
    assert decode_leader_epochs(content, "f") == []


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"1\n0\n", "f, line 1: version 1"),
        (b"x\n0\n", "f, line 1: 'x' is not an integer"),
        (b"0\nmany\n", "f, line 2: 'many'"),
        (b"0\n2\nt 0 5\n", "f, line 2: 2 entries announced, 1 found"),
        (b"0\n0\nt 0 5\n", "f, line 2: 0 entries announced, 1 found"),
        (b"0\n1\nt 0\n", "f, line 3: 3 columns expected, 2 found"),
        (b"0\n2\nt 0 5\nt one 5\n", "f, line 4: 'one'"),
        (b"0\n1\nt 0 1_0\n", "f, line 3: '1_0'"),
        ("0\n1\nt 0 ٣\n".encode(), "f, line 3"),
        (b"0\n1\nt 0 5 \xff\n", "f: is not UTF-8"),
        (b"\0\0\0\0\0\0", "f, line 1"),  # what a power cut leaves of an unsynced file
    ],
)
def test_a_malformed_checkpoint_names_file_and_line(content: bytes, problem: str) -> None:
    with pytest.raises(MalformedFileError, match=problem.replace("[", r"\[")):
        decode_offsets(content, "f")


topic_names = st.text("abcXYZ019._-", min_size=1, max_size=20)
int64 = st.integers(0, 2**63 - 1)


@given(st.dictionaries(st.tuples(topic_names, st.integers(0, 2**31 - 1)), int64, max_size=5))
def test_offsets_survive_their_checkpoint(offsets: dict[tuple[str, int], int]) -> None:
    before = {TopicPartition(*tp): Offset(offset) for tp, offset in offsets.items()}
    after = decode_offsets(encode_offsets(before), "f")
    assert list(after.items()) == list(before.items())
    assert decode_offsets(encode_offsets(before).replace(b"\n", b"\r\n"), "f") == before


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), int64), max_size=5))
def test_epochs_survive_their_checkpoint(pairs: list[tuple[int, int]]) -> None:
    entries = [EpochEntry(Epoch(e), Offset(o)) for e, o in pairs]
    assert decode_leader_epochs(encode_leader_epochs(entries), "f") == entries


def test_partition_metadata_of_apache_kafka_is_written_back_alike() -> None:
    topic_id = decode_partition_metadata(KAFKA_PARTITION_METADATA, "f")
    assert encode_partition_metadata(topic_id) == KAFKA_PARTITION_METADATA
    later = KAFKA_PARTITION_METADATA.replace(b"version: 0", b"version:  3") + b"\nmore: x\n"
    assert decode_partition_metadata(later, "f") == topic_id


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "f, line 1"),
        (b"version 0\ntopic_id: 7wKiNh9jQVuwB_PVk3iiOg", "f, line 1"),
        (b"version: -1\ntopic_id: 7wKiNh9jQVuwB_PVk3iiOg", "f, line 1: version -1"),
        (b"version: 0", "f, line 2: no line"),
        (b"version: 0\ntopic_id: ", "f, line 2"),
        (b"version: 0\ntopic_id: abc", "f, line 2"),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "f, line 2: .* zeros"),
    ],
)
def test_malformed_partition_metadata_names_file_and_line(content: bytes, problem: str) -> None:
    with pytest.raises(MalformedFileError, match=problem):
        decode_partition_metadata(content, "f")


def test_meta_properties_of_apache_kafka_is_written_back_alike() -> None:
    properties = decode_meta_properties(KAFKA_META_PROPERTIES, "f")
    assert properties == MetaProperties(
        1, "MkU3OEVBNTcwNTJENDM2Qk", 1, uuids.decode("YnPt91LfRdW0N8d2NiUJbA")
    )
    written = encode_meta_properties(properties, comments=("", "Mon Nov 16 11:26:54 UTC 2026"))
    assert written == KAFKA_META_PROPERTIES


def test_meta_properties_of_zookeeper_days_are_read() -> None:
    content = b"version=0\nbroker.id=3\ncluster.id=abc\n"
    assert decode_meta_properties(content, "f") == MetaProperties(0, "abc", 3, None)
    assert decode_meta_properties(b"", "f") == MetaProperties(0, None, None, None)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"version=1\nnode.id=1\n", "f: cluster.id was not found"),
        (b"version=1\ncluster.id=c\nbroker.id=1\n", "f: node.id was not found"),
        (b"version=2\n", "f: version 2"),
        (b"version=one\n", "f: version 'one'"),
        (b"version=1\ncluster.id=c\nnode.id=x\n", "f: node.id 'x'"),
        (b"version=1\ncluster.id=c\nnode.id=1\ndirectory.id=x\n", "f: directory.id"),
        (b"version=1\ncluster.id=\\uzzzz\n", "f: .*line 2"),
    ],
)
def test_malformed_meta_properties_say_what_is_wrong(content: bytes, problem: str) -> None:
    with pytest.raises(MalformedFileError, match=problem):
        decode_meta_properties(content, "f")


def test_meta_properties_are_read_as_java_reads_properties() -> None:
    content = (
        b"! a comment\r\n  # another \\\n\n \tversion : 1\n"
        b"cluster\\.id =  a\\\n   b\\tc\\u00e9\\\\\n"
        b"node.id 7\rdirectory.id=YnPt91LfRdW0N8d2NiUJbA"
    )
    properties = decode_meta_properties(content, "f")
    assert (properties.cluster_id, properties.node_id) == ("ab\tcé\\", 7)


@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.integers(0, 2**31 - 1),
    st.none() | st.uuids(),
)
def test_meta_properties_survive_their_file(
    cluster_id: str, node_id: int, directory_id: UUID | None
) -> None:
    before = MetaProperties(1, cluster_id, node_id, directory_id)
    assert decode_meta_properties(encode_meta_properties(before), "f") == before


def test_clean_shutdown_file_of_apache_kafka_is_written_back_alike() -> None:
    assert decode_clean_shutdown(KAFKA_CLEAN_SHUTDOWN) == 14
    assert encode_clean_shutdown(14) == KAFKA_CLEAN_SHUTDOWN


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"version":0}', b"[1]"])
def test_a_clean_shutdown_file_without_an_epoch_has_none(content: bytes) -> None:
    assert decode_clean_shutdown(content) is None
    assert decode_clean_shutdown(b'{"version":1,"brokerEpoch":5,"more":[]}') == 5


@given(st.uuids())
def test_uuids_survive_their_text(value: UUID) -> None:
    text = uuids.encode(value)
    assert len(text) == 22
    assert uuids.decode(text) == value
    assert uuids.decode(text + "==") == value


def test_uuids_are_written_as_apache_kafka_writes_them() -> None:
    assert uuids.encode(uuids.ONE) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuids.encode(UUID("ef02a236-1f63-415b-b007-f3d59378a23a")) == "7wKiNh9jQVuwB_PVk3iiOg"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "AAAA",
        "A" * 23,
        "A" * 2000,
        "7wKiNh9jQVuwB/PVk3iiOg",
        "7wKiNh9jQVuwB PVk3iiOg",
        "é" * 22,
    ],
)
def test_what_is_no_uuid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"UUID"):
        uuids.decode(text)
