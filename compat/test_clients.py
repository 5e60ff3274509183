"""Every client performs the scenario; every step of it is one test."""

import json
import subprocess
import time
import uuid
from functools import cache
from typing import NamedTuple

import pytest
from bench.brokers import BrokerProcess, Missing

from compat import page, scenario, toolchains
from compat.allow_list import Judge
from compat.scenario import Results, Scenario

DRIVER_S_MAX = 240


class Performance(NamedTuple):
    scenario: Scenario
    results: Results
    stderr: str


@cache
def _driver(client: str) -> toolchains.Driver | Missing:
    try:
        return toolchains.DRIVERS[client]()
    except Missing as reason:
        return reason


_performances: dict[str, Performance] = {}


def _perform(client: str, broker: BrokerProcess) -> Performance:
    """Run the driver once per session; a driver that hangs still leaves the steps it finished."""
    driver = _driver(client)
    if isinstance(driver, Missing):
        pytest.skip(f"{client}: {driver}")
    if client not in _performances:
        topic = f"compat-{client}-{uuid.uuid4().hex[:8]}"
        wanted = scenario.build(broker.bootstrap, topic, now_ms=int(time.time() * 1000))
        with subprocess.Popen(
            driver.command,
            env=driver.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                out, err = process.communicate(json.dumps(wanted.as_json()), timeout=DRIVER_S_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                err += f"\nthe driver was killed after {DRIVER_S_MAX} s"
        lines = [json.loads(line) for line in out.splitlines()]
        results = {line.pop("step"): line for line in lines if "step" in line}
        _performances[client] = Performance(wanted, results, err)
    return _performances[client]


@pytest.mark.parametrize("step", scenario.STEP_NAMES)
@pytest.mark.parametrize("client", toolchains.DRIVERS)
def test_client_performs_step(client: str, step: str, broker: BrokerProcess, judge: Judge) -> None:
    performance = _perform(client, broker)
    result = performance.results.get(step)
    if result is not None and "skipped" in result:
        assert not page.is_offered(client, step), f"unexpectedly skipped: {result['skipped']}"
        pytest.skip(result["skipped"])
    with judge.judging(client, step):
        assert result is not None, f"the driver did not come to it: {performance.stderr[-1500:]}"
        assert "error" not in result, result["error"]
        scenario.check(performance.scenario, performance.results, step)
