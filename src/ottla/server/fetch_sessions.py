"""Which partitions an incremental fetch means, and which of its answers are news (KIP-227).

A consumer of a thousand partitions would otherwise name all of them in every request and hear
of all of them in every response. In a session both sides remember the list: requests name
what changed, responses carry only partitions with records, an error or a moved watermark.

Pure: the caller gives the time and a source of session ids. Owned by the fetch handler.

Invariants: a session's epoch counts its requests, so a repeated or lost request is noticed;
a partition whose records were sent moves behind the others, so that none starves.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.fetch import FetchPartition, FetchPartitionResult

TopicKey: TypeAlias = str | bytes  # a name, or from version 13 on the 16 bytes of an id

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1
# A session unused for this long gives way to a new one (Kafka's default).
EVICTION_MS = 120_000
# Partitions of a session that need not exist, as when a topic is about to be created. A client
# that makes up more of them has no session, and names them in every request.
UNKNOWN_PARTITIONS_MAX = 1000
TOPIC_NAME_LENGTH_MAX = 249  # no topic has a longer name


Wanted: TypeAlias = tuple[TopicKey, FetchPartition]


class _Cached:
    __slots__ = ("high_watermark", "log_start_offset", "wanted")

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.high_watermark = -1
        self.log_start_offset = -1


class Session:
    __slots__ = ("epoch", "id", "last_used_ms", "partitions", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool) -> None:
        self.id = session_id
        self.epoch = 1
        self.last_used_ms = 0
        self.uses_topic_ids = uses_topic_ids
        self.partitions: OrderedDict[tuple[TopicKey, int], _Cached] = OrderedDict()

    def wanted(self) -> list[Wanted]:
        return [cached.wanted for cached in self.partitions.values()]

    def update(
        self, wanted: Iterable[Wanted], forgotten: Iterable[tuple[TopicKey, Iterable[int]]]
    ) -> None:
        for one in wanted:
            topic, partition = one
            key = (topic, partition.partition)
            cached = self.partitions.get(key)
            if cached is None:
                self.partitions[key] = _Cached(one)
            else:
                cached.wanted = one
        for topic, indexes in forgotten:
            for index in indexes:
                self.partitions.pop((topic, index), None)

    def is_news(self, topic: TopicKey, answer: FetchPartitionResult) -> bool:
        """Whether this answer must be sent; remembers what the client then knows."""
        key = (topic, answer.partition)
        cached = self.partitions.get(key)
        if cached is None:
            return True
        is_news = (
            answer.records_length > 0
            or answer.error_code != 0
            or answer.diverging_epoch is not None
            or answer.high_watermark != cached.high_watermark
            or answer.log_start_offset != cached.log_start_offset
        )
        # After an error the client must hear of the watermark again.
        cached.high_watermark = -1 if answer.error_code else answer.high_watermark
        cached.log_start_offset = answer.log_start_offset
        if answer.records_length:
            self.partitions.move_to_end(key)
        return is_news


class Context(NamedTuple):
    """One fetch request after its session was looked up."""

    session: Session | None
    is_incremental: bool
    wanted: list[Wanted]

    @property
    def session_id(self) -> int:
        return self.session.id if self.session is not None else NO_SESSION


class FetchSessions:
    def __init__(
        self,
        slots_max: int,
        new_id: Callable[[], int],
        known_partitions: Callable[[], int] = lambda: 0,
    ) -> None:
        """`known_partitions` says how many partitions there are to fetch."""
        self._slots_max = slots_max
        self._new_id = new_id
        self._known_partitions = known_partitions
        self._sessions: OrderedDict[int, Session] = OrderedDict()  # oldest use first

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self,
        session_id: int,
        epoch: int,
        wanted: list[Wanted],
        forgotten: Iterable[tuple[TopicKey, Iterable[int]]],
        *,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> Context:
        """The partitions that this request means; raises KafkaError as its top-level error."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(session_id, None)
            if epoch == FINAL_EPOCH:
                return Context(None, False, wanted)
            return Context(self._create(wanted, uses_topic_ids, now_ms), False, wanted)
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(wanted, forgotten)
        if len(session.partitions) > self._partitions_max or _has_long_name(wanted):
            del self._sessions[session_id]
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session_id)
        return Context(session, True, session.wanted())

    @property
    def _partitions_max(self) -> int:
        return self._known_partitions() + UNKNOWN_PARTITIONS_MAX

    def _create(self, wanted: list[Wanted], uses_topic_ids: bool, now_ms: int) -> Session | None:
        if len(wanted) > self._partitions_max or _has_long_name(wanted):
            return None
        if len(self._sessions) >= self._slots_max and not self._evict(now_ms):
            return None
        session_id = self._new_id()
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._new_id()
        session = Session(session_id, uses_topic_ids)
        session.last_used_ms = now_ms
        session.update(wanted, ())
        self._sessions[session_id] = session
        return session

    def _evict(self, now_ms: int) -> bool:
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms < EVICTION_MS:
            return False
        del self._sessions[oldest.id]
        return True


def _has_long_name(wanted: Iterable[Wanted]) -> bool:
    return any(len(topic) > TOPIC_NAME_LENGTH_MAX for topic, _ in wanted)
