"""What a group asks of its shell: answers to send, and records to commit. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, NamedTuple, TypeAlias

from ottla.coordinators.group.members import Waiter
from ottla.coordinators.group.records import GroupMetadata

Fields: TypeAlias = Mapping[str, Any]


class Moment(NamedTuple):
    """One instant on both clocks: deadlines follow the first, what is stored shows the second."""

    monotonic_ms: int
    wall_ms: int


class Purpose(Enum):
    """Why a generation is written."""

    ASSIGNMENT = auto()  # the leader has assigned; the group becomes stable
    STATIC_MEMBER = auto()  # a static member came back under a new id, without a rebalance
    EMPTIED = auto()  # the last member is gone


class Replacement(NamedTuple):
    """A static member under its new id, and how it is to be told."""

    member_id: str
    previous_leader: str | None
    can_skip_assignment: bool


@dataclass(slots=True)
class GroupWrite:
    """Commit `metadata`, then tell the group; `waiter` gets `response` after that, or an error."""

    purpose: Purpose
    metadata: GroupMetadata
    waiter: Waiter | None = None
    response: Fields | None = None
    replacement: Replacement | None = None


@dataclass(slots=True)
class Effects:
    replies: list[tuple[Waiter, Fields]] = field(default_factory=list)
    writes: list[GroupWrite] = field(default_factory=list)

    def reply(self, waiter: Waiter, response: Fields) -> None:
        self.replies.append((waiter, response))
