"""InSyncReplicas against an oracle that remembers every position ever reported."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.ids import BrokerId, Offset
from ottla.replication.in_sync import UNKNOWN_POSITION, InSyncReplicas

LOCAL = BrokerId(1)
OTHERS = (BrokerId(2), BrokerId(3))

steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5)),
        st.tuples(st.just("fetch"), st.tuples(st.sampled_from(OTHERS), st.integers(0, 30))),
        st.tuples(st.just("isr"), st.sets(st.sampled_from(OTHERS))),
        st.tuples(st.just("epoch"), st.sets(st.sampled_from(OTHERS))),
    ),
    max_size=40,
)


@given(steps)
def test_the_high_watermark_is_what_every_in_sync_replica_has_and_never_falls(steps: list) -> None:
    replicas = InSyncReplicas(LOCAL)
    replicas.assign((LOCAL,), is_new_epoch=True)
    end, isr, positions, expected = 0, {LOCAL}, {}, 0
    for kind, what in steps:
        if kind == "append":
            end += what
        elif kind == "fetch":
            broker, offset = what
            positions[broker] = min(offset, end)
            replicas.on_follower_fetch(broker, Offset(min(offset, end)))
        else:
            isr = {LOCAL, *what}
            if kind == "epoch":
                positions.clear()
            replicas.assign(sorted(isr), is_new_epoch=kind == "epoch")
        moved = replicas.maybe_advance(Offset(end))
        held = [end if broker == LOCAL else positions.get(broker, -1) for broker in isr]
        before, expected = expected, max(expected, *[min(held)])
        assert replicas.high_watermark == expected
        assert moved == (expected > before)


def test_a_replica_that_has_not_fetched_yet_holds_the_high_watermark() -> None:
    replicas = InSyncReplicas(LOCAL)
    replicas.assign((LOCAL, OTHERS[0]), is_new_epoch=True)
    assert replicas.position_of(OTHERS[0]) == UNKNOWN_POSITION
    assert not replicas.maybe_advance(Offset(10))
    replicas.on_follower_fetch(OTHERS[0], Offset(4))
    assert replicas.maybe_advance(Offset(10))
    assert replicas.high_watermark == 4


def test_a_truncated_log_takes_the_high_watermark_with_it() -> None:
    replicas = InSyncReplicas(LOCAL, Offset(9))
    replicas.on_truncated(Offset(5))
    assert replicas.high_watermark == 5
    replicas.on_truncated(Offset(7))
    assert replicas.high_watermark == 5
