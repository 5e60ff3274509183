"""One connection on a transport made of lists: frames in any pieces, answers in request order."""

import asyncio
from collections.abc import Callable
from struct import pack, unpack_from

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.connection import (
    PENDING_ANSWERS_MAX,
    SMALL_REQUEST_BYTES,
    Behind,
    Connection,
    Deferred,
    FileRange,
)
from ottla.server.read_buffers import (
    BUFFER_BYTES,
    LARGE_BUFFER_BYTES,
    LENT_BUFFERS_MAX,
    LENT_LARGE_BUFFERS_MAX,
    SMALL_BUFFER_BYTES,
    ReadBuffers,
)

HIGH_WATER_BYTES = 64 * 1024


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.reading = True
        self.closed = False
        self.on_full: Callable[[], None] | None = None  # the protocol's pause_writing

    def get_extra_info(self, name, default=None):
        return ("10.0.0.1", 4000) if name == "peername" else default

    def write(self, data) -> None:
        assert not self.closed
        self.written += data
        if self.on_full is not None and len(self.written) > HIGH_WATER_BYTES:
            self.on_full()

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close


BEHIND = {"later": Behind.NONE, "commit": Behind.ALIKE, "produce": Behind.ALL}


class FakeNetwork:
    def __init__(self) -> None:
        self.expected = 0

    def expect_another(self) -> None:
        self.expected += 1


class Owner:
    """Answers each request with its own body, as `kind` (the client id) asks for."""

    request_bytes_max = 1 << 20

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.network = FakeNetwork()
        self.buffers = ReadBuffers()
        self.waiting: list[tuple[asyncio.Future, bytes]] = []
        self.started: list[bytes] = []

    def on_connected(self, connection) -> bool:
        return True

    def on_disconnected(self, connection) -> None: ...

    def dispatch(self, connection, header, buffer, end):
        body = bytes(buffer[header.body_start : end])
        self.started.append(body)
        if header.client_id == "now":
            return body
        if header.client_id == "silent":
            return None
        if header.client_id == "refuse":
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        future = self.loop.create_future()
        self.waiting.append((future, body))
        return Deferred(future, BEHIND[header.client_id])

    def finish(self, which: int) -> None:
        future, body = self.waiting.pop(which % len(self.waiting))
        if not future.cancelled():
            future.set_result(body)


def frame(kind: str, body: bytes) -> bytes:
    client = kind.encode()
    api_key = 8 if kind == "commit" else 3
    head = pack(">hhih", api_key, 0, 7, len(client)) + client
    return pack(">i", len(head) + len(body)) + head + body


def answers(written: bytes) -> list[bytes]:
    found, position = [], 0
    while position < len(written):
        (length,) = unpack_from(">i", written, position)
        found.append(bytes(written[position + 4 : position + 4 + length]))
        position += 4 + length
    return found


def feed(connection: Connection, transport: FakeTransport, data: bytes) -> int:
    """Deliver what fits while the connection reads; how much was taken."""
    taken = 0
    while taken < len(data) and transport.reading and not transport.closed:
        buffer = connection.get_buffer(-1)
        size = min(len(buffer), len(data) - taken)
        assert size > 0
        buffer[:size] = data[taken : taken + size]
        connection.buffer_updated(size)
        taken += size
    return taken


async def connect() -> tuple[Connection, FakeTransport, Owner]:
    owner = Owner(asyncio.get_running_loop())
    connection, transport = Connection(owner), FakeTransport()
    connection.connection_made(transport)
    return connection, transport, owner


kinds = st.sampled_from(["now", "later", "produce", "commit", "silent"])


@given(
    st.lists(st.tuples(kinds, st.binary(min_size=1, max_size=40)), max_size=20),
    st.lists(st.integers(1, 60), max_size=30),
    st.randoms(use_true_random=False),
)
def test_answers_come_in_request_order_whatever_the_pieces(requests, cuts, random) -> None:
    async def scenario() -> None:
        connection, transport, owner = await connect()
        data = b"".join(frame(kind, body) for kind, body in requests)
        position = 0
        for cut in [*cuts, len(data)]:
            piece = data[position : position + cut]
            position += feed(connection, transport, piece)
            if owner.waiting and random.random() < 0.5:
                owner.finish(random.randrange(99))
                await asyncio.sleep(0)
        while position < len(data) or owner.waiting:
            if owner.waiting:
                owner.finish(random.randrange(99))
            await asyncio.sleep(0)
            position += feed(connection, transport, data[position:])
        await asyncio.sleep(0)
        expected = [body for kind, body in requests if kind != "silent"]
        assert answers(transport.written) == expected
        assert transport.reading
        assert connection._own is None

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("requests", "expects"),
    [
        ([("now", b"a")], 1),
        ([("now", b"a"), ("now", b"b")], 0),  # it does not wait for its answers
        ([("now", bytes(SMALL_REQUEST_BYTES))], 0),  # it has much to send
        ([("later", b"a")], 0),
        ([("silent", b"a")], 0),
    ],
)
def test_another_is_expected_of_who_sent_one_small_request(requests, expects) -> None:
    async def scenario() -> None:
        connection, transport, owner = await connect()
        feed(connection, transport, b"".join(frame(kind, body) for kind, body in requests))
        assert owner.network.expected == expects

    asyncio.run(scenario())


def test_nothing_is_started_behind_a_request_that_waits() -> None:
    async def scenario() -> None:
        connection, transport, owner = await connect()
        feed(connection, transport, frame("later", b"first") + frame("now", b"second"))
        assert owner.started == [b"first"]
        assert not transport.reading
        owner.finish(0)
        await asyncio.sleep(0)
        assert answers(transport.written) == [b"first", b"second"]
        assert transport.reading

    asyncio.run(scenario())


def test_produces_are_started_behind_each_other_up_to_a_bound() -> None:
    async def scenario() -> None:
        connection, transport, owner = await connect()
        count = PENDING_ANSWERS_MAX + 10
        feed(connection, transport, b"".join(frame("produce", b"%d" % n) for n in range(count)))
        assert len(owner.started) == PENDING_ANSWERS_MAX
        assert not transport.reading
        while owner.waiting:
            owner.finish(-1)
            await asyncio.sleep(0)
        assert answers(transport.written) == [b"%d" % n for n in range(count)]

    asyncio.run(scenario())


def test_only_its_like_is_started_behind_a_commit() -> None:
    async def scenario() -> None:
        connection, transport, owner = await connect()
        kinds = ["commit", "commit", "now", "commit", "produce", "now"]
        feed(
            connection, transport, b"".join(frame(kind, b"%d" % n) for n, kind in enumerate(kinds))
        )
        assert owner.started == [b"0", b"1"]
        assert not transport.reading
        owner.finish(1)
        await asyncio.sleep(0)
        assert owner.started == [b"0", b"1"]
        owner.finish(0)
        await asyncio.sleep(0)
        assert answers(transport.written) == [b"0", b"1", b"2"]
        assert owner.started == [b"0", b"1", b"2", b"3"]
        owner.finish(0)
        await asyncio.sleep(0)
        assert owner.started == [b"0", b"1", b"2", b"3", b"4", b"5"]
        owner.finish(0)
        await asyncio.sleep(0)
        assert answers(transport.written) == [b"%d" % n for n in range(6)]
        assert transport.reading

    asyncio.run(scenario())


def test_a_frame_larger_than_the_buffer_is_taken_whole() -> None:
    async def scenario() -> None:
        connection, transport, owner = await connect()
        body = bytes(range(256)) * (3 * BUFFER_BYTES // 256)
        owner.request_bytes_max = len(body) + 100
        assert feed(connection, transport, frame("now", body)) == len(body) + 17
        assert answers(transport.written) == [body]

    asyncio.run(scenario())


@pytest.mark.parametrize("length", [-1, 0, 7, (1 << 20) + 1, 2**31 - 1])
def test_an_absurd_length_closes_the_connection_and_allocates_nothing(length: int) -> None:
    async def scenario() -> None:
        connection, transport, owner = await connect()
        feed(connection, transport, pack(">i", length) + b"rubbish")
        assert transport.closed
        assert not owner.started

    asyncio.run(scenario())


def stuck_connections(owner: Owner, count: int, announced: int) -> list[Connection]:
    """Connections that have announced a frame and sent a thousand bytes of it."""
    stuck = []
    for _ in range(count):
        connection, transport = Connection(owner), FakeTransport()
        connection.connection_made(transport)
        feed(connection, transport, pack(">i", announced) + bytes(1000))
        stuck.append(connection)
    return stuck


@pytest.mark.parametrize(
    ("announced", "lent", "lent_bytes"),
    [
        (50 << 20, 0, 0),
        (1 << 20, LENT_LARGE_BUFFERS_MAX, LARGE_BUFFER_BYTES),
        (2000, LENT_BUFFERS_MAX, BUFFER_BYTES),
    ],
)
def test_announced_frames_take_memory_only_as_they_arrive(
    announced: int, lent: int, lent_bytes: int
) -> None:
    async def scenario() -> None:
        owner = Owner(asyncio.get_running_loop())
        owner.request_bytes_max = 100 << 20
        stuck = stuck_connections(owner, 40, announced)
        sizes = [len(connection._own or b"") for connection in stuck]
        assert sizes[:lent] == [lent_bytes] * lent
        pooled = LENT_BUFFERS_MAX * BUFFER_BYTES + LENT_LARGE_BUFFERS_MAX * LARGE_BUFFER_BYTES
        assert sum(sizes) <= pooled + 40 * SMALL_BUFFER_BYTES
        assert sizes.count(SMALL_BUFFER_BYTES) >= 40 - LENT_BUFFERS_MAX - LENT_LARGE_BUFFERS_MAX
        for connection in stuck:
            connection.connection_lost(None)
        again = [len(c._own or b"") for c in stuck_connections(owner, 40, announced)]
        assert again == sizes

    asyncio.run(scenario())


def test_buffers_that_grew_are_not_kept() -> None:
    buffers = ReadBuffers()
    for _ in range(100):
        buffers.give_back(bytearray(BUFFER_BYTES))
        buffers.give_back(bytearray(BUFFER_BYTES + 1))
    sizes = [len(buffers.lend(1, 1)) for _ in range(100)]
    assert sizes.count(BUFFER_BYTES) == LENT_BUFFERS_MAX


def test_answers_before_a_malformed_request_are_still_sent() -> None:
    async def scenario() -> None:
        connection, transport, _ = await connect()
        feed(connection, transport, frame("now", b"good") + frame("refuse", b"x"))
        assert answers(transport.written) == [b"good"]
        assert transport.closed

    asyncio.run(scenario())


def test_a_client_that_does_not_read_is_not_read_from() -> None:
    async def scenario() -> None:
        connection, transport, _ = await connect()
        connection.pause_writing()
        assert not transport.reading
        connection.resume_writing()
        assert transport.reading
        feed(connection, transport, frame("now", b"x"))
        assert answers(transport.written) == [b"x"]

    asyncio.run(scenario())


def test_a_lost_connection_cancels_what_it_waited_for() -> None:
    async def scenario() -> None:
        connection, transport, owner = await connect()
        feed(connection, transport, frame("later", b"x"))
        connection.connection_lost(None)
        await asyncio.sleep(0)  # what was started takes its first step before
        assert owner.waiting[0][0].cancelled()

    asyncio.run(scenario())


def test_draining_answers_what_is_under_way_and_then_closes() -> None:
    async def scenario() -> None:
        connection, transport, owner = await connect()
        feed(connection, transport, frame("later", b"x"))
        connection.close_when_quiet()
        assert not transport.closed
        owner.finish(0)
        await asyncio.sleep(0)
        assert answers(transport.written) == [b"x"]
        assert transport.closed

    asyncio.run(scenario())


def test_a_client_that_asks_and_does_not_read_is_not_answered_on_and_on() -> None:
    """A small request may have a large answer: what waits to be read is bounded all the same."""

    async def scenario() -> None:
        connection, transport, owner = await connect()
        body = bytes(20_000)
        owner.dispatch = lambda connection, header, buffer, end: body  # type: ignore[method-assign]  # large answers
        transport.on_full = connection.pause_writing
        request = frame("now", b"x")
        count = BUFFER_BYTES // len(request)
        feed(connection, transport, request * count)
        bound = 256 * 1024
        assert len(transport.written) <= bound
        assert not transport.reading
        total = 0
        while total < count:  # it reads at last
            found = answers(transport.written)
            assert len(transport.written) <= bound
            total += len(found)
            transport.written.clear()
            if total < count:
                connection.resume_writing()
        assert total == count
        connection.resume_writing()
        assert transport.reading

    asyncio.run(scenario())


@pytest.mark.parametrize("completes", ["long before", "just before", "after", "never"])
@pytest.mark.parametrize("is_first", [True, False])
def test_files_of_an_answer_are_given_back_once_when_the_client_is_gone(
    completes: str, is_first: bool
) -> None:
    async def scenario() -> None:
        connection, transport, owner = await connect()
        released: list[int] = []
        parts = [b"head", FileRange(None, 0, 100_000, lambda: released.append(1))]  # type: ignore[arg-type]  # never sent
        if not is_first:
            feed(connection, transport, frame("produce", b"1"))  # is never answered
        feed(connection, transport, frame("produce", b"2"))
        future, _ = owner.waiting.pop()
        if completes == "long before":
            if is_first:
                return  # it would have been sent
            future.set_result(parts)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        elif completes == "just before":
            future.set_result(parts)
        connection.connection_lost(None)
        if completes == "after":
            future.set_result(parts)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(released) == (completes != "never")
        assert future.cancelled() == (completes == "never")

    asyncio.run(scenario())


def test_requests_that_came_in_part_wait_while_others_fill_the_bound() -> None:
    async def scenario() -> None:
        owner = Owner(asyncio.get_running_loop())
        owner.buffers = ReadBuffers(queued_bytes_max=10_000)
        large = frame("now", bytes(9_000))
        pairs = []
        for _ in range(4):
            connection, transport = Connection(owner), FakeTransport()
            connection.connection_made(transport)
            pairs.append((connection, transport))
            feed(connection, transport, large[:100])
        # Two fit, as the last one may exceed the bound.
        assert [transport.reading for _, transport in pairs] == [True, True, False, False]
        small, small_transport = Connection(owner), FakeTransport()
        small.connection_made(small_transport)
        feed(small, small_transport, frame("now", b"whole"))
        assert answers(small_transport.written) == [b"whole"]
        feed(*pairs[0], large[100:])
        await asyncio.sleep(0)
        assert [transport.reading for _, transport in pairs] == [True, True, True, False]
        pairs[3][0].connection_lost(None)
        pairs[1][0].connection_lost(None)
        feed(*pairs[2], large[100:] + large[:50])
        await asyncio.sleep(0)
        feed(*pairs[2], large[50:])
        assert len(answers(pairs[2][1].written)) == 2
        assert owner.buffers._queued_bytes == 0

    asyncio.run(scenario())


def test_without_a_bound_nobody_waits() -> None:
    async def scenario() -> None:
        owner = Owner(asyncio.get_running_loop())
        for _ in range(50):
            connection, transport = Connection(owner), FakeTransport()
            connection.connection_made(transport)
            feed(connection, transport, frame("now", bytes(100_000))[:100])
            assert transport.reading

    asyncio.run(scenario())
