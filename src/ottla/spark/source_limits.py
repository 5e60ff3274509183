"""Spark's read limits and its AvailableNow mixin, or stand-ins for Spark 4.1, which has none.

Spark 4.1 calls `latestOffset()` without arguments: a query then reads all there is in each batch.
"""

import logging
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ottla.spark.options import SourceOptions

logger = logging.getLogger(__name__)

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


HAS_LIMITS = find_spec(_MODULE) is not None
_limits: Any = import_module(_MODULE) if HAS_LIMITS else _NoLimits

ReadAllAvailable: Any = _limits.ReadAllAvailable
ReadMaxRows: Any = _limits.ReadMaxRows
ReadMinRows: Any = _limits.ReadMinRows
SupportsTriggerAvailableNow: Any = _limits.SupportsTriggerAvailableNow


def warn_of_limits(options: SourceOptions) -> None:
    """Say that a limit has no effect, where Spark does not ask for any."""
    if not HAS_LIMITS and (options.max_offsets_per_trigger or options.min_offsets_per_trigger):
        logger.warning(
            "maxOffsetsPerTrigger and minOffsetsPerTrigger have no effect: this Spark gives Python "
            "sources no limits, and reads all there is in each micro-batch. Use Spark 4.2 or newer."
        )
