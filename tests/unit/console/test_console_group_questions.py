"""Groups are asked in the words of their own protocol, and silence is told."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.client import Unreachable
from ottla.console.kafka import brokers as broker_links
from ottla.console.kafka.brokers import REST_S, TIMEOUT_MS, BrokerLink, client_config
from ottla.console.kafka.group_questions import GroupQuestions
from ottla.console.kafka.model import BrokerView, GroupView, Metadata
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError


def obj(**fields: Any) -> SimpleNamespace:
    return SimpleNamespace(**fields)


def assigned(*partitions: int) -> SimpleNamespace:
    return obj(topic_partitions=[obj(topic_name="t", partitions=partitions)])


def member(**more: Any) -> SimpleNamespace:
    return obj(member_id="m", client_id="c", client_host="/h", member_epoch=4, **more)


def described(**more: Any) -> SimpleNamespace:
    return obj(
        error_code=0, error_message=None, group_id="g", group_state="Stable", group_epoch=7, **more
    )


ANSWERS = {
    ApiKey.DESCRIBE_GROUPS: obj(
        error_code=0, group_id="g", group_state="Dead", protocol_type="", protocol_data="",
        members=[],
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: described(
        assignor_name="uniform",
        members=[
            member(instance_id=None, assignment=assigned(0), target_assignment=assigned(0, 1))
        ],
    ),
    ApiKey.SHARE_GROUP_DESCRIBE: described(
        assignor_name="simple", members=[member(assignment=assigned(2))]
    ),
    ApiKey.STREAMS_GROUP_DESCRIBE: described(
        topology=obj(
            subtopologies=[
                obj(subtopology_id="0", source_topics=["t"], repartition_source_topics=[])
            ]
        ),
        members=[
            member(
                instance_id=None,
                assignment=obj(active_tasks=[obj(subtopology_id="0", partitions=[3])]),
                target_assignment=obj(active_tasks=[]),
            )
        ],
    ),
}  # fmt: skip


class Cluster:
    def __init__(self, answers: dict[ApiKey, Any]) -> None:
        self.answers = answers
        self.asked: list[ApiKey] = []

    async def ask(self, broker: int, api: ApiKey, spoken: object, fields: Any) -> Any:
        self.asked.append(api)
        answer = self.answers[api]
        if isinstance(answer, dict):
            answer = answer[broker]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize(
    ("group_type", "api", "assignment", "target"),
    [
        ("consumer", ApiKey.CONSUMER_GROUP_DESCRIBE, (("t", 0),), (("t", 0), ("t", 1))),
        ("share", ApiKey.SHARE_GROUP_DESCRIBE, (("t", 2),), None),
        ("streams", ApiKey.STREAMS_GROUP_DESCRIBE, (("t", 3),), ()),
    ],
)
def test_each_protocol_is_asked_in_its_own_words(
    group_type: str, api: ApiKey, assignment: object, target: object
) -> None:
    cluster = Cluster({key: obj(groups=[answer]) for key, answer in ANSWERS.items()})
    questions = GroupQuestions(cluster)  # type: ignore[arg-type]
    group = GroupView("g", "Stable", group_type, "", 1)
    found = asyncio.run(questions.describe(group))
    assert cluster.asked == [api]
    (one,) = found.members
    assert (one.assignment, one.target, one.host, found.epoch) == (assignment, target, "h", 7)
    assert asyncio.run(questions.describe_all([group])) == {"g": found}


def test_an_error_of_a_description_is_raised_for_one_and_left_out_of_many() -> None:
    failed = obj(error_code=int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), group_id="g")
    cluster = Cluster({ApiKey.DESCRIBE_GROUPS: obj(groups=[failed])})
    questions = GroupQuestions(cluster)  # type: ignore[arg-type]
    group = GroupView("g", "Stable", "classic", "consumer", 1)
    with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        asyncio.run(questions.describe(group))
    assert asyncio.run(questions.describe_all([group])) == {}


def test_brokers_that_load_or_are_away_are_told_beside_the_groups_of_others() -> None:
    listed = obj(
        group_id="g", group_state="Stable", group_type="Consumer", protocol_type="consumer"
    )
    answers = {
        1: obj(error_code=0, groups=[listed]),
        2: obj(error_code=int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), groups=[]),
        3: Unreachable("gone"),
    }
    metadata = Metadata("c", 1, {n: BrokerView(n, "h", 1, None) for n in answers}, {})
    questions = GroupQuestions(Cluster({ApiKey.LIST_GROUPS: answers}))  # type: ignore[arg-type]
    told = asyncio.run(questions.groups(metadata))
    assert [(g.group_id, g.group_type) for g in told.found.values()] == [("g", "consumer")]
    assert told.troubles == {2: "COORDINATOR_LOAD_IN_PROGRESS", 3: "gone"}


def test_a_broker_that_let_a_question_time_out_is_left_alone_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = obj(now=100.0)
    attempts: list[float] = []

    def hang(*_: object) -> None:
        attempts.append(clock.now)
        clock.now += TIMEOUT_MS / 1000
        raise Unreachable("it did not answer in time")

    monkeypatch.setattr(broker_links, "time", obj(monotonic=lambda: clock.now))
    monkeypatch.setattr(broker_links, "Connection", hang)
    config = client_config({"bootstrap.servers": "127.0.0.1:1"})
    link = BrokerLink(config.bootstrap_servers[0], config)
    for _ in range(3):
        with pytest.raises(Unreachable):
            asyncio.run(link.ask(ApiKey.METADATA, (0, 1), {}))
    assert attempts == [100.0]
    clock.now += REST_S
    with pytest.raises(Unreachable):
        asyncio.run(link.ask(ApiKey.METADATA, (0, 1), {}))
    assert len(attempts) == 2
    link.close()
