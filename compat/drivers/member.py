"""What every Python member of a group shares; compat/groups.py says what is asked."""

import json
import sys
import threading
from collections.abc import Iterable
from typing import Any


def asked() -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(sys.stdin.readline())
    return fields


def stop_signal() -> threading.Event:
    """Set when another line comes, or nobody is there to send one."""
    is_over = threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        is_over.set()

    threading.Thread(target=listen, daemon=True).start()
    return is_over


class Reporter:
    """Says what changed, and nothing twice."""

    def __init__(self) -> None:
        self._assigned: list[int] | None = None

    def assigned(self, partitions: Iterable[int]) -> None:
        now = sorted(partitions)
        if now != self._assigned:
            self._assigned = now
            _say({"assigned": now})

    def records(self, places: list[tuple[int, int]]) -> None:
        if places:
            _say({"records": places})

    def stopped(self) -> None:
        _say({"stopped": True})


def _say(event: dict[str, Any]) -> None:
    print(json.dumps(event), flush=True)
