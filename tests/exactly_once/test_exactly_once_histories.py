"""Clients under faults: what they were told and what they read hold nothing that may not be.

OTTLA_HISTORY_S says for how long (120 s in `make test`), OTTLA_SEED which plans and faults,
OTTLA_HISTORY_BROKER=kafka which broker. A history that is bad is left in `.cache/exactly_once`.
"""

import os
from pathlib import Path

import pytest
from bench.brokers import Kind, Missing

from exactly_once import history
from exactly_once.conftest import Report
from exactly_once.run import run

SECONDS = float(os.environ.get("OTTLA_HISTORY_S", "120"))
SEED = int(os.environ.get("OTTLA_SEED", "1"))
BROKER = Kind(os.environ.get("OTTLA_HISTORY_BROKER", Kind.OTTLA))
# Far below what any machine does: a run that hardly did anything proves nothing.
OPERATIONS_PER_S_MIN = 2


@pytest.mark.timeout(SECONDS + 400)
@pytest.mark.parametrize("clients", ["librdkafka", "java"])
def test_histories_hold_no_anomaly(
    clients: str, tmp_path: Path, kept: Path, report: Report
) -> None:
    try:
        result = run(BROKER, tmp_path, seed=SEED, seconds=SECONDS, with_java=clients == "java")
    except Missing as reason:
        pytest.skip(f"{clients}: {reason}")
    name = f"history-{BROKER}-{clients}-{SEED}"
    summary = f"seed {SEED}, {SECONDS:.0f} s: {result.summary()}"
    if result.verdict.bad or result.stuck or result.never_said():
        history.save(kept / f"{name}.jsonl", result.operations)
        summary += f"\nthe history is in {kept / name}.jsonl"
    report(name, summary)
    assert not result.verdict.bad, str(result.verdict)
    assert not result.stuck, f"transactions that never ended hold back {result.stuck}"
    assert not result.never_said()
    assert len(result.operations) > OPERATIONS_PER_S_MIN * SECONDS
