"""A bank on transactions: what its topics hold, and what must be true of them at any time.

Requests to transfer lie in `bank-requests`. Workers of one group read them, and for each write a
debit and a credit to `bank-ledger`, in the partitions of the two accounts, and both to
`bank-book`, which has one partition. These and the offsets of the requests are one transaction.

A reader of one partition that has reached the last stable offset has seen transactions whole or
not at all, so every time it gets there the money in the book must add up. Partitions are read
at different moments; the ledger must add up once all requests are done, with every transfer
applied once.

Pure: records in, balances and complaints out.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

ACCOUNTS = 100
BALANCE_AT_FIRST = 1_000
REQUESTS, LEDGER, BOOK = "bank-requests", "bank-ledger", "bank-book"
PARTITIONS = {REQUESTS: 4, LEDGER: 4, BOOK: 1}
GROUP = "bank"
COMPLAINTS_MAX = 20


class Transfer(NamedTuple):
    number: int
    source: int
    target: int
    amount: int

    def encode(self) -> bytes:
        return ":".join(map(str, self)).encode()

    def legs(self) -> "tuple[Leg, Leg]":
        return (
            Leg(self.number, self.source, -self.amount),
            Leg(self.number, self.target, self.amount),
        )


class Leg(NamedTuple):
    """One half of a transfer: what it does to one account."""

    number: int
    account: int
    change: int

    def encode(self) -> bytes:
        return ":".join(map(str, self)).encode()

    @property
    def ledger_partition(self) -> int:
        return self.account % PARTITIONS[LEDGER]


def decode_transfer(data: bytes) -> Transfer:
    return Transfer(*map(int, data.split(b":")))


def decode_leg(data: bytes) -> Leg:
    return Leg(*map(int, data.split(b":")))


@dataclass
class Books:
    """The legs that a reader has seen so far."""

    legs: Counter[Leg] = field(default_factory=Counter)
    changes: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    halves: set[int] = field(default_factory=set)  # transfers of which an odd number was seen

    def add(self, leg: Leg) -> None:
        self.legs[leg] += 1
        self.changes[leg.account] += leg.change
        self.halves ^= {leg.number}

    def total(self) -> int:
        return sum(BALANCE_AT_FIRST + self.changes.get(n, 0) for n in range(ACCOUNTS))

    def complaints_now(self) -> list[str]:
        """What is wrong at a moment when all transactions are seen whole."""
        found = [f"transfer {n} is half done" for n in sorted(self.halves)]
        if self.total() != ACCOUNTS * BALANCE_AT_FIRST:
            found.append(f"{self.total()} instead of {ACCOUNTS * BALANCE_AT_FIRST}")
        return found[:COMPLAINTS_MAX]

    def complaints_at_the_end(
        self, asked: Mapping[int, Transfer], acknowledged: Set[int]
    ) -> list[str]:
        """What is wrong when every request has been done: each once, none of them not."""
        found = self.complaints_now()
        expected = {leg for number in acknowledged for leg in asked[number].legs()}
        found += [f"lost: {leg}" for leg in sorted(expected - set(self.legs))]
        for leg, count in sorted(self.legs.items()):
            if leg.number not in asked or leg not in asked[leg.number].legs():
                found.append(f"nobody asked for {leg}")
            elif count > 1:
                found.append(f"{count} times: {leg}")
        return found[:COMPLAINTS_MAX]
