"""Spark: a data source and an exactly-once sink for topics, and pipelines made of them."""
