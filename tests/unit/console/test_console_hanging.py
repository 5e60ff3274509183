"""Hanging transactions: leaders first, coordinators after, and only what is old enough."""

import asyncio
from typing import Any

from ottla.client import Unreachable
from ottla.console.hanging import find_hanging, suspected, unknown
from ottla.console.kafka.model import (
    BrokerView,
    Metadata,
    PartitionView,
    ProducerView,
    TopicView,
    TransactionView,
)
from ottla.console.kafka.questions import PARTITIONS_PER_REQUEST
from ottla.console.kafka.transaction_questions import (
    Producers,
    TransactionQuestions,
    Transactions,
)
from ottla.protocol.api import ApiKey

AGE_MS_MIN = 900_000
NOW_MS = 100 * AGE_MS_MIN
OLD_MS = NOW_MS - AGE_MS_MIN - 1


def producer(partition: int, producer_id: int, *, at_ms: int = OLD_MS, start: int = 40) -> Any:
    return ProducerView("t", partition, producer_id, 0, 5, at_ms, start)


def test_a_transaction_hangs_where_its_coordinator_does_not_know_it() -> None:
    suspects = [producer(0, 11), producer(1, 11), producer(0, 12)]
    known = [TransactionView("x", 11, 0, "Ongoing", 60_000, 1, (("t", 0), ("other", 1)), 1)]
    found = [(one.partition, one.producer_id) for one in unknown(suspects, known)]
    assert found == [(1, 11), (0, 12)]


def test_what_is_young_or_closed_is_not_suspected() -> None:
    given = [producer(0, 1), producer(0, 2, at_ms=NOW_MS - 1000), producer(0, 3, start=-1)]
    assert [one.producer_id for one in suspected(given, NOW_MS - AGE_MS_MIN)] == [1]


class Asked(TransactionQuestions):
    """Remembers the order of the questions."""

    def __init__(self, producers: Producers, transactions: Transactions) -> None:
        self.told = producers
        self.known = transactions
        self.order: list[object] = []

    async def producers(self, metadata: Metadata) -> Producers:
        self.order.append("leaders")
        return self.told

    async def transactions(self, metadata: Metadata, **more: Any) -> Transactions:
        self.order.append(more["producer_ids"])
        return self.known


def search(asked: Asked) -> Any:
    metadata = Metadata("c", 1, {}, {})
    return asyncio.run(find_hanging(asked, metadata, now_ms=NOW_MS, age_ms_min=AGE_MS_MIN))


def test_coordinators_are_asked_after_the_leaders_and_only_about_suspects() -> None:
    asked = Asked(
        Producers([producer(0, 7), producer(0, 8, start=-1)], 2, {}, 0), Transactions([], {})
    )
    assert [one.producer_id for one in search(asked).found] == [7]
    assert asked.order == ["leaders", {7}]


def test_nothing_suspected_asks_no_coordinator() -> None:
    asked = Asked(Producers([], 12, {}, 0), Transactions([], {}))
    assert (search(asked).partition_count, asked.order) == (12, ["leaders"])


def test_a_coordinator_that_is_away_accuses_nobody() -> None:
    asked = Asked(Producers([producer(0, 7)], 2, {}, 0), Transactions([], {3: "away"}))
    found = search(asked)
    assert (found.found, found.troubles) == ([], {3: "away"})


class Cluster:
    """Two leaders, one of which does not answer."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, ApiKey, int]] = []

    async def ask(self, broker_id: int, api: ApiKey, spoken: object, fields: Any) -> Any:
        partitions = sum(len(one["partition_indexes"]) for one in fields["topics"])
        self.asked.append((broker_id, api, partitions))
        if broker_id == 2:
            raise Unreachable("broker 2 is away")

        class Answer:
            def __init__(self, **fields: Any) -> None:
                self.__dict__.update(fields)

        state = Answer(
            producer_id=9, producer_epoch=0, last_sequence=1, last_timestamp=5,
            current_txn_start_offset=3,
        )  # fmt: skip
        return Answer(
            topics=[
                Answer(
                    name=one["name"],
                    partitions=[
                        Answer(
                            partition_index=p, error_code=0, error_message=None,
                            active_producers=[state] if one["name"] == "t0" else [],
                        )
                        for p in one["partition_indexes"]
                    ],
                )
                for one in fields["topics"]
            ]
        )  # fmt: skip


def test_every_partition_is_asked_for_many_to_a_request_and_one_leader_away_is_told() -> None:
    count = 2 * PARTITIONS_PER_REQUEST
    topics = {
        f"t{n}": TopicView(
            f"t{n}", "1", False, (PartitionView(0, 1 if n < count - 3 else 2, 0, (1,), (1,), ()),)
        )
        for n in range(count)
    }
    metadata = Metadata("c", 1, {n: BrokerView(n, "h", 1, None) for n in (1, 2)}, topics)
    cluster = Cluster()
    told = asyncio.run(TransactionQuestions(cluster).producers(metadata))  # type: ignore[arg-type]
    assert [(one.topic, one.producer_id) for one in told.found] == [("t0", 9)]
    assert (told.asked, told.untold, told.troubles) == (count - 3, 3, {2: "broker 2 is away"})
    assert len(cluster.asked) == 3
