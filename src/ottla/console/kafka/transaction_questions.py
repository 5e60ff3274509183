"""What coordinators know of transactions, and leaders of those who write them.

A coordinator or leader that cannot tell is named beside the answer: nothing found is only said of
what was looked at. Shell over `Brokers`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from ottla.client.errors import code_of
from ottla.console.kafka.brokers import Brokers
from ottla.console.kafka.model import Metadata, ProducerView, TransactionView
from ottla.console.kafka.questions import check, parts
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages import duration_ms, timestamp_ms

# Transactional ids per DescribeTransactions.
IDS_PER_REQUEST = 200


class Transactions(NamedTuple):
    found: list[TransactionView]
    troubles: dict[int, str]  # brokers that did not tell theirs, and why


class Producers(NamedTuple):
    found: list[ProducerView]
    asked: int  # partitions whose leader answered
    troubles: dict[int, str]  # brokers that did not tell theirs, and why
    untold: int  # partitions that nobody told of


class TransactionQuestions:
    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    async def transactions(
        self,
        metadata: Metadata,
        *,
        states: Sequence[str] = (),
        producer_ids: Collection[int] = (),
    ) -> Transactions:
        """The transactional ids that the coordinators know, with what each has open."""
        answer = Transactions([], {})
        fields = {
            "state_filters": list(states),
            "producer_id_filters": sorted(producer_ids),
            "duration_filter": -1,
        }
        await asyncio.gather(*(self._transactions_at(b, fields, answer) for b in metadata.brokers))
        return answer

    async def _transactions_at(
        self, broker_id: int, fields: dict[str, Any], answer: Transactions
    ) -> None:
        try:
            listed = await self._brokers.ask(broker_id, ApiKey.LIST_TRANSACTIONS, (0, 1), fields)
            check(listed.error_code)
            ids = [state.transactional_id for state in listed.transaction_states]
            for start in range(0, len(ids), IDS_PER_REQUEST):
                some = ids[start : start + IDS_PER_REQUEST]
                answer.found.extend(await self._described(broker_id, some))
        except KafkaError as error:
            answer.troubles[broker_id] = str(error)

    async def _described(self, broker_id: int, ids: Sequence[str]) -> list[TransactionView]:
        answer = await self._brokers.ask(
            broker_id, ApiKey.DESCRIBE_TRANSACTIONS, (0, 0), {"transactional_ids": ids}
        )
        return [
            TransactionView(
                state.transactional_id,
                state.producer_id,
                state.producer_epoch,
                state.transaction_state,
                duration_ms(state.transaction_timeout),
                -1
                if state.transaction_start_time is None
                else timestamp_ms(state.transaction_start_time),
                tuple((t.topic, index) for t in state.topics for index in t.partitions),
                broker_id,
            )
            for state in answer.transaction_states
            if state.error_code == ErrorCode.NONE
        ]

    async def producers(self, metadata: Metadata) -> Producers:
        """Every producer that a leader remembers, many partitions to a request."""
        by_leader: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for topic in metadata.topics.values():
            for partition in topic.partitions:
                if partition.leader in metadata.brokers:
                    by_leader[partition.leader][topic.name].append(partition.number)
        found: list[ProducerView] = []
        troubles: dict[int, str] = {}
        answers = await asyncio.gather(
            *(
                self._producers_of(leader, part, found, troubles)
                for leader, topics in by_leader.items()
                for part in parts(topics)
            )
        )
        total = sum(len(topic.partitions) for topic in metadata.topics.values())
        return Producers(found, sum(answers), troubles, total - sum(answers))

    async def _producers_of(
        self,
        leader: int,
        topics: dict[str, list[int]],
        found: list[ProducerView],
        troubles: dict[int, str],
    ) -> int:
        wanted = [{"name": name, "partition_indexes": some} for name, some in topics.items()]
        try:
            answer = await self._brokers.ask(
                leader, ApiKey.DESCRIBE_PRODUCERS, (0, 0), {"topics": wanted}
            )
        except KafkaError as error:
            troubles[leader] = str(error)
            return 0
        told = 0
        for topic in answer.topics:
            for p in topic.partitions:
                if p.error_code != ErrorCode.NONE:
                    troubles[leader] = p.error_message or code_of(p.error_code).name
                    continue
                told += 1
                found += [
                    ProducerView(
                        topic.name,
                        p.partition_index,
                        state.producer_id,
                        state.producer_epoch,
                        state.last_sequence,
                        state.last_timestamp,
                        state.current_txn_start_offset,
                    )
                    for state in p.active_producers
                ]
        return told
