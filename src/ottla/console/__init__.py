"""The web console: it reaches a cluster over the wire, so it serves Apache Kafka too."""
