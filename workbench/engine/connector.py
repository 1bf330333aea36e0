"""`format("tidemark")`: any stream of a log as a DataFrame, any DataFrame into a stream, in batches and as they come.

register(spark)
spark.read.format("tidemark").option("path", "var/log").option("stream", "flights").load()
frame.write.format("tidemark").mode("append").options(path="var/log", stream="flights", partitions=4).save()
"""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from workbench.engine.connector_options import FORMAT, ReadOptions, WriteOptions, short_errors
from workbench.engine.connector_read import BatchReader, StreamReader, schema_of
from workbench.engine.connector_write import BatchWriter, StreamWriter


class TidemarkSource(DataSource):
    """Streams of a log. For the options see `ReadOptions` and `WriteOptions`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        with short_errors():
            return schema_of(ReadOptions.parsed(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        with short_errors():
            return BatchReader(ReadOptions.parsed(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        with short_errors():
            return StreamReader(ReadOptions.parsed(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        with short_errors():
            return BatchWriter(WriteOptions.parsed(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        with short_errors():
            return StreamWriter(WriteOptions.parsed(self.options), schema, overwrite)


def register(spark: SparkSession) -> None:
    """Make `format("tidemark")` known to a session; a second call changes nothing."""
    try:
        spark.dataSource.register(TidemarkSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
