"""What a file of a log directory shows, whole and damaged."""

from collections.abc import Iterator
from uuid import UUID

import pytest

from ottla.cli.errors import CliError
from ottla.cli.log_files import DamagedFileError, rows_of
from ottla.cli.main import run
from ottla.metadata.records import TopicRecord, encode_record
from ottla.protocol.batches import Record, build_batch
from ottla.protocol.codecs import Codec
from ottla.storage.core.leader_epochs import EpochEntry
from ottla.storage.core.offset_index import OffsetIndex
from ottla.storage.core.time_index import TimeIndex
from ottla.storage.files.checkpoint import encode_leader_epochs
from ottla.storage.files.meta_properties import MetaProperties, encode_meta_properties

DIRECTORY = "/data/orders-0"
TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")


def rows(name: str, data: bytes, **options: bool) -> list[dict[str, object]]:
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
    found = rows("/d/x/00000000000000000000.log", data, is_deep=True, is_metadata=True)
    assert found[0]["value"] == expected
    found = rows("/d/x/00000000000000000000.log", data, is_deep=True)
    assert found[0]["key"] == "k"


def test_indexes_show_their_entries() -> None:
    offsets = OffsetIndex(10, index_bytes_max=80)  # type: ignore[arg-type]
    for offset, position in ((12, 100), (15, 900)):
        offsets.append(offset, position)  # type: ignore[arg-type]
    unused = bytes(16)
    assert rows("00000000000000000010.index", offsets.data + unused) == [
        {"offset": 12, "position": 100},
        {"offset": 15, "position": 900},
    ]
    times = TimeIndex(10, index_bytes_max=120)  # type: ignore[arg-type]
    times.maybe_append(1_700_000_000_000, 12)  # type: ignore[arg-type]
    assert rows("00000000000000000010.timeindex", times.data + bytes(24)) == [
        {"timestamp": "2023-11-14T22:13:20.000Z", "timestamp_ms": 1_700_000_000_000, "offset": 12}
    ]


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
    tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    from pathlib import Path

    path = Path(str(tmp_path)) / "00000000000000000000.log"
    path.write_bytes(SEGMENT[:-5])
    assert run(["log", "dump", str(path), "-o", "jsonl"]) == 1
    captured = capsys.readouterr()
    assert captured.out.count("\n") == 1
    assert captured.err.count("\n") == 1
    assert "no whole batch" in captured.err


def test_an_empty_file_is_said_to_be_empty(
    tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    from pathlib import Path

    path = Path(str(tmp_path)) / "00000000000000000000.index"
    path.touch()
    assert run(["log", "dump", str(path)]) == 0
    assert capsys.readouterr().out == "(empty)\n"
