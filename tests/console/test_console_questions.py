"""How much a page asks of the cluster: nothing, or a few questions whatever its size."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from console_world import World, commit_once, create_topics

from ottla.console.context import ConsoleContext
from ottla.console.kafka.brokers import Versions
from ottla.console.settings import ConsoleSettings
from ottla.console.web.app import create_app
from ottla.protocol.api import ApiKey

# What an open page asks for again and again, and every list: read from memory.
FROM_MEMORY = (
    "/", "/topics", "/topics?sort=-rate&page=2&q=o", "/topics/orders/consumers",
    "/topics/orders/produce", "/groups", "/groups?sort=-lag", "/brokers", "/pipelines",
    "/live/state", "/live/topics/orders", "/live/groups?id=nightly-report",
    "/api/v1/health", "/api/v1/cluster", "/api/v1/topics", "/api/v1/groups", "/api/v1/brokers",
    "/api/v1/events", "/api/v1/history", "/api/v1/search?q=order", "/api/v1/pipelines",
)  # fmt: skip
# What one question cannot tell: the most that it takes on a cluster of one broker.
ASKED_MAX = {
    "/topics/orders": 2,
    "/topics/orders?from=time&time=1h": 3,
    "/topics/orders/partitions": 3,
    "/topics/orders/configs": 1,
    "/groups/view?id=nightly-report": 1,
    "/brokers/1": 1,
    "/quorum": 1,
    "/transactions": 2,
    "/transactions?hanging=1": 5,
}


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run it in a thread of its own: a browser's event loop may be running in this one."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(scenario())).result()


class Counted:
    """A console in this process, and the questions that its brokers were asked."""

    def __init__(self, client: httpx.AsyncClient, console: ConsoleContext) -> None:
        self.client = client
        self.console = console
        self.asked: list[ApiKey] = []

    async def look(self) -> list[ApiKey]:
        """One look at the cluster, and what it asked."""
        self.asked.clear()
        await self.console.sampler.look_again()
        return list(self.asked)


@asynccontextmanager
async def counted(world: World, directory: Path) -> AsyncIterator[Counted]:
    settings = ConsoleSettings(
        client={"bootstrap.servers": world.bootstrap},
        sample_interval_s=3_600,
        pipelines_directory=str(directory),
    )
    app: Any = create_app(settings)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.app.router.lifespan_context(app.app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
    ):
        found = Counted(client, app.app.state.console)
        brokers = found.console.brokers
        ask, ask_any = brokers.ask, brokers.ask_any

        async def counted_ask(
            broker: int, api: ApiKey, spoken: Versions, fields: Mapping[str, Any]
        ) -> Any:
            found.asked.append(api)
            return await ask(broker, api, spoken, fields)

        async def counted_any(api: ApiKey, spoken: Versions, fields: Mapping[str, Any]) -> Any:
            found.asked.append(api)
            return await ask_any(api, spoken, fields)

        brokers.ask, brokers.ask_any = counted_ask, counted_any  # type: ignore[method-assign]
        await found.look()
        yield found


def test_lists_and_what_every_tick_asks_for_come_from_memory(world: World, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with counted(world, tmp_path) as console:
            console.asked.clear()
            for path in FROM_MEMORY:
                assert (await console.client.get(path)).status_code == 200, path
                assert console.asked == [], path

    run(scenario)


def test_other_pages_ask_a_few_questions(world: World, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with counted(world, tmp_path) as console:
            for path, most in ASKED_MAX.items():
                console.asked.clear()
                assert (await console.client.get(path)).status_code == 200, path
                assert 0 < len(console.asked) <= most, (path, console.asked)

    run(scenario)


def test_a_tick_of_a_page_of_messages_reads_no_message(world: World) -> None:
    with world.console.client() as client:
        page = client.get("/topics/orders", params={"filter": "value.n > 1"}).text
    asked_again = [part.split('"')[0] for part in page.split('hx-get="')[1:]]
    assert sorted(asked_again) == ["/live/state", "/live/topics/orders"]


def test_the_answer_to_a_defect_forbids_what_every_answer_forbids(
    world: World, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with counted(world, tmp_path) as console:
            console.console.readers.page = None  # type: ignore[assignment,method-assign]
            for path in ("/topics/orders", "/api/v1/topics/orders/messages"):
                answer = await console.client.get(path)
                assert answer.status_code == 500
                assert "This is a defect" in answer.text
                assert "script-src 'self'" in answer.headers["content-security-policy"]
                assert answer.headers["x-content-type-options"] == "nosniff"

    run(scenario)


def test_a_look_asks_no_more_for_more_topics_and_groups(world: World, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with counted(world, tmp_path) as console:
            before = max([len(await console.look()) for _ in range(5)])
            create_topics(world.bootstrap, {f"zz-many-{n}": 1 for n in range(40)})
            for number in range(20):
                commit_once(world.bootstrap, f"zz-many-{number}", "zz-many-0", 1, 0)
            after = max([len(await console.look()) for _ in range(5)])
            assert "zz-many-7" in (await console.client.get("/groups?size=500")).text
            assert after == before

    run(scenario)
