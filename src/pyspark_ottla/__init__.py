"""How Spark finds `format("ottla")`: in modules named `pyspark_*` it looks for a DefaultSource."""

from ottla.spark.datasource import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
