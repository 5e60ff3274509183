"""The loop that every Python driver shares: scenario in, steps performed, results out."""

import json
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, Protocol

STEP_S_MAX = 20.0  # a consumer that is still short of records by then reports what it has

Step = dict[str, Any]


class NotOffered(Exception):
    """The client has no such call."""


class Client(Protocol):
    """One method per kind of step; each returns the value that scenario.py describes."""

    name: str

    def close(self) -> None: ...


def run(make: Callable[[str, str], Client]) -> None:
    """Perform the scenario on stdin with the client that `make(bootstrap, topic)` returns."""
    scenario = json.load(sys.stdin)
    client = make(scenario["bootstrap"], scenario["topic"])
    print(json.dumps({"client": client.name}), flush=True)
    delivered = 0
    for step in scenario["steps"]:
        if "count" in step and "consume" in step["op"]:
            step["count"] = delivered  # codecs that the client lacks were not produced
        result = _perform(client, step)
        if step["op"] == "produce":
            delivered += result.get("value", 0)
        print(json.dumps({"step": step["name"], **result}), flush=True)
    client.close()


def _perform(client: Client, step: Step) -> dict[str, Any]:
    method = getattr(client, step["op"], None)
    if method is None:
        return {"skipped": f"{client.name} has no call for {step['op']}"}
    try:
        return {"value": method(step)}
    except NotOffered as reason:
        return {"skipped": str(reason)}
    except Exception as error:  # noqa: BLE001 - whatever the client raises is the result
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}


def until(condition: Callable[[], bool], *, timeout_s: float = STEP_S_MAX) -> bool:
    """Ask again every 50 ms; whether the condition held before the time was over."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def raw(value: str | None) -> bytes | None:
    return None if value is None else value.encode()


def in_log_order(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(records, key=lambda record: (record["partition"], record["offset"]))
