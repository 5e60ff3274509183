"""Measurements of Ottla beside Apache Kafka on one machine, in one run, under one load."""
