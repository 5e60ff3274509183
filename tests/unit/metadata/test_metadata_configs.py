"""Changing configurations: operations, refusals, and what is written for them."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metadata_worlds import World

from ottla.config.resources import ConfigChange, ConfigOperation, ConfigResourceType
from ottla.metadata.configs import (
    ResourceChange,
    decide_alter_configs,
    decide_incremental_alter_configs,
)
from ottla.metadata.image import ConfigResource
from ottla.metadata.records import ConfigRecord
from ottla.metadata.topics import NewTopic
from ottla.protocol.errors import ErrorCode, KafkaError

TOPIC = ConfigResource(ConfigResourceType.TOPIC, "t")
ALL_BROKERS = ConfigResource(ConfigResourceType.BROKER, "")
BROKER = ConfigResource(ConfigResourceType.BROKER, "1")
SET, DELETE, APPEND, SUBTRACT = ConfigOperation


class Schema:
    """`cleanup.policy` is a list with the default `delete`; the value `bad` is bad."""

    def check(self, resource: ConfigResource, configs: Mapping[str, str]) -> None:
        if "bad" in configs.values():
            raise KafkaError(ErrorCode.INVALID_CONFIG, "bad")

    def is_list(self, resource: ConfigResource, name: str) -> bool:
        return name == "cleanup.policy"

    def default_value(self, resource: ConfigResource, name: str) -> str:
        return "delete"


@pytest.fixture
def world() -> World:
    world = World()
    world.add_broker(1)
    world.create(NewTopic("t", 1, 1))
    return world


def alter(
    world: World,
    resource: ConfigResource,
    *changes: tuple[str, int, str | None],
    validate_only: bool = False,
) -> ErrorCode:
    asked = ResourceChange(resource, [ConfigChange(*change) for change in changes])
    decision = decide_incremental_alter_configs(
        world.image, [asked], schema=Schema(), validate_only=validate_only
    )
    (result,) = world.take(decision)
    assert result.resource == resource
    return result.error_code


def test_keys_are_set_and_deleted(world: World) -> None:
    assert alter(world, TOPIC, ("a", SET, "1"), ("b", SET, "2")) is ErrorCode.NONE
    assert world.image.configs[TOPIC] == {"a": "1", "b": "2"}
    assert alter(world, TOPIC, ("a", DELETE, None), ("zz", DELETE, None)) is ErrorCode.NONE
    assert world.image.configs[TOPIC] == {"b": "2"}
    assert alter(world, TOPIC, ("b", DELETE, "ignored")) is ErrorCode.NONE
    assert TOPIC not in world.image.configs


def test_lists_are_appended_to_and_subtracted_from_starting_at_the_default(world: World) -> None:
    name = "cleanup.policy"
    alter(world, TOPIC, (name, APPEND, "compact, delete"))
    assert world.image.configs[TOPIC] == {name: "delete,compact"}
    alter(world, TOPIC, (name, SUBTRACT, "delete"))
    assert world.image.configs[TOPIC] == {name: "compact"}


ELEMENTS = st.lists(st.sampled_from(["a", "b", "c", "delete"]), unique=True)


@given(ELEMENTS, ELEMENTS, st.sampled_from([APPEND, SUBTRACT]))
def test_editing_a_list_agrees_with_sets(
    before: list[str], edits: list[str], operation: ConfigOperation
) -> None:
    world = World()
    world.add_broker(1)
    world.create(NewTopic("t", 1, 1))
    name = "cleanup.policy"
    alter(world, TOPIC, (name, SET, ",".join(before)))
    assert alter(world, TOPIC, (name, operation, ",".join(edits))) is ErrorCode.NONE
    after = world.image.configs[TOPIC][name]
    elements = after.split(",") if after else []
    expected = set(before) | set(edits) if operation is APPEND else set(before) - set(edits)
    assert set(elements) == expected
    assert len(elements) == len(expected)
    kept = [element for element in before if element in expected]
    assert elements[: len(kept)] == kept


def test_what_stays_the_same_is_not_written(world: World) -> None:
    alter(world, TOPIC, ("a", SET, "1"), ("b", SET, "2"))
    before = len(world.history)
    alter(world, TOPIC, ("a", SET, "1"), ("b", SET, "3"))
    assert [r.name for r in world.history[before:] if isinstance(r, ConfigRecord)] == ["b"]


def test_validate_only_writes_nothing(world: World) -> None:
    assert alter(world, TOPIC, ("a", SET, "bad"), validate_only=True) is ErrorCode.INVALID_CONFIG
    assert alter(world, TOPIC, ("a", SET, "1"), validate_only=True) is ErrorCode.NONE
    assert TOPIC not in world.image.configs


@pytest.mark.parametrize(
    ("resource", "change", "code"),
    [
        (TOPIC, ("a", SET, None), ErrorCode.INVALID_REQUEST),
        (TOPIC, ("", SET, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC._replace(name=""), ("a", SET, "1"), ErrorCode.INVALID_REQUEST),
        (TOPIC._replace(name="a b"), ("a", SET, "1"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, ("a", 7, "1"), ErrorCode.INVALID_REQUEST),
        (TOPIC, ("a", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, ("cleanup.policy", APPEND, None), ErrorCode.INVALID_REQUEST),
        (TOPIC, ("a", SET, "bad"), ErrorCode.INVALID_CONFIG),
        (TOPIC, ("a", SET, "x" * 40_000), ErrorCode.INVALID_CONFIG),
        (TOPIC._replace(name="no"), ("a", SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER._replace(name="x"), ("a", SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER._replace(name="-1"), ("a", SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER._replace(name="9"), ("a", SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, ("min.insync.replicas", SET, "1"), ErrorCode.INVALID_CONFIG),
        (ConfigResource(ConfigResourceType.GROUP, ""), ("a", SET, "1"), ErrorCode.INVALID_REQUEST),
        (ConfigResource(8, "1"), ("a", SET, "1"), ErrorCode.INVALID_REQUEST),
        (ConfigResource(99, "1"), ("a", SET, "1"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_changes_that_cannot_be_are_refused(
    world: World, resource: ConfigResource, change: tuple[str, int, str | None], code: ErrorCode
) -> None:
    before = world.image
    assert alter(world, resource, change) is code
    assert world.image is before


def test_a_key_or_resource_may_be_changed_once_per_request(world: World) -> None:
    assert alter(world, TOPIC, ("a", SET, "1"), ("a", DELETE, None)) is ErrorCode.INVALID_REQUEST
    asked = ResourceChange(TOPIC, [ConfigChange("a", SET, "1")])
    other = ResourceChange(ALL_BROKERS, [ConfigChange("a", SET, "1")])
    results = world.take(
        decide_incremental_alter_configs(world.image, [asked, other, asked], schema=Schema())
    )
    assert [r.error_code for r in results] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert world.image.configs == {ALL_BROKERS: {"a": "1"}}


def test_every_kind_of_resource_keeps_its_own(world: World) -> None:
    resources = (
        TOPIC,
        BROKER,
        ALL_BROKERS,
        ConfigResource(ConfigResourceType.GROUP, "t"),
        ConfigResource(ConfigResourceType.CLIENT_METRICS, "t"),
    )
    for number, resource in enumerate(resources):
        assert alter(world, resource, ("a", SET, str(number))) is ErrorCode.NONE
    assert [world.image.configs[r]["a"] for r in resources] == ["0", "1", "2", "3", "4"]


def test_min_insync_replicas_of_the_cluster_stays(world: World) -> None:
    name = "min.insync.replicas"
    alter(world, ALL_BROKERS, (name, SET, "2"))
    assert alter(world, ALL_BROKERS, (name, DELETE, None)) is ErrorCode.INVALID_CONFIG
    assert alter(world, ALL_BROKERS, (name, SET, "1")) is ErrorCode.NONE


def test_the_old_way_replaces_all_that_was_set(world: World) -> None:
    alter(world, TOPIC, ("a", SET, "1"), ("b", SET, "2"))
    (result,) = world.take(
        decide_alter_configs(world.image, [(TOPIC, [("b", "3"), ("c", "4")])], schema=Schema())
    )
    assert result.error_code is ErrorCode.NONE
    assert world.image.configs[TOPIC] == {"b": "3", "c": "4"}
    (result,) = world.take(
        decide_alter_configs(world.image, [(TOPIC, [("b", None)])], schema=Schema())
    )
    assert result.error_code is ErrorCode.INVALID_REQUEST
    (result,) = world.take(decide_alter_configs(world.image, [(TOPIC, [])], schema=Schema()))
    assert TOPIC not in world.image.configs
