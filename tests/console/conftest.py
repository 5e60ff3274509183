"""One broker, one shop and one console for the whole run; a browser where there is one."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.brokers import Missing
from console_world import World
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

SIZE = {"width": 1280, "height": 800}
WAIT_MS_MAX = 20_000
# A refused form and a broker that is away are answers, not defects of the page; and htmx calls it
# an error when an update gives way to what a person types.
HARMLESS = ("status of 4", "status of 502", "htmx:sendAbort", "htmx:afterRequest")


def chromium() -> str:
    """Debian's Chromium, or another by that name."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("chromium is not installed")
    return found


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    try:
        made = World(tmp_path_factory.mktemp("console"), rate=120, interval_s=0.5)
    except Missing as error:
        pytest.skip(str(error))
    with made:
        made.shop.start()
        yield made


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = chromium()
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield launched
        launched.close()


class WatchedPage:
    """A page, and everything that its browser complained about."""

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.page = context.new_page()
        self.page.set_default_timeout(WAIT_MS_MAX)
        self.address = address
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("console", self._on_message)
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))

    def _on_message(self, message: object) -> None:
        kind = getattr(message, "type", "")
        text = getattr(message, "text", "")
        if kind == "error" and not any(harmless in text for harmless in HARMLESS):
            self.complaints.append(text)

    def go(self, path: str) -> Page:
        self.page.goto(self.address + path)
        return self.page


@pytest.fixture
def watched(browser: Browser, world: World) -> Iterator[WatchedPage]:
    context = browser.new_context(viewport=SIZE, accept_downloads=True)  # type: ignore[arg-type]
    made = WatchedPage(context, world.console.address)
    yield made
    context.close()
    assert made.complaints == []


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("console-more")
