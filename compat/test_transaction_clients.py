"""Every client with transactions performs the transactional scenario; every step is one test.

The programs run at the same time, since most of it is waiting: for groups, for a timeout.
"""

import json
import subprocess
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import pytest
from bench.brokers import BrokerProcess, Missing

from compat import toolchains, transactions
from compat.allow_list import Judge
from compat.scenario import Results

DRIVER_S_MAX = 200


class Performance(NamedTuple):
    results: Results
    stderr: str


def _perform(client: str, broker: BrokerProcess) -> Performance:
    """Run one driver; one that hangs still leaves the steps it finished."""
    driver = toolchains.TRANSACTION_DRIVERS[client]()
    topic = f"transactions-{client}-{uuid.uuid4().hex[:8]}"
    source = transactions.source_topic(topic)
    with broker.connect() as connection:
        connection.create_topic(topic, partitions=transactions.PARTITIONS)
        connection.create_topic(source)
        connection.fill(source, [value.encode() for value in transactions.SOURCE])
    steps = transactions.steps(topic)
    wanted = {"bootstrap": broker.bootstrap, "topic": topic, "steps": steps}
    with subprocess.Popen(
        driver.command,
        env=driver.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            out, err = process.communicate(json.dumps(wanted), timeout=DRIVER_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            err += f"\nthe driver was killed after {DRIVER_S_MAX} s"
    lines = [json.loads(line) for line in out.splitlines()]
    return Performance({line.pop("step"): line for line in lines if "step" in line}, err)


@pytest.fixture(scope="module")
def performances(broker: BrokerProcess) -> dict[str, Future[Performance]]:
    with ThreadPoolExecutor(len(toolchains.TRANSACTION_DRIVERS)) as pool:
        return {
            client: pool.submit(_perform, client, broker)
            for client in toolchains.TRANSACTION_DRIVERS
        }


@pytest.mark.parametrize("step", transactions.STEP_NAMES)
@pytest.mark.parametrize("client", toolchains.TRANSACTION_DRIVERS)
def test_client_performs_step_of_transactions(
    client: str, step: str, performances: dict[str, Future[Performance]], judge: Judge
) -> None:
    try:
        performance = performances[client].result()
    except Missing as reason:
        pytest.skip(f"{client}: {reason}")
    with judge.judging(client, step):
        result = performance.results.get(step)
        assert result is not None, f"the driver did not come to it: {performance.stderr[-1500:]}"
        assert "error" not in result, result["error"]
        transactions.check(performance.results, step)
