"""Names of segment files and partition directories, written and parsed back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.ids import Offset, TopicPartition
from ottla.storage.files.names import (
    DirectoryState,
    FileKind,
    FileState,
    PartitionDirectoryName,
    SegmentFileName,
    parse_partition_directory_name,
    parse_segment_file_name,
    partition_directory_name,
    segment_file_name,
)

UNIQUE = "0123456789abcdef0123456789abcdef"


@given(st.integers(0, 2**63 - 1), st.sampled_from(list(FileKind)), st.sampled_from(list(FileState)))
def test_segment_file_names_are_parsed_back(offset: int, kind: FileKind, state: FileState) -> None:
    name = segment_file_name(Offset(offset), kind, state)
    assert parse_segment_file_name(name) == SegmentFileName(Offset(offset), kind, state)


def test_segment_file_names_are_apache_kafkas() -> None:
    assert segment_file_name(Offset(4), FileKind.LOG) == "00000000000000000004.log"
    swap = segment_file_name(Offset(4), FileKind.TRANSACTION_INDEX, FileState.SWAP)
    assert swap == "00000000000000000004.txnindex.swap"


@pytest.mark.parametrize(
    "name",
    [
        "leader-epoch-checkpoint",
        "4.log",
        "00000000000000000004",
        "00000000000000000004.logs",
        "00000000000000000004.log.deleted.deleted",
        "00000000000000000004.log\n",
        "-0000000000000000004.log",
        "99999999999999999999.log",
        "00000000000000000000-0000000000.checkpoint",
    ],
)
def test_other_files_are_none_of_a_segments(name: str) -> None:
    assert parse_segment_file_name(name) is None


@pytest.mark.parametrize("offset", [-1, 2**63])
def test_impossible_offsets_name_no_file(offset: int) -> None:
    with pytest.raises(ValueError, match="cannot name a file"):
        segment_file_name(Offset(offset), FileKind.LOG)


topic_partitions = st.builds(
    TopicPartition, st.text("ab09._-", min_size=1, max_size=249), st.integers(0, 2**31 - 1)
)


@given(topic_partitions, st.sampled_from(list(DirectoryState)))
def test_directory_names_are_parsed_back(
    topic_partition: TopicPartition, state: DirectoryState
) -> None:
    name = partition_directory_name(topic_partition, state, unique_id=UNIQUE)
    parsed = parse_partition_directory_name(name)
    assert parsed is not None
    if state is DirectoryState.FUTURE:
        assert parsed == PartitionDirectoryName(topic_partition, state)
        return
    assert len(name) <= 255 or state is DirectoryState.LIVE
    assert parsed.state is state
    assert parsed.topic_partition.partition == topic_partition.partition
    assert topic_partition.topic.startswith(parsed.topic_partition.topic)
    if len(topic_partition.topic) < 200:
        assert parsed.topic_partition == topic_partition


def test_directory_names_are_apache_kafkas() -> None:
    topic_partition = TopicPartition("my-topic", 3)
    assert partition_directory_name(topic_partition) == "my-topic-3"
    assert (
        partition_directory_name(topic_partition, DirectoryState.DELETE, unique_id=UNIQUE)
        == f"my-topic-3.{UNIQUE}-delete"
    )
    long = TopicPartition("t" * 249, 12)
    deleted = partition_directory_name(long, DirectoryState.DELETE, unique_id=UNIQUE)
    assert len(deleted) == 255
    assert deleted == "t" * 212 + f"-12.{UNIQUE}-delete"


@pytest.mark.parametrize(
    "name",
    ["topic", "topic-", "-3", "topic-x", "topic--delete", "topic-3-delete", "a b-3",
     "t-99999999999", "t-3.x-deleted", "lost+found", "topic-3\n", "topic-٣"],
)  # fmt: skip
def test_other_directories_are_no_partitions(name: str) -> None:
    assert parse_partition_directory_name(name) is None


def test_a_mark_needs_a_unique_id() -> None:
    with pytest.raises(ValueError, match="unique id"):
        partition_directory_name(TopicPartition("t", 0), DirectoryState.STRAY)
