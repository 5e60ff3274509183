"""Clients under faults: what they were told and what they read hold nothing that may not be.

OTTLA_HISTORY_S says for how long (120 s in `make test`), OTTLA_SEED which plans and faults,
OTTLA_HISTORY_BROKER=kafka which broker. A history that is bad is left in `.cache/exactly_once`.
"""

import os
from pathlib import Path

import pytest
from bench.brokers import CACHE, Kind, Missing

from exactly_once import history
from exactly_once.run import run

SECONDS = float(os.environ.get("OTTLA_HISTORY_S", "120"))
SEED = int(os.environ.get("OTTLA_SEED", "1"))
BROKER = Kind(os.environ.get("OTTLA_HISTORY_BROKER", Kind.OTTLA))
# Far below what any machine does: a run that hardly did anything proves nothing.
OPERATIONS_PER_S_MIN = 2


@pytest.mark.timeout(SECONDS + 400)
def test_histories_of_librdkafka_and_java_hold_no_anomaly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        result = run(BROKER, tmp_path, seed=SEED, seconds=SECONDS)
    except Missing as reason:
        pytest.skip(str(reason))
    with capsys.disabled():
        print(f"\nseed {SEED}, {SECONDS:.0f} s against {BROKER}: {result.summary()}")
    is_good = not result.verdict.bad and not result.stuck and not result.never_said()
    if not is_good:
        folder = CACHE / "exactly_once"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"history-{BROKER}-{SEED}.jsonl"
        history.save(path, result.operations)
        with capsys.disabled():
            print(f"the history is in {path}")
    assert not result.verdict.bad, str(result.verdict)
    assert not result.stuck, f"transactions that never ended hold back {result.stuck}"
    assert not result.never_said()
    assert len(result.operations) > OPERATIONS_PER_S_MIN * SECONDS
