"""WriteTxnMarkers: the end of transactions, for partitions that this broker leads.

Versions 1 and 2. Coordinators send it; so does an administrator who aborts a transaction that no
coordinator knows (kafka-transactions abort). From 2 on it says by which version of transactions its
epoch is to be judged (KIP-1228).
"""

import asyncio
from functools import partial
from typing import Any

from ottla.coordinators.runtime import EndMarker
from ottla.protocol.errors import ErrorCode
from ottla.protocol.ids import TopicPartition
from ottla.protocol.messages import given
from ottla.server.dispatch import Call, Fields
from ottla.server.services import Services


async def handle(services: Services, call: Call, request: Any) -> Fields:
    waiting: list[asyncio.Future[ErrorCode]] = []
    # Markers of one producer are answered together, as the response has no other place.
    by_producer: dict[int, dict[TopicPartition, asyncio.Future[ErrorCode]]] = {}
    for one in request.markers:
        marker = EndMarker(
            one.producer_id,
            one.producer_epoch,
            one.coordinator_epoch,
            one.transaction_result,
            given(one, "transaction_version", 0),
        )
        results = by_producer.setdefault(one.producer_id, {})
        for topic in one.topics:
            for index in topic.partition_indexes:
                future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
                at = TopicPartition(topic.name, index)
                services.markers.write(marker, at, partial(_settle, future))
                results[at] = future
                waiting.append(future)
    if waiting:
        await asyncio.wait(waiting)
    return {
        "markers": [
            {"producer_id": producer_id, "topics": _topics(results)}
            for producer_id, results in by_producer.items()
        ]
    }


def _settle(future: "asyncio.Future[ErrorCode]", code: ErrorCode) -> None:
    if not future.done():
        future.set_result(code)


def _topics(results: dict[TopicPartition, "asyncio.Future[ErrorCode]"]) -> list[Fields]:
    topics: dict[str, list[Fields]] = {}
    for at, future in results.items():
        answer = {"partition_index": at.partition, "error_code": future.result()}
        topics.setdefault(at.topic, []).append(answer)
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
