"""What a controller decides: records to commit, and the response once they are. Pure."""

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from ottla.metadata.records import MetadataRecord

T = TypeVar("T")


class Decision(NamedTuple, Generic[T]):
    """`response` may be sent only after `records`, if any, are committed."""

    records: Sequence[MetadataRecord]
    response: T
