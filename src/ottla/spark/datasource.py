"""`format("ottla")`: the one class that Spark knows, for reading and for writing.

It is found by the module `pyspark_ottla` without being registered, or by `ottla.spark.register`.
Options are looked at when the schema is asked for, so that a wrong one fails at `load()`.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from ottla.spark.options import SourceOptions, parse_source_options
from ottla.spark.schema import spark_schema
from ottla.spark.worker_process import tell_unknown


class OttlaDataSource(DataSource):
    """Topics of Ottla or Apache Kafka as DataFrames."""

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> StructType:
        return spark_schema(include_headers=self._source_options().include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        from ottla.spark.source import OttlaBatchReader, OttlaFilteringReader

        options = self._source_options()
        return (
            OttlaFilteringReader(options) if options.pushes_filters else OttlaBatchReader(options)
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from ottla.spark.source import OttlaStreamReader

        return OttlaStreamReader(self._source_options())

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        from ottla.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        from ottla.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)

    def _source_options(self) -> SourceOptions:
        options = parse_source_options(self.options)
        tell_unknown(options.client)
        return options
