"""How triggers and delays are written: "10 seconds", "once", "available_now". Pure."""

from __future__ import annotations

import re

AVAILABLE_NOW = "available_now"

_UNITS = ("millisecond", "second", "minute", "hour", "day", "week")
_INTERVAL = re.compile(r"\s*\d+\s+([a-z]+?)s?\s*", re.IGNORECASE)


class IntervalError(ValueError):
    """What was written is not a length of time."""


def check_interval(text: str) -> str:
    """The text, if it is a number and a unit."""
    found = _INTERVAL.fullmatch(text)
    if found is None or found[1].lower() not in _UNITS:
        raise IntervalError(f"'{text}' is not a length of time, such as \"10 seconds\"")
    return text


def parse_trigger(text: str) -> dict[str, str | bool]:
    """The arguments of Spark's `trigger`."""
    if text == AVAILABLE_NOW:
        return {"availableNow": True}
    try:
        return {"processingTime": check_interval(text)}
    except IntervalError:
        raise IntervalError(
            f"'{text}' is not a trigger: write a length of time, such as \"1 second\", or "
            f'"{AVAILABLE_NOW}"'
        ) from None
