"""Every client works in groups by each protocol that it has; every step is one test.

Members are processes of the client's own program, several at a time, one of them killed. All groups
live at the same time, since most of it is waiting: for rebalances, for sessions that end.
"""

import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from bench.brokers import BrokerProcess, Kind, Missing, start_fresh

from compat import groups, page, toolchains
from compat.allow_list import Judge
from compat.conftest import SMALL_JVM

# Sessions of both protocols are short, and heartbeats frequent, so that nobody waits for long.
OVERRIDES = {
    "group.initial.rebalance.delay.ms": "200",
    "group.consumer.session.timeout.ms": str(groups.SESSION_MS),
    "group.consumer.min.session.timeout.ms": str(groups.SESSION_MS),
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.assignment.interval.ms": "100",
    "offsets.topic.num.partitions": "4",
}
GROUPS_AT_ONCE = 6  # more of them make a small machine too slow for sessions of seconds

Outcomes = dict[str, Exception | None]


@pytest.fixture(scope="module")
def group_broker(
    broker_kind: Kind, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    try:
        started = start_fresh(
            broker_kind, tmp_path_factory.mktemp("groups"), overrides=OVERRIDES, jvm=SMALL_JVM
        )
    except Missing as reason:
        pytest.skip(str(reason))
    with started:
        yield started


def _offered() -> list[tuple[str, str, str]]:
    return [
        (client, protocol, step)
        for client in toolchains.GROUP_DRIVERS
        for protocol in groups.PROTOCOLS
        for step in groups.STEPS
        if page.is_offered(client, f"groups/{protocol}/{step}")
    ]


def _perform(client: str, protocol: str, broker: BrokerProcess) -> Outcomes:
    driver = toolchains.GROUP_DRIVERS[client]()
    topic = f"groups-{client}-{protocol}-{uuid.uuid4().hex[:8]}"
    steps = [one for one in groups.STEPS if page.is_offered(client, f"groups/{protocol}/{one}")]
    return dict(groups.Group(driver, broker, topic, protocol).perform(steps))


@pytest.fixture(scope="module")
def lives(
    request: pytest.FixtureRequest, group_broker: BrokerProcess
) -> Iterator[dict[tuple[str, str], Future[Outcomes]]]:
    """The groups of all tests that were chosen."""
    chosen = {
        (str(item.callspec.params["client"]), str(item.callspec.params["protocol"])): None
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == request.path
    }
    with ThreadPoolExecutor(GROUPS_AT_ONCE) as pool:
        yield {
            (client, protocol): pool.submit(_perform, client, protocol, group_broker)
            for client, protocol in chosen
        }


@pytest.mark.parametrize(("client", "protocol", "step"), _offered())
def test_client_performs_step_of_a_group(
    client: str,
    protocol: str,
    step: str,
    lives: dict[tuple[str, str], Future[Outcomes]],
    judge: Judge,
) -> None:
    try:
        outcomes = lives[client, protocol].result()
    except Missing as reason:
        pytest.skip(f"{client}: {reason}")
    with judge.judging(client, f"groups/{protocol}/{step}"):
        error = outcomes[step]
        if error is not None:
            raise error
