"""What befalls the broker, and when: kill -9, SIGSTOP, clean restarts, and times of peace.

The order comes from a seed; about a quarter of the periods is peaceful, so that work gets done
and timeouts run out undisturbed. Some pauses are longer than clients and transactions wait.

Owned by one thread, which leaves the broker running.
"""

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from bench.brokers import BrokerProcess

GAP_S = (1.0, 3.5)
DOWN_S = (0.0, 2.0)
PAUSE_S = (1.0, 3.0)  # some longer than a request may take, shorter than a delivery
LONG_PAUSE_S = (5.0, 8.0)
PEACE_S = (2.0, 4.0)


class Fault(StrEnum):
    KILL = "kill -9"
    PAUSE = "SIGSTOP"
    LONG_PAUSE = "long SIGSTOP"
    RESTART = "restart"
    PEACE = "peace"


# Shuffled like cards: chance alone would leave out one or the other for minutes.
DECK = (
    *(Fault.KILL,) * 3,
    *(Fault.PAUSE,) * 4,
    Fault.LONG_PAUSE,
    *(Fault.RESTART,) * 2,
    *(Fault.PEACE,) * 3,
)
HOLDS = {
    Fault.KILL: DOWN_S,
    Fault.PAUSE: PAUSE_S,
    Fault.LONG_PAUSE: LONG_PAUSE_S,
    Fault.RESTART: DOWN_S,
    Fault.PEACE: PEACE_S,
}


@dataclass(frozen=True)
class Incident:
    fault: Fault
    gap_s: float
    hold_s: float


def incidents(seed: int) -> Iterator[Incident]:
    """Without end; first a kill and a pause, so that a short run has both."""
    chance = random.Random(f"faults/{seed}")
    yield Incident(Fault.KILL, 3.0, 0.5)
    yield Incident(Fault.PAUSE, 3.0, 2.2)
    while True:
        for fault in chance.sample(DECK, len(DECK)):
            yield Incident(fault, chance.uniform(*GAP_S), chance.uniform(*HOLDS[fault]))


class Nemesis:
    def __init__(self, broker: BrokerProcess, seed: int) -> None:
        self.counts: Counter[Fault] = Counter()
        self.failure: Exception | None = None
        self._broker, self._seed = broker, seed

    def run(self, stop: threading.Event) -> None:
        """Until told to stop, or until the broker does not come back, which is a failure."""
        try:
            for incident in incidents(self._seed):
                if stop.wait(incident.gap_s):
                    return
                self._befall(incident, stop)
                self.counts[incident.fault] += 1
        except Exception as error:  # noqa: BLE001 - raised again by whoever joins the thread
            self.failure = error
            stop.set()

    def _befall(self, incident: Incident, stop: threading.Event) -> None:
        broker = self._broker
        if broker.exit_code() is not None:
            raise RuntimeError(f"the broker ended by itself: {broker.exit_code()}")
        if incident.fault is Fault.PEACE:
            stop.wait(incident.hold_s)
        elif incident.fault in (Fault.PAUSE, Fault.LONG_PAUSE):
            os.kill(broker.pid, signal.SIGSTOP)
            try:
                stop.wait(incident.hold_s)
            finally:
                os.kill(broker.pid, signal.SIGCONT)
        else:
            broker.kill() if incident.fault is Fault.KILL else broker.stop()
            stop.wait(incident.hold_s)
            broker.start()
