"""One classic group, step by step: who is told what, and when."""

import pytest

from ottla.coordinators.group.classic_group import (
    NEVER_MS,
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    PENDING_MEMBERS_MAX,
    ClassicGroup,
)
from ottla.coordinators.group.effects import Effects, Fields, Moment, Purpose
from ottla.coordinators.group.requests import GroupLimits, JoinRequest, LeavingMember, SyncRequest
from ottla.coordinators.group.states import TRANSITIONS, GroupState
from ottla.protocol.errors import ErrorCode, KafkaError

SESSION_MS = 10_000
REBALANCE_MS = 60_000
RANGE = (("range", b"r"),)
BOTH = (("sticky", b"s"), ("range", b"r"))


class Scene:
    """A group, a clock, and the last answer that each waiter got."""

    def __init__(self, delay_ms: int = 0, size_max: int = 100) -> None:
        self.group = ClassicGroup("g", GroupLimits(delay_ms, size_max), 0)
        self.time_ms = 0
        self.answers: dict[str, Fields] = {}
        self.purposes: list[Purpose] = []
        self.refuses_writes = False

    @property
    def now(self) -> Moment:
        return Moment(self.time_ms, self.time_ms)

    def perform(self, effects: Effects) -> None:
        for waiter, response in effects.replies:
            self.answers[str(waiter)] = response
        for write in effects.writes:
            self.purposes.append(write.purpose)
            if self.refuses_writes:
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE
                self.perform(self.group.on_write_failed(write, code, self.now))
            else:
                self.group.replay(write.metadata)
                self.perform(self.group.on_written(write, self.now))

    def join(
        self,
        name: str,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        protocol_type: str = "consumer",
        version: int = 3,
    ) -> Fields | None:
        """The answer, if there is one by now. Version 3 joins in one step."""
        self.answers.pop(name, None)
        request = JoinRequest(
            member_id,
            instance,
            name,
            "/host",
            SESSION_MS,
            REBALANCE_MS,
            protocol_type,
            protocols,
            f"{instance or name}-{self.time_ms}",
            version >= 4,
            version >= 9,
        )
        self.perform(self.group.decide_join(request, name, self.now))
        return self.answers.get(name)

    def sync(
        self,
        name: str,
        member_id: str,
        assignments: dict[str, bytes] | None = None,
        *,
        generation: int | None = None,
        instance: str | None = None,
        protocol: str | None = None,
    ) -> Fields | None:
        self.answers.pop(name, None)
        request = SyncRequest(
            member_id,
            instance,
            self.group.generation if generation is None else generation,
            None,
            protocol,
            list((assignments or {}).items()),
        )
        self.perform(self.group.decide_sync(request, name, self.now))
        return self.answers.get(name)

    def leave(self, member_id: str, instance: str | None = None) -> list[ErrorCode]:
        leaving = [LeavingMember(member_id, instance)]
        self.perform(self.group.decide_leave(leaving, "leave", self.now))
        return [one["error_code"] for one in self.answers["leave"]["members"]]

    def wait(self, elapsed_ms: int) -> None:
        """Let time pass, and wake the group whenever it asked to be woken."""
        end_ms = self.time_ms + elapsed_ms
        while self.group.wake_at_ms <= end_ms:
            self.time_ms = max(self.group.wake_at_ms, self.time_ms)
            self.perform(self.group.on_time(self.now))
        self.time_ms = end_ms

    def heartbeat(self, member_id: str) -> ErrorCode:
        return self.group.decide_heartbeat(member_id, None, self.group.generation, self.now)

    def stable(self, *names: str, instances: tuple[str, ...] = ()) -> list[str]:
        """Members that share a stable generation; the ids in the order of the names."""
        limits = self.group.limits
        self.group.limits = limits._replace(initial_rebalance_delay_ms=1)
        for name in (*names, *instances):
            self.join(name, instance=name if name in instances else None)
        self.wait(5)
        self.group.limits = limits
        ids = {name: self.answers[name]["member_id"] for name in (*names, *instances)}
        given = {member_id: f"for {name}".encode() for name, member_id in ids.items()}
        for name, member_id in ids.items():
            self.sync(name, member_id, given, instance=name if name in instances else None)
        assert self.group.state is GroupState.STABLE
        return list(ids.values())


def test_first_member_leads_and_all_get_what_it_assigned() -> None:
    scene = Scene()
    one, two = scene.stable("one", "two")
    assert scene.group.members.leader == one
    assert scene.answers["one"]["assignment"] == b"for one"
    assert scene.answers["two"]["assignment"] == b"for two"
    assert scene.sync("two", two) == scene.answers["two"]


def test_new_group_waits_for_more_members_before_its_first_generation() -> None:
    scene = Scene(delay_ms=3000)
    assert scene.join("one") is None
    scene.wait(2000)
    assert scene.join("two") is None
    scene.wait(1500)  # the second member came within the delay, which starts again
    assert "one" not in scene.answers
    scene.wait(3000)
    assert scene.answers["one"]["generation_id"] == scene.answers["two"]["generation_id"] == 1
    assert len(scene.answers["one"]["members"]) == 2
    assert scene.answers["two"]["members"] == []


def test_new_member_gets_an_id_first_and_loses_it_if_unused() -> None:
    scene = Scene()
    refused = scene.join("one", version=4)
    assert refused is not None
    assert refused["error_code"] is ErrorCode.MEMBER_ID_REQUIRED
    joined = scene.join("one", refused["member_id"], version=4)
    assert joined is not None
    assert joined["generation_id"] == 1
    late = scene.join("two", version=4)
    assert late is not None
    scene.heartbeat(refused["member_id"])
    scene.wait(SESSION_MS)
    forgotten = scene.join("two", late["member_id"], version=4)
    assert forgotten is not None
    assert forgotten["error_code"] is ErrorCode.UNKNOWN_MEMBER_ID


def test_ids_that_were_handed_out_are_bounded() -> None:
    scene = Scene()
    for scene.time_ms in range(PENDING_MEMBERS_MAX + 5):
        scene.join("one", version=4)
    oldest = scene.join("one", "one-0", version=4)
    newest = scene.join("two", f"one-{scene.time_ms}", version=4)
    assert oldest is not None
    assert oldest["error_code"] is ErrorCode.UNKNOWN_MEMBER_ID
    assert newest is not None
    assert newest["error_code"] is ErrorCode.NONE


def test_silent_member_is_removed_and_the_others_rebalance() -> None:
    scene = Scene()
    one, two = scene.stable("one", "two")
    scene.wait(SESSION_MS - 1)
    assert scene.heartbeat(one) is ErrorCode.NONE
    scene.wait(1)
    assert scene.heartbeat(one) is ErrorCode.REBALANCE_IN_PROGRESS
    assert scene.heartbeat(two) is ErrorCode.UNKNOWN_MEMBER_ID
    joined = scene.join("one", one)
    assert joined is not None
    assert [member["member_id"] for member in joined["members"]] == [one]


def test_member_that_does_not_rejoin_is_left_behind_after_the_rebalance_timeout() -> None:
    scene = Scene()
    one, two = scene.stable("one", "two")
    assert scene.join("one", one) is None
    for _ in range(REBALANCE_MS // 5000 - 1):
        scene.wait(5000)
        assert scene.heartbeat(two) is ErrorCode.REBALANCE_IN_PROGRESS
    scene.wait(5000)
    assert scene.answers["one"]["generation_id"] == scene.group.generation
    assert scene.heartbeat(two) is ErrorCode.UNKNOWN_MEMBER_ID


def test_member_that_joins_and_never_syncs_is_removed() -> None:
    scene = Scene()
    one, two = scene.stable("one", "two")
    scene.join("two", two, protocols=BOTH)
    scene.join("one", one)
    scene.sync("one", one, {})
    for _ in range(REBALANCE_MS // 5000):
        scene.wait(5000)
        scene.heartbeat(one)
        scene.heartbeat(two)
    assert scene.heartbeat(two) is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.heartbeat(one) is ErrorCode.REBALANCE_IN_PROGRESS


def test_new_member_that_hangs_in_a_join_is_given_up() -> None:
    scene = Scene()
    scene.group.limits = GroupLimits(NEW_MEMBER_JOIN_TIMEOUT_MS * 2)
    assert scene.join("one") is None
    scene.wait(NEW_MEMBER_JOIN_TIMEOUT_MS)
    assert scene.answers["one"]["error_code"] is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.group.state is GroupState.EMPTY


def test_protocol_is_one_that_all_support_and_most_prefer() -> None:
    scene = Scene(delay_ms=100)
    scene.join("one", protocols=(("a", b""), ("b", b""), ("c", b"")))
    scene.join("two", protocols=(("b", b""), ("c", b"")))
    scene.join("three", protocols=(("c", b""), ("b", b"")))
    scene.wait(200)
    assert scene.answers["one"]["protocol_name"] == "b"
    refused = scene.join("four", protocols=(("a", b""),))
    assert refused is not None
    assert refused["error_code"] is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    alien = scene.join("five", protocols=(("b", b""),), protocol_type="connect")
    assert alien is not None
    assert alien["error_code"] is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", RANGE), ("consumer", ())])
def test_empty_group_wants_a_protocol(
    protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    refused = Scene().join("one", protocols=protocols, protocol_type=protocol_type)
    assert refused is not None
    assert refused["error_code"] is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_leader_that_rejoins_asks_for_a_rebalance_and_a_follower_does_not() -> None:
    scene = Scene()
    one, two = scene.stable("one", "two")
    generation = scene.group.generation
    again = scene.join("two", two)
    assert again is not None
    assert again["generation_id"] == generation
    assert scene.join("one", one) is None
    assert scene.group.state is GroupState.PREPARING_REBALANCE


def test_member_that_lies_about_its_protocol_is_refused() -> None:
    scene = Scene()
    (one,) = scene.stable("one")
    lie = scene.sync("one", one, protocol="sticky")
    assert lie is not None
    assert lie["error_code"] is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_stale_generation_gets_nothing() -> None:
    scene = Scene()
    (one,) = scene.stable("one")
    stale = scene.sync("one", one, generation=scene.group.generation - 1)
    assert stale is not None
    assert stale["error_code"] is ErrorCode.ILLEGAL_GENERATION
    assert stale["assignment"] == b""
    with pytest.raises(KafkaError) as caught:
        scene.group.check_commit(one, None, scene.group.generation + 1, scene.now)
    assert caught.value.code is ErrorCode.ILLEGAL_GENERATION


def test_commit_is_refused_from_strangers_and_between_generations() -> None:
    scene = Scene()
    scene.group.check_commit("", None, -1, scene.now)  # an empty group takes it
    one, _two = scene.stable("one", "two")
    for member_id, generation, code in (
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("nobody", scene.group.generation, ErrorCode.UNKNOWN_MEMBER_ID),
        (one, -1, ErrorCode.ILLEGAL_GENERATION),
    ):
        with pytest.raises(KafkaError) as caught:
            scene.group.check_commit(member_id, None, generation, scene.now)
        assert caught.value.code is code
    scene.leave(_two)
    scene.group.check_commit(one, None, scene.group.generation, scene.now)  # before it rejoins
    scene.join("one", one)
    with pytest.raises(KafkaError) as caught:
        scene.group.check_commit(one, None, scene.group.generation, scene.now)
    assert caught.value.code is ErrorCode.REBALANCE_IN_PROGRESS


def test_commit_is_a_sign_of_life() -> None:
    scene = Scene()
    (one,) = scene.stable("one")
    for _ in range(3):
        scene.wait(SESSION_MS - 1)
        scene.group.check_commit(one, None, scene.group.generation, scene.now)
    assert scene.group.state is GroupState.STABLE


def test_static_member_that_returns_keeps_its_assignment_without_a_rebalance() -> None:
    scene = Scene()
    _one, old = scene.stable("one", instances=("box",))
    generation = scene.group.generation
    scene.wait(SESSION_MS - 1)
    scene.heartbeat(_one)
    scene.time_ms += 1
    back = scene.join("new box", instance="box")
    assert back is not None
    assert back["generation_id"] == generation
    assert back["member_id"] != old
    synced = scene.sync("new box", back["member_id"], instance="box")
    assert synced is not None
    assert synced["assignment"] == b"for box"
    fenced = scene.sync("old box", old, instance="box")
    assert fenced is not None
    assert fenced["error_code"] is ErrorCode.FENCED_INSTANCE_ID
    assert scene.purposes[-1] is Purpose.STATIC_MEMBER


@pytest.mark.parametrize(("version", "skips"), [(8, False), (9, True)])
def test_static_leader_that_returns_does_not_assign_again(version: int, skips: bool) -> None:
    scene = Scene()
    scene.stable("one", instances=("box",))
    scene.group.members.leader = scene.group.members.static_ids["box"]
    scene.time_ms += 1
    back = scene.join("new box", instance="box", version=version)
    assert back is not None
    assert back["skip_assignment"] is skips
    assert (back["leader"] == back["member_id"]) is skips
    assert len(back["members"]) == (2 if skips else 0)


def test_static_member_is_fenced_while_it_waits() -> None:
    scene = Scene()
    _one, old = scene.stable("one", instances=("box",))
    scene.join("one", _one)
    assert scene.join("old box", old, instance="box") is None or scene.answers["old box"]
    scene.sync("old box", old, instance="box")
    scene.time_ms += 1
    scene.join("new box", instance="box")
    assert scene.answers["old box"]["error_code"] is ErrorCode.FENCED_INSTANCE_ID


def test_static_member_that_is_away_stays_a_member_through_a_rebalance() -> None:
    scene = Scene()
    one, old = scene.stable("one", instances=("box",))
    scene.join("one", one)
    for _ in range(REBALANCE_MS // 5000):
        scene.wait(5000)
        scene.group.decide_heartbeat(old, "box", scene.group.generation, scene.now)
    joined = scene.answers["one"]
    assert {member["member_id"] for member in joined["members"]} == {one, old}


def test_group_whose_static_members_are_all_away_waits_for_their_sessions() -> None:
    scene = Scene()
    (old,) = scene.stable(instances=("box",))
    assert scene.leave("", "nobody") == [ErrorCode.UNKNOWN_MEMBER_ID]
    scene.wait(SESSION_MS)
    assert scene.group.state is GroupState.EMPTY
    assert old not in scene.group.members


def test_leaving_is_answered_once_the_log_has_the_empty_group() -> None:
    scene = Scene()
    (one,) = scene.stable("one")
    assert scene.leave("nobody") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert scene.leave(one, "box") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert scene.leave(one) == [ErrorCode.NONE]
    assert scene.purposes[-1] is Purpose.EMPTIED
    assert scene.group.recorded is not None
    assert scene.group.recorded.members == ()
    assert scene.group.wake_at_ms == NEVER_MS or not scene.group.members


def test_administrator_sends_a_static_member_away_by_its_instance_id() -> None:
    scene = Scene()
    _one, old = scene.stable("one", instances=("box",))
    assert scene.leave("", "box") == [ErrorCode.NONE]
    assert old not in scene.group.members
    assert scene.group.state is GroupState.PREPARING_REBALANCE


def test_members_beyond_the_limit_are_refused() -> None:
    scene = Scene(size_max=2)
    scene.stable("one", "two")
    refused = scene.join("three")
    assert refused is not None
    assert refused["error_code"] is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert len(scene.group.members) == 2
    assert scene.group.state is GroupState.STABLE


def test_assignment_that_cannot_be_written_is_given_to_nobody() -> None:
    scene = Scene()
    joined = scene.join("one")
    assert joined is not None
    scene.refuses_writes = True
    synced = scene.sync("one", joined["member_id"], {joined["member_id"]: b"all"})
    assert synced is not None
    assert synced["error_code"] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert synced["assignment"] == b""
    assert scene.group.recorded is None
    assert scene.group.state is GroupState.PREPARING_REBALANCE


def test_retry_of_the_leader_does_not_change_the_assignment_on_its_way() -> None:
    scene = Scene()
    joined = scene.join("one")
    assert joined is not None
    member_id, generation = joined["member_id"], joined["generation_id"]
    first = SyncRequest(member_id, None, generation, None, None, [(member_id, b"first")])
    effects = scene.group.decide_sync(first, "first", scene.now)
    again = first._replace(assignments=[(member_id, b"second")])
    assert not scene.group.decide_sync(again, "second", scene.now).writes
    scene.perform(effects)
    assert scene.answers["second"]["assignment"] == b"first"


def test_loaded_group_is_stable_with_its_leader_and_gives_members_a_session() -> None:
    scene = Scene()
    one, two = scene.stable("one", "two")
    scene.leave(one)
    scene.join("two", two)
    scene.sync("two", two, {two: b"all"})
    joined = scene.join("one")
    scene.join("two", two)
    joined = scene.answers["one"]
    scene.sync("two", two, {two: b"2", joined["member_id"]: b"1"})
    recorded = scene.group.recorded
    assert recorded is not None
    loaded = ClassicGroup("g", GroupLimits(), 0)
    loaded.replay(recorded._replace(members=tuple(reversed(recorded.members))))
    loaded.on_loaded(Moment(1000, 1000))
    assert loaded.state is GroupState.STABLE
    assert loaded.members.leader == two
    assert loaded.wake_at_ms == 1000 + SESSION_MS
    again = loaded.decide_sync(
        SyncRequest(two, None, loaded.generation, None, None, ()), "two", Moment(1000, 1000)
    )
    assert again.replies[0][1]["assignment"] == b"2"


def test_a_loaded_group_above_a_lowered_limit_rebalances_and_the_last_to_rejoin_go() -> None:
    scene = Scene()
    members = dict(zip(("one", "two", "three"), scene.stable("one", "two", "three"), strict=True))
    recorded = scene.group.recorded
    assert recorded is not None
    scene.group = ClassicGroup("g", GroupLimits(0, 2), 0)
    scene.group.replay(recorded)
    scene.group.on_loaded(scene.now)
    assert scene.group.state is GroupState.PREPARING_REBALANCE
    assert scene.group.wake_at_ms == scene.time_ms + SESSION_MS
    generation = scene.group.generation
    scene.group.check_commit(members["one"], None, generation, scene.now)
    for name in ("two", "one"):
        assert scene.join(name, members[name]) is None
    refused = scene.join("three", members["three"])
    assert refused is not None
    assert refused["error_code"] is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert scene.answers["one"]["generation_id"] == generation + 1
    assert len(scene.group.members) == 2


def test_every_state_is_left_only_by_its_transitions() -> None:
    assert set(TRANSITIONS) == set(GroupState)
    group = ClassicGroup("g", GroupLimits(), 0)
    group.mark_dead()
    with pytest.raises(KafkaError) as caught:
        group.check_delete()
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    group.revive()
    group.check_delete()
