"""The pipeline of the demo: orders, totalled per customer in windows of ten seconds."""

import os

from ottla.spark.pipelines.builder import Pipeline

ORDERS_TOPIC = "orders"
TOTALS_TOPIC = "order-totals"
PARTITIONS = 3

pipeline = (
    Pipeline(
        "demo",
        bootstrap=os.environ.get("OTTLA_BROKERS", "127.0.0.1:9092"),
        description="Orders, totalled per customer in windows of ten seconds",
    )
    .source(
        "orders",
        topic=ORDERS_TOPIC,
        format="json",
        schema="order BIGINT, customer STRING, amount DOUBLE, at TIMESTAMP",
        starting="latest",
        watermark=("at", "10 seconds"),
    )
    .sql(
        "totals",
        """
        SELECT customer, date_format(w.start, 'HH:mm:ss') AS since, orders, total FROM (
          SELECT window(at, '10 seconds') AS w, customer, count(*) AS orders,
            round(sum(amount), 2) AS total
          FROM orders GROUP BY window(at, '10 seconds'), customer
        )
        """,
    )
    .sink("totals", topic=TOTALS_TOPIC, key="customer", output_mode="update", create=PARTITIONS)
)
