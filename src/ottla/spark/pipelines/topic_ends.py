"""How far a query is behind by now: where its topics end when Spark reports a micro-batch.

Spark's own report says where they ended when the micro-batch was planned, which takes all there was
by then: by that account a query is never behind. What came while it ran is what people call lag.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from ottla.client import LATEST, Client, TopicPartition, list_offsets
from ottla.protocol.errors import KafkaError
from ottla.spark.options import SourceOptions, parse_source_options
from ottla.spark.pipelines.definition import Definition, SourceKind
from ottla.spark.pipelines.spark_options import source_options
from ottla.spark.pipelines.status import offsets_of
from ottla.spark.worker_process import client_of

_ANSWER_WITHIN_MS = 1000  # reports wait for it

logger = logging.getLogger(__name__)


class TopicEnds:
    """Asks the clusters that a pipeline reads from. Owned by the thread that watches it."""

    def __init__(self, definition: Definition) -> None:
        self._read: dict[str, dict[str, SourceOptions]] = {
            sink.name: {
                source.topic: parse_source_options(source_options(definition, source, sink.name))
                for source in definition.needed_by(sink)[0]
                if source.kind is SourceKind.TOPIC and source.topic is not None
            }
            for sink in definition.sinks
        }

    def put_into(self, query: str, progress: dict[str, Any]) -> None:
        """Let the report say where topics end now; as it was if they cannot be asked."""
        read = self._read.get(query, {})
        for source in progress.get("sources") or []:
            ends = offsets_of(source.get("endOffset"))
            if not ends or not ends.keys() <= read.keys():
                continue
            options = read[next(iter(ends))]
            try:
                now = ends_of(client_of(options.client), ends, options.client.is_read_committed)
            except KafkaError as error:
                logger.info("where topics of %s end cannot be asked: %s", query, error)
                continue
            source["latestOffset"] = json.dumps(now)


def ends_of(
    client: Client, partitions: Mapping[str, Mapping[str, int]], is_read_committed: bool
) -> dict[str, dict[str, int]]:
    """Where these partitions end, by topic and partition."""
    wanted = {
        TopicPartition(topic, int(number)): LATEST
        for topic, numbers in partitions.items()
        for number in numbers
    }
    found = list_offsets(
        client, wanted, is_read_committed=is_read_committed, timeout_ms=_ANSWER_WITHIN_MS
    )
    return {
        topic: {
            number: max(offset, found[TopicPartition(topic, int(number))].offset)
            for number, offset in numbers.items()
        }
        for topic, numbers in partitions.items()
    }
