"""MarkerQueue against an oracle: every partition's marker is asked for until it is written."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinators.runtime import EndMarker
from ottla.coordinators.transaction.markers import MarkerQueue, Owner
from ottla.protocol.ids import TopicPartition

MARKER = EndMarker(1, 2, 3, True, 2)
LATER = EndMarker(1, 4, 3, False, 2)
A, B = Owner(0, "a"), Owner(1, "b")


def at(index: int) -> TopicPartition:
    return TopicPartition("t", index)


@given(st.data())
def test_a_transaction_is_done_exactly_when_each_partition_has_its_marker(
    data: st.DataObject,
) -> None:
    leaders: dict[TopicPartition, int | None] = {}

    def leader_of(partition: TopicPartition) -> int | None:
        return leaders[partition]

    queue = MarkerQueue(leader_of)
    missing: dict[Owner, set[TopicPartition]] = {}
    under_way: list[tuple[Owner, EndMarker, TopicPartition]] = []
    done: set[Owner] = set()
    places = st.sampled_from([0, 1, 2, -1, None])
    for number, owner in enumerate((A, B)):
        partitions = {at(10 * number + n) for n in range(data.draw(st.integers(0, 4)))}
        leaders.update((one, data.draw(places)) for one in sorted(partitions))
        missing[owner] = {one for one in partitions if leaders[one] is not None}
        if queue.add(owner, MARKER, partitions):
            done.add(owner)
    for _ in range(data.draw(st.integers(0, 40))):
        step = data.draw(st.sampled_from(["take", "report", "retry", "move"]))
        if step == "take":
            for destination in queue.destinations:
                for owner, marker, partitions in queue.take(destination):
                    for one in partitions:
                        assert leaders[one] == destination or one in missing[owner]
                        under_way.append((owner, marker, one))
        elif step == "report" and under_way:
            sent = under_way.pop(data.draw(st.integers(0, len(under_way) - 1)))
            if data.draw(st.booleans()):
                missing[sent[0]].discard(sent[2])
                if queue.on_written(*sent):
                    done.add(sent[0])
            else:
                queue.on_refused(*sent)
        elif step == "retry":
            done.update(queue.retry())
        elif step == "move" and leaders:
            one = data.draw(st.sampled_from(sorted(leaders)))
            leaders[one] = data.draw(st.sampled_from([0, 1, 2]))
        for owner in (A, B):
            assert (owner in done) == (not missing[owner])
            assert (owner in queue) == bool(missing[owner])
    for one, leader in leaders.items():
        leaders[one] = 0 if leader in (-1, None) else leader
    for _ in range(10):  # every broker answers from now on: all is told in the end
        for sent in under_way:
            if queue.on_written(*sent):
                done.add(sent[0])
        under_way.clear()
        done.update(queue.retry())
        for destination in queue.destinations:
            for owner, marker, partitions in queue.take(destination):
                under_way += [(owner, marker, one) for one in partitions]
    assert done == {A, B}
    assert not queue.destinations
    assert not queue.has_set_aside


def test_a_result_for_a_marker_that_was_replaced_changes_nothing() -> None:
    queue = MarkerQueue(lambda _: 0)
    queue.add(A, MARKER, [at(0)])
    (sent,) = queue.take(0)
    queue.add(A, LATER, [at(0)])
    assert not queue.on_written(sent.owner, sent.marker, at(0))
    queue.on_refused(sent.owner, sent.marker, at(0))
    assert not queue.has_set_aside
    assert A in queue


def test_giving_up_a_shard_forgets_its_transactions_only() -> None:
    queue = MarkerQueue(lambda _: 5)
    queue.add(A, MARKER, [at(0)])
    queue.add(B, MARKER, [at(1)])
    queue.forget_shard(0)
    assert A not in queue
    assert [one.owner for one in queue.take(5)] == [B]
