"""Records declared in kio's style: null structs, tagged fields, ids, times."""

import datetime
from dataclasses import dataclass, field
from io import BytesIO
from typing import ClassVar
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_writer
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32, i32Timedelta, i64

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records import decode_entity, encode_entity


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(1)
    __flexible__: ClassVar[bool] = True
    host: str | None = field(metadata={"kafka_type": "string"})
    port: i32 = field(metadata={"kafka_type": "int32"}, default=i32(9092))


@dataclass(frozen=True, slots=True, kw_only=True)
class ThingRecord:
    __type__: ClassVar = EntityType.data
    __version__: ClassVar[i16] = i16(1)
    __flexible__: ClassVar[bool] = True
    thing_id: UUID | None = field(metadata={"kafka_type": "uuid"})
    replicas: tuple[i32, ...] | None = field(metadata={"kafka_type": "int32"})
    directories: tuple[UUID | None, ...] = field(
        metadata={"kafka_type": "uuid", "tag": 1}, default=()
    )
    place: Place | None = field(default=None)
    places: tuple[Place, ...] = field(default=())
    leader: i64 = field(metadata={"kafka_type": "int64", "tag": 0}, default=i64(-1))
    wait: i32Timedelta = field(metadata={"kafka_type": "timedelta_i32"})
    state: i8 = field(metadata={"kafka_type": "int8", "tag": 300}, default=i8(0))


ids = st.none() | st.integers(1, 2**128 - 1).map(lambda number: UUID(int=number))
int32s = st.integers(-(2**31), 2**31 - 1)
places = st.builds(Place, host=st.none() | st.text(max_size=9), port=int32s)
things = st.builds(
    ThingRecord,
    thing_id=ids,
    replicas=st.none() | st.lists(int32s, max_size=9).map(tuple),
    directories=st.lists(ids, max_size=3).map(tuple),
    place=st.none() | places,
    places=st.lists(places, max_size=3).map(tuple),
    leader=st.integers(-1, 2**63 - 1),
    wait=int32s.map(lambda ms: datetime.timedelta(milliseconds=ms)),
    state=st.integers(-128, 127),
)


@given(things)
def test_a_record_has_kios_bytes_and_survives(thing: ThingRecord) -> None:
    buffer = BytesIO()
    entity_writer(ThingRecord)(buffer, thing)
    data = encode_entity(thing)
    assert data == buffer.getvalue()
    assert decode_entity(ThingRecord, data) == thing
    assert decode_entity(ThingRecord, bytearray(data + b"later")) == thing
    assert hash(decode_entity(ThingRecord, data)) == hash(thing)


@given(things, st.data())
def test_a_record_cut_short_is_corrupt(thing: ThingRecord, data: st.DataObject) -> None:
    encoded = encode_entity(thing)
    end = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(KafkaError) as caught:
        decode_entity(ThingRecord, memoryview(encoded)[:end])
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRecord:
    __type__: ClassVar = EntityType.data
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    place: Place | None = field(metadata={"tag": 0}, default=None)


def test_a_tagged_struct_that_may_be_null_is_marked_as_kafka_marks_it() -> None:
    # kio has no such field; ConsumerGroupMemberMetadataValue of Kafka's offsets topic has.
    full = MemberRecord(place=Place(host="h", port=i32(1)))
    assert encode_entity(full) == b"\1\0\x08" + b"\1" + b"\2h\0\0\0\1\0"
    assert decode_entity(MemberRecord, encode_entity(full)) == full
    empty = MemberRecord(place=None)
    assert encode_entity(empty) == b"\0"
    assert decode_entity(MemberRecord, b"\0") == decode_entity(MemberRecord, b"\1\0\1\0") == empty
