"""When everything that was begun has ended: no partition is held back by an open transaction."""

import time
from collections.abc import Collection

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

STABLE_S_MAX = 60.0

Place = tuple[str, int]  # topic, partition


def _ends(admin: AdminClient, places: Collection[Place], level: IsolationLevel) -> dict[Place, int]:
    wanted = {TopicPartition(*place): OffsetSpec.latest() for place in places}
    found = admin.list_offsets(wanted, isolation_level=level, request_timeout=10)
    return {(at.topic, at.partition): one.result(20).offset for at, one in found.items()}


def await_stable(bootstrap: str, places: Collection[Place]) -> dict[Place, tuple[int, int]]:
    """Wait until the last stable offset is the end; where it never is, both of them."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    deadline = time.monotonic() + STABLE_S_MAX
    while True:
        stable = _ends(admin, places, IsolationLevel.READ_COMMITTED)
        all_of_it = _ends(admin, places, IsolationLevel.READ_UNCOMMITTED)
        held = {at: (stable[at], all_of_it[at]) for at in stable if stable[at] != all_of_it[at]}
        if not held or time.monotonic() > deadline:
            return held
        time.sleep(0.5)
