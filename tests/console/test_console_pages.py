"""Every page in a real browser, against a broker under load: it shows and moves."""

import re

import pytest
from console_world import World, told_when_well, wait_until
from playwright.sync_api import Page, expect
from published_pipeline import pipeline_status, published

from conftest import WatchedPage

PAGES = (
    ("/", told_when_well()[0]),
    ("/topics", "orders"),
    ("/topics/orders", "newest"),
    ("/topics/orders/partitions", "High watermark"),
    ("/topics/orders/configs", "cleanup.policy"),
    ("/topics/orders/consumers", "billing"),
    ("/topics/orders/produce", "Headers"),
    ("/groups", "warehouse-sync"),
    ("/groups/view?id=billing", "Lag over time"),
    ("/brokers", "Log directories"),
    ("/brokers/1", "log.dirs"),
    ("/quorum", "voter"),
    ("/transactions", "Transactional id"),
    ("/transactions?hanging=1", "partitions looked at"),
    ("/pipelines", "Pipelines"),
)


def number(text: str) -> int:
    return int(re.sub(r"\D", "", text) or 0)


def settle(page: Page) -> None:
    """Wait for a look at the cluster: what was loaded has been replaced in place."""
    page.evaluate(
        """() => new Promise((done) =>
            document.body.addEventListener("tick", () => setTimeout(done, 300), { once: true }))"""
    )


@pytest.mark.parametrize(("path", "text"), PAGES)
def test_page_shows_and_stays_whole_when_it_updates(
    watched: WatchedPage, world: World, path: str, text: str
) -> None:
    page = watched.go(path)
    expect(page.locator("main")).to_contain_text(text)
    settle(page)
    expect(page.locator("main")).to_contain_text(text)
    # One of each landmark: an update that swapped in a whole page would double them.
    for landmark in ("main", "header.bar", "nav.side", "h1"):
        expect(page.locator(landmark)).to_have_count(1)
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("main :is(input, select, textarea, button)")]
            .filter((e) => e.type !== "hidden" && !e.labels?.length && !e.textContent.trim()
                && !e.getAttribute("aria-label")).map((e) => e.outerHTML)"""
    )
    assert unnamed == []


def test_partitions_move_live(watched: WatchedPage) -> None:
    page = watched.go("/topics/orders/partitions")
    cell = page.locator("#p-0 td.mono").nth(2)
    before = number(cell.inner_text())
    wait_until(lambda: number(cell.inner_text()) > before, "the high watermark moves")


def test_lag_is_drawn_over_time(watched: WatchedPage) -> None:
    page = watched.go("/groups/view?id=billing")
    expect(page.locator("time-chart canvas")).to_be_visible()
    expect(page.locator("time-chart")).to_have_attribute(
        "aria-label", re.compile("Lag of this group: .* \\d")
    )
    expect(page.locator("text=orders-0").first).to_be_visible()


def test_keyboard_alone_reaches_everything(watched: WatchedPage) -> None:
    page = watched.go("/")
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_url("**/topics")
    page.keyboard.press("j")
    page.keyboard.press("j")
    second = page.locator("tbody tr").nth(1).locator("a")
    expect(second).to_be_focused()
    settle(page)
    expect(second).to_be_focused()
    page.keyboard.press("/")
    page.keyboard.type("order")
    expect(page.locator("#palette-list li").first).to_contain_text("orders")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics/orders")
    page.keyboard.press("f")
    expect(page.locator("input[name=q]")).to_be_focused()
    page.keyboard.press("Escape")
    page.locator("h1").click()
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("]")
    page.wait_for_url("**cursor=**")


def test_the_palette_says_what_is_chosen(watched: WatchedPage) -> None:
    page = watched.go("/")
    page.keyboard.press("Control+k")
    field = page.get_by_role("combobox")
    expect(field).to_have_attribute("aria-expanded", "true")
    expect(field).to_have_attribute("aria-activedescendant", "palette-0")
    page.keyboard.press("ArrowDown")
    expect(field).to_have_attribute("aria-activedescendant", "palette-1")
    expect(page.locator("#palette-1")).to_have_attribute("aria-selected", "true")
    page.keyboard.type("no such thing")
    expect(field).to_have_attribute("aria-expanded", "false")
    expect(field).not_to_have_attribute("aria-activedescendant", re.compile("."))


def test_one_escape_leaves_the_palette(watched: WatchedPage) -> None:
    page = watched.go("/topics")
    page.keyboard.press("/")
    page.keyboard.type("or")
    expect(page.locator("#palette-list li").first).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#palette")).to_be_hidden()


def test_single_keys_can_be_turned_off(watched: WatchedPage) -> None:
    page = watched.go("/topics")
    page.keyboard.press("?")
    page.get_by_label("single keys do this").uncheck()
    page.keyboard.press("Escape")
    page.reload()
    page.keyboard.press("?")
    page.keyboard.press("/")
    expect(page.locator("dialog[open]")).to_have_count(0)
    page.keyboard.press("Control+k")
    expect(page.locator("#palette")).to_be_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_and_fields_stand_out_enough(watched: WatchedPage, theme: str) -> None:
    watched.page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    page = watched.go("/topics/orders/produce")
    colours = page.evaluate(
        """() => { const read = getComputedStyle(document.documentElement);
            const names = ["paper", "surface", "sunken", "raised", "ink", "ink-2", "ink-3",
                "field-line", "good", "good-soft", "warn", "warn-soft", "bad", "bad-soft",
                "accent", "accent-soft"];
            const colour = (name) => [name, read.getPropertyValue("--" + name).trim()];
            return Object.fromEntries(names.map(colour)); }"""
    )
    for ink in ("ink", "ink-2", "ink-3"):
        for ground in ("paper", "surface", "sunken", "raised"):
            assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
    for ground in ("paper", "surface", "raised"):
        assert contrast(colours["field-line"], colours[ground]) >= 3, ground
    for tone in ("good", "warn", "bad", "accent"):
        assert contrast(colours[tone], colours[f"{tone}-soft"]) >= 4.5, tone


def contrast(one: str, other: str) -> float:
    """The ratio of WCAG 2 between two colours."""

    def luminance(colour: str) -> float:
        parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_heads_of_tables_stay_in_sight(watched: WatchedPage) -> None:
    page = watched.go("/topics/orders/configs")
    page.mouse.wheel(0, 1_500)
    expect(page.locator("#settings thead th").first).to_be_in_viewport()


def test_a_font_is_loaded_once(watched: WatchedPage) -> None:
    loaded: list[str] = []
    watched.page.on("request", lambda request: loaded.append(request.url))
    watched.go("/").evaluate("() => document.fonts.ready.then(() => true)")
    fonts = [url for url in loaded if "geist-latin" in url]
    assert len(fonts) == 1, fonts


def test_theme_follows_the_system_and_the_toggle(watched: WatchedPage) -> None:
    page = watched.go("/topics")
    colour = "() => getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(colour)
    page.emulate_media(color_scheme="dark")
    wait_until(lambda: page.evaluate(colour) != light, "the page is dark")
    page.keyboard.press("d")
    assert page.evaluate(colour) == light
    page.reload()
    assert page.evaluate(colour) == light


def test_a_phone_shows_every_page_without_scrolling_sideways(watched: WatchedPage) -> None:
    watched.page.set_viewport_size({"width": 390, "height": 844})
    for path, _ in PAGES:
        page = watched.go(path)
        wide = page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, path
        for tab in page.locator(".tabs [aria-current]").all():
            expect(tab).to_be_in_viewport(ratio=0.9)


def test_topics_are_searched_while_typing(watched: WatchedPage) -> None:
    page = watched.go("/topics")
    page.get_by_label("Search topics").fill("pay")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text("payments")
    assert "q=pay" in page.url


def test_pipelines_are_a_picture(watched: WatchedPage, world: World) -> None:
    with published(world.pipelines, pipeline_status()):
        page = watched.go("/pipelines")
        expect(page.locator("svg.graph .node")).to_have_count(8)
        expect(page.locator("svg.graph .edge")).to_have_count(7)
        expect(page.locator("ul[aria-label='What flows where'] li").first).to_have_text(
            "orders into paid_orders"
        )
        expect(page.locator("main")).to_contain_text("started again after 2 s")
        row = page.get_by_role("row").filter(has_text="paid").first
        expect(row.get_by_role("link")).to_have_attribute("href", "/groups/view?id=billing")
        expect(watched.go("/").locator("#live_tables")).to_contain_text("revenue")
