"""Spark's read limits and its AvailableNow mixin, or stand-ins for Spark 4.1, which has none.

Spark 4.1 calls `latestOffset()` without arguments: a query then reads all there is in each batch.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

_MODULE = "pyspark.sql.streaming.datasource"


class _NoLimits:
    """What the module would hold."""

    class ReadAllAvailable: ...

    class ReadMaxRows:
        def __init__(self, max_rows: int) -> None:
            self.max_rows = max_rows

    class ReadMinRows:
        def __init__(self, min_rows: int) -> None:
            self.min_rows = min_rows

    class SupportsTriggerAvailableNow: ...


_limits: Any = import_module(_MODULE) if find_spec(_MODULE) else _NoLimits

ReadAllAvailable: Any = _limits.ReadAllAvailable
ReadMaxRows: Any = _limits.ReadMaxRows
ReadMinRows: Any = _limits.ReadMinRows
SupportsTriggerAvailableNow: Any = _limits.SupportsTriggerAvailableNow
