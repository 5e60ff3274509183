"""What a file of a log directory shows, whole and damaged."""

import json
from collections.abc import Iterator
from pathlib import Path
from struct import pack
from typing import Any
from uuid import UUID

import pytest

from ottla.cli.errors import CliError
from ottla.cli.log_files import DamagedFileError, rows_of
from ottla.cli.main import run
from ottla.coordinators.transaction.metadata import TransactionMetadata
from ottla.coordinators.transaction.records import transaction_record, transaction_tombstone
from ottla.coordinators.transaction.states import TransactionState
from ottla.metadata.records import TopicRecord, encode_record
from ottla.protocol.batches import Record, build_batch
from ottla.protocol.codecs import Codec
from ottla.protocol.ids import TopicPartition
from ottla.storage.core.leader_epochs import EpochEntry
from ottla.storage.core.offset_index import OffsetIndex
from ottla.storage.core.time_index import TimeIndex
from ottla.storage.files.checkpoint import encode_leader_epochs
from ottla.storage.files.meta_properties import MetaProperties, encode_meta_properties

DIRECTORY = "/data/orders-0"
TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")


def rows(name: str, data: bytes, **options: Any) -> list[dict[str, object]]:
    path = name if "/" in name else f"{DIRECTORY}/{name}"
    return [dict(row) for row in rows_of(path, memoryview(data), **options)]


def batch(*values: bytes, base_offset: int = 0, codec: Codec = Codec.NONE) -> bytes:
    records = [
        Record(base_offset + i, 1_700_000_000_000, b"k", value, ((b"h", b"1"),))
        for i, value in enumerate(values)
    ]
    return bytes(build_batch(records, base_offset=base_offset, leader_epoch=4, codec=codec))


SEGMENT = batch(b"a", b"b") + batch(b"c", base_offset=2, codec=Codec.ZSTD)


def test_a_segment_shows_its_batches() -> None:
    found = rows("00000000000000000000.log", SEGMENT)
    assert [(r["base_offset"], r["last_offset"], r["count"], r["codec"]) for r in found] == [
        (0, 1, 2, "none"),
        (2, 2, 1, "zstd"),
    ]
    assert all(r["problem"] is None and r["leader_epoch"] == 4 for r in found)


def test_deep_shows_the_records_of_every_batch() -> None:
    found = rows("00000000000000000000.log", SEGMENT, is_deep=True)
    assert [(r["offset"], r["key"], r["value"]) for r in found] == [
        (0, "k", "a"),
        (1, "k", "b"),
        (2, "k", "c"),
    ]
    assert found[0]["headers"] == {"h": "1"}


def test_a_flipped_bit_is_told_beside_its_batch() -> None:
    damaged = bytearray(SEGMENT)
    damaged[70] ^= 1
    found = rows("00000000000000000000.log", bytes(damaged))
    assert "CRC" in str(found[0]["problem"])
    assert found[1]["problem"] is None


def test_rows_come_until_a_torn_end() -> None:
    reading: Iterator[object] = rows_of(
        f"{DIRECTORY}/00000000000000000000.log", memoryview(SEGMENT[:-5])
    )
    assert next(reading)
    with pytest.raises(DamagedFileError, match="no whole batch"):
        list(reading)


def test_room_that_was_set_aside_but_never_written_is_no_damage() -> None:
    assert len(rows("00000000000000000000.log", SEGMENT + bytes(4096))) == 2


def test_metadata_records_are_read_where_they_lie_or_where_the_user_says_so() -> None:
    data = batch(encode_record(TopicRecord("orders", TOPIC_ID)))
    expected = {"name": "orders", "topic_id": "ABEiM0RVZneImaq7zN3u_w"}
    found = rows("/d/__cluster_metadata-0/00000000000000000000.log", data, is_deep=True)
    assert (found[0]["key"], found[0]["value"]) == ("TopicRecord", expected)
    found = rows("/d/x/00000000000000000000.log", data, is_deep=True, records_kind="metadata")
    assert found[0]["value"] == expected
    found = rows("/d/x/00000000000000000000.log", data, is_deep=True)
    assert found[0]["key"] == "k"


def test_indexes_show_their_entries() -> None:
    offsets = OffsetIndex(10, index_bytes_max=80)  # type: ignore[arg-type]
    for offset, position in ((12, 100), (15, 900)):
        offsets.append(offset, position)  # type: ignore[arg-type]
    unused = bytes(16)
    assert rows("00000000000000000010.index", offsets.data + unused) == [
        {"offset": 12, "position": 100, "problem": None},
        {"offset": 15, "position": 900, "problem": None},
    ]
    times = TimeIndex(10, index_bytes_max=120)  # type: ignore[arg-type]
    times.maybe_append(1_700_000_000_000, 12)  # type: ignore[arg-type]
    assert rows("00000000000000000010.timeindex", times.data + bytes(24)) == [
        {
            "timestamp": "2023-11-14T22:13:20.000Z",
            "timestamp_ms": 1_700_000_000_000,
            "offset": 12,
            "problem": None,
        }
    ]


def test_an_index_is_checked_against_its_segment() -> None:
    second = len(batch(b"a", b"b"))
    offsets = OffsetIndex(0, index_bytes_max=80)  # type: ignore[arg-type]
    for offset, position in ((1, 0), (2, second), (3, second + 1), (4, 10_000)):
        offsets.append(offset, position)  # type: ignore[arg-type]
    found = rows("00000000000000000000.index", offsets.data, segment=memoryview(SEGMENT))
    assert [row["problem"] for row in found] == [
        None,
        None,
        "no batch begins there",
        "no batch begins there",
    ]
    wrong = OffsetIndex(0, index_bytes_max=80)  # type: ignore[arg-type]
    wrong.append(0, second)  # type: ignore[arg-type]
    found = rows("00000000000000000000.index", wrong.data, segment=memoryview(SEGMENT))
    assert found[0]["problem"] == "the batch there ends with offset 2"


def test_a_time_index_is_checked_against_its_segment() -> None:
    time_ms = 1_700_000_000_000
    entries = ((time_ms, 1), (time_ms + 1, 2), (time_ms + 2, 3), (time_ms, 2))
    data = b"".join(pack(">qi", *entry) for entry in entries)
    found = rows("00000000000000000000.timeindex", data, segment=memoryview(SEGMENT + bytes(99)))
    assert [row["problem"] for row in found] == [
        None,
        f"its batch has {time_ms}",
        "no batch ends with this offset",
        "the timestamp is not above the one before",
    ]


def test_the_segment_beside_an_index_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = tmp_path / "00000000000000000000.index"
    index.write_bytes(pack(">ii", 5, 0))
    assert run(["log", "dump", str(index), "-o", "json"]) == 0
    assert '"problem": null' in capsys.readouterr().out
    (tmp_path / "00000000000000000000.log").write_bytes(SEGMENT)
    assert run(["log", "dump", str(index)]) == 0
    assert "the batch there ends with offset 1" in capsys.readouterr().out


GOLDEN = Path(__file__).parents[1] / "coordinators" / "golden"


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("kafka-4.3-consumer-offsets.log", {"OffsetCommit", "Group"}),
        ("kafka-4.3-consumer-groups.log", {"GroupEpoch", "Member", "TargetMember"}),
    ],
)
def test_what_kafka_wrote_of_groups_is_read_by_the_name_of_the_directory(
    name: str, types: set[str]
) -> None:
    data = (GOLDEN / name).read_bytes()
    found = rows("/d/__consumer_offsets-7/00000000000000000000.log", data, is_deep=True)
    keys: list[Any] = [row["key"] for row in found]
    assert types <= {key["type"] for key in keys if isinstance(key, dict)}
    assert all("group_id" in key for key in keys if isinstance(key, dict))
    json.dumps(found)
    again = rows("/d/x/00000000000000000000.log", data, is_deep=True, records_kind="offsets")
    assert again == found


def test_transactions_are_read_by_the_name_of_the_directory() -> None:
    metadata = TransactionMetadata(
        7, 2, 60_000, TransactionState.ONGOING, frozenset({TopicPartition("orders", 3)})
    )
    written = [
        transaction_record("transfers", metadata, transaction_version=2),
        transaction_tombstone("transfers"),
    ]
    records = [Record(i, 0, one.key, one.value, ()) for i, one in enumerate(written)]
    data = bytes(build_batch(records, base_offset=0))
    found = rows("/d/__transaction_state-0/00000000000000000000.log", data, is_deep=True)
    key = {"type": "Transaction", "transactional_id": "transfers"}
    assert [row["key"] for row in found] == [key, key]
    value: Any = found[0]["value"]
    assert (value["state"], value["producer_id"]) == ("ONGOING", 7)
    assert value["partitions"] == [{"topic": "orders", "partition": 3}]
    assert found[1]["value"] is None


def test_small_files_show_their_fields() -> None:
    meta = encode_meta_properties(MetaProperties(1, "cluster", 3, TOPIC_ID))
    assert rows("meta.properties", meta) == [
        {
            "version": 1,
            "cluster_id": "cluster",
            "node_id": 3,
            "directory_id": "ABEiM0RVZneImaq7zN3u_w",
        }
    ]
    epochs = encode_leader_epochs([EpochEntry(2, 5)])  # type: ignore[arg-type]
    assert rows("leader-epoch-checkpoint", epochs) == [{"epoch": 2, "start_offset": 5}]


def test_a_file_that_is_not_kafkas_says_what_would_be() -> None:
    with pytest.raises(CliError, match="no file that Kafka writes"):
        rows("notes.txt", b"")


def test_damage_is_one_sentence_after_what_could_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(SEGMENT[:-5])
    assert run(["log", "dump", str(path), "-o", "jsonl"]) == 1
    captured = capsys.readouterr()
    assert captured.out.count("\n") == 1
    assert captured.err.count("\n") == 1
    assert "no whole batch" in captured.err


def test_an_empty_file_is_said_to_be_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "00000000000000000000.index"
    path.touch()
    assert run(["log", "dump", str(path)]) == 0
    assert capsys.readouterr().out == "(empty)\n"
