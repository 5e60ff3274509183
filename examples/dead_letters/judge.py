"""Which orders are good, and what is wrong with the others."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f


def judged(orders: DataFrame) -> DataFrame:
    """Every order with the topic that it goes to and, as a header, why."""
    reason = (
        f.when(f.col("_malformed"), "not an order in JSON")
        .when(f.col("customer").isNull(), "no customer")
        .when(f.col("amount") <= 0, "the amount is not positive")
    )
    header = f.array(f.struct(f.lit("reason").alias("key"), reason.cast("binary").alias("value")))
    return (
        orders.withColumn(
            "goes_to", f.when(reason.isNull(), "orders-good").otherwise("orders-dead")
        )
        .withColumn("headers", f.when(reason.isNotNull(), header))
        .select("_key", "_value", "goes_to", "headers")
    )
