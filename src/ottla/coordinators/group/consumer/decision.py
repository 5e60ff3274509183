"""What is decided about a consumer group: records, an answer, deadlines. Pure.

The answer may be sent and the deadlines set only once the log has committed the records.
"""

from dataclasses import dataclass, field

from ottla.coordinators.group.consumer.timers import TimerChange
from ottla.coordinators.group.effects import Fields
from ottla.coordinators.group.records import CoordinatorRecord


@dataclass(slots=True)
class Decision:
    records: list[CoordinatorRecord] = field(default_factory=list)
    response: Fields | None = None
    timers: list[TimerChange] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)  # members whose deadlines are void
    handed_out: str | None = None  # an id for a classic member, who shall join with it
    is_metadata_fresh: bool = False  # the topics were looked at
    becomes_classic: bool = False
    needs_rebalance: bool = False  # of the classic group that it becomes
