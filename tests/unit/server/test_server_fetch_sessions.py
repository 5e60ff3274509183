"""Fetch sessions: what an incremental request means and which answers are news."""

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.fetch import FetchPartition, FetchPartitionResult
from ottla.server.fetch_sessions import EVICTION_MS, UNKNOWN_PARTITIONS_MAX, FetchSessions, Wanted


def sessions(slots_max: int = 2) -> FetchSessions:
    ids = count(100)
    return FetchSessions(slots_max, lambda: next(ids))


def wanted(topic: str, index: int, offset: int = 0) -> Wanted:
    return (topic, FetchPartition(index, -1, offset, -1, -1, 1000))


def begin(cache: FetchSessions, session_id: int, epoch: int, *partitions: Wanted, **more):
    return cache.begin(
        session_id,
        epoch,
        list(partitions),
        more.pop("forgotten", ()),
        uses_topic_ids=more.pop("uses_topic_ids", False),
        now_ms=more.pop("now_ms", 0),
    )


def answer(index: int, high_watermark: int = 0, length: int = 0, error: int = 0):
    return FetchPartitionResult(index, error, high_watermark, 0, 0, None, length)


def test_a_full_request_opens_a_session_and_the_next_may_name_nothing() -> None:
    cache = sessions()
    first = begin(cache, 0, 0, wanted("a", 0), wanted("a", 1))
    assert not first.is_incremental
    second = begin(cache, first.session_id, 1)
    assert second.is_incremental
    assert [partition.partition for _, partition in second.wanted] == [0, 1]


def test_a_sessionless_request_leaves_nothing_behind() -> None:
    cache = sessions()
    assert begin(cache, 0, -1, wanted("a", 0)).session_id == 0
    assert len(cache) == 0


def test_a_repeated_request_is_refused_by_its_epoch() -> None:
    cache = sessions()
    session_id = begin(cache, 0, 0, wanted("a", 0)).session_id
    begin(cache, session_id, 1)
    with pytest.raises(KafkaError) as refusal:
        begin(cache, session_id, 1)
    assert refusal.value.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH


@pytest.mark.parametrize(
    ("session_id", "epoch", "ids", "code"),
    [
        (999, 1, False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (100, 5, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (100, 1, True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_a_request_that_does_not_fit_its_session_is_refused(session_id, epoch, ids, code) -> None:
    cache = sessions()
    assert begin(cache, 0, 0, wanted("a", 0)).session_id == 100
    with pytest.raises(KafkaError) as refusal:
        begin(cache, session_id, epoch, uses_topic_ids=ids)
    assert refusal.value.code is code


def test_the_final_epoch_closes_the_session() -> None:
    cache = sessions()
    session_id = begin(cache, 0, 0, wanted("a", 0)).session_id
    begin(cache, session_id, -1)
    with pytest.raises(KafkaError):
        begin(cache, session_id, 1)


def test_a_full_cache_gives_no_session_until_one_has_been_unused_long_enough() -> None:
    cache = sessions(slots_max=1)
    old = begin(cache, 0, 0, wanted("a", 0)).session_id
    assert begin(cache, 0, 0, wanted("b", 0), now_ms=EVICTION_MS - 1).session_id == 0
    assert begin(cache, 0, 0, wanted("b", 0), now_ms=EVICTION_MS).session_id not in (0, old)
    with pytest.raises(KafkaError):
        begin(cache, old, 1)


def test_only_news_is_sent_and_a_partition_with_records_goes_to_the_end() -> None:
    cache = sessions()
    session = begin(cache, 0, 0, wanted("a", 0), wanted("a", 1)).session
    assert session is not None
    assert session.is_news("a", answer(0, high_watermark=5))
    assert not session.is_news("a", answer(0, high_watermark=5))
    assert session.is_news("a", answer(0, high_watermark=6))
    assert session.is_news("a", answer(0, high_watermark=6, length=10))
    assert [partition.partition for _, partition in session.wanted()] == [1, 0]


def test_after_an_error_the_watermark_is_told_again() -> None:
    session = begin(sessions(), 0, 0, wanted("a", 0)).session
    assert session is not None
    session.is_news("a", answer(0, high_watermark=5))
    assert session.is_news("a", answer(0, error=3))
    assert session.is_news("a", answer(0, high_watermark=5))


operation = st.tuples(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.integers(0, 9)), max_size=3),
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2)), max_size=2),
)


@given(st.lists(operation, max_size=20))
def test_a_session_means_what_a_client_that_repeats_everything_would_ask(operations) -> None:
    cache = sessions()
    context = begin(cache, 0, 0)
    oracle: dict[tuple[str, int], int] = {}
    for epoch, (changes, forgotten) in enumerate(operations, start=1):
        context = begin(
            cache,
            context.session_id,
            epoch,
            *[wanted(*one) for one in changes],
            forgotten=[(topic, [index]) for topic, index in forgotten],
        )
        for topic, index, offset in changes:
            oracle[topic, index] = offset
        for key in forgotten:
            oracle.pop(key, None)
        asked = {(topic, one.partition): one.fetch_offset for topic, one in context.wanted}
        assert asked == oracle


def test_partitions_that_are_made_up_get_no_session() -> None:
    cache = FetchSessions(2, count(100).__next__, lambda: 50)
    bound = UNKNOWN_PARTITIONS_MAX + 50
    many = [wanted("a", index) for index in range(bound + 1)]
    assert begin(cache, 0, 0, *many).session_id == 0
    assert begin(cache, 0, 0, wanted("x" * 250, 0)).session_id == 0
    assert len(cache) == 0
    session_id = begin(cache, 0, 0, *many[:-1]).session_id
    assert session_id
    begin(cache, session_id, 1)
    with pytest.raises(KafkaError) as refusal:
        begin(cache, session_id, 2, many[-1])
    assert refusal.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(cache) == 0
    session_id = begin(cache, 0, 0, wanted("a", 0)).session_id
    with pytest.raises(KafkaError):
        begin(cache, session_id, 1, wanted("x" * 250, 0))
    assert len(cache) == 0
