"""Ottla's sink writes what Spark's own connector writes, option by option, and refuses the same."""

from pathlib import Path

import peer_sink_cases as cases
import pytest

from support.peer_runs import Outcome, are_both_refused, run_peers
from support.spark_runs import broker

pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Outcome]]:
    folder = tmp_path_factory.mktemp("peer")
    script = Path(cases.__file__)
    with broker(folder / "broker") as process:
        return run_peers(script, process.bootstrap, folder)


@pytest.mark.parametrize(
    "case", [f"{kind}: {name}" for kind in ("batch", "stream") for name in cases.CASES]
)
def test_what_is_written_is_what_sparks_own_connector_writes(
    outcomes: dict[str, dict[str, Outcome]], case: str
) -> None:
    theirs, ours = outcomes[case]["kafka"], outcomes[case]["ottla"]
    if not are_both_refused(theirs, ours):
        assert ours == theirs
