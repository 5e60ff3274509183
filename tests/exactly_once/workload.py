"""What workers are asked to do: unique values, alone, in a row, or in transactions.

A plan is drawn from a seed; what becomes of it is up to clients, broker and faults. Some values are
sent to one partition without waiting for those before them: a batch each, as many in flight as a
client may have. A transaction has one to four steps. Values are unique across the run: a worker
counts within its own range. Now and then a transaction is aborted on purpose, or is overtaken:
before it commits, a rival takes its transactional id and sends a value in a transaction of its own.
The commit must then fail, and must not commit the rival's, which aborts.

Pure: a seed in, plans out.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from exactly_once.history import Key

KEYS = 8
PARTITIONS_PER_TOPIC = 2
STEPS_MAX = 4
PIPELINED = (10, 60)
VALUES_PER_WORKER = 10_000_000
ABORT_CHANCE = 1 / 12
OVERTAKE_CHANCE = 1 / 40
ASSIGN_CHANCE = 1 / 64


def topic_of(key: Key) -> str:
    return f"history-{key // PARTITIONS_PER_TOPIC}"


def partition_of(key: Key) -> int:
    return key % PARTITIONS_PER_TOPIC


def key_of(topic: str, partition: int) -> Key:
    return int(topic.rsplit("-", 1)[1]) * PARTITIONS_PER_TOPIC + partition


TOPICS = tuple(dict.fromkeys(topic_of(key) for key in range(KEYS)))


class Kind(StrEnum):
    SEND = "send"
    PIPELINE = "pipeline"
    POLL = "poll"
    TRANSACTION = "transaction"
    ASSIGN = "assign"


@dataclass(frozen=True)
class PlannedSend:
    key: Key
    value: int


@dataclass(frozen=True)
class PlannedPoll:
    pass


@dataclass(frozen=True)
class Plan:
    kind: Kind
    steps: tuple[PlannedSend | PlannedPoll, ...] = ()
    keys: tuple[Key, ...] = ()
    abort_before: int | None = None  # which step is not reached; as many as there are: the commit
    rival: PlannedSend | None = None  # what another producer of the same id sends before the commit


def plans(seed: int, worker: int) -> Iterator[Plan]:
    """What one worker does, without end."""
    chance = random.Random(f"{seed}/{worker}")
    value = worker * VALUES_PER_WORKER

    def send() -> PlannedSend:
        nonlocal value
        value += 1
        return PlannedSend(chance.randrange(KEYS), value)

    while True:
        if chance.random() < ASSIGN_CHANCE:
            count = chance.randint(KEYS // 2, KEYS)
            yield Plan(Kind.ASSIGN, keys=tuple(sorted(chance.sample(range(KEYS), count))))
            continue
        dice = chance.random()
        if dice < 0.15:
            yield Plan(Kind.SEND, (send(),))
        elif dice < 0.45:
            first = send()
            others = [replace(send(), key=first.key) for _ in range(chance.randint(*PIPELINED) - 1)]
            yield Plan(Kind.PIPELINE, (first, *others))
        elif dice < 0.55:
            yield Plan(Kind.POLL, (PlannedPoll(),))
        else:
            steps = tuple(
                send() if chance.random() < 0.6 else PlannedPoll()
                for _ in range(chance.randint(1, STEPS_MAX))
            )
            abort = chance.randint(0, len(steps)) if chance.random() < ABORT_CHANCE else None
            is_overtaken = abort is None and chance.random() < OVERTAKE_CHANCE
            rival = send() if is_overtaken else None
            yield Plan(Kind.TRANSACTION, steps, abort_before=abort, rival=rival)
