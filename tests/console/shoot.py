"""Takes the screenshots: `PYTHONPATH=. python tests/console/shoot.py docs/images CONSOLE`.

CONSOLE is the address that `make up` prints, once its pipeline runs and the README's commands have
greeted: the pictures of the README are taken there, the other pages from a shop of its own, whose
data lies in --data for as long as that takes. Not a test: pictures change with each run.
"""

import argparse
import re
import shutil
import time
from pathlib import Path

import confluent_kafka
from console_world import QUIET, World, create_topics, hang
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = "/usr/bin/chromium"
WARM_UP_S = 60.0
SIZE = {"width": 1360, "height": 850}
PHONE = {"width": 390, "height": 844}

DEMO_PAGES = (
    ("overview", "/"),
    ("pipelines", "/pipelines"),
    ("demo-orders", "/topics/orders"),
    ("demo-group", "/groups/view?id=demo-totals-orders"),
    ("demo-greetings", "/topics/greetings"),
)
PAGES = (
    ("topics", "/topics"),
    ("messages", "/topics/orders"),
    ("partitions", "/topics/orders/partitions"),
    ("settings", "/topics/orders/configs"),
    ("consumers", "/topics/orders/consumers"),
    ("produce", "/topics/orders/produce?partition=0&offset=12"),
    ("groups", "/groups"),
    ("group", "/groups/view?id=warehouse-sync"),
    ("brokers", "/brokers"),
    ("broker", "/brokers/1"),
    ("quorum", "/quorum"),
    ("transactions", "/transactions"),
    ("hanging", "/transactions?hanging=1"),
)


def open_transactions(bootstrap: str) -> list[confluent_kafka.Producer]:
    """One transaction that is open, one that was committed, one that was aborted."""
    producers = []
    for name, ending in (("ledger-1", None), ("ledger-2", "commit"), ("ledger-3", "abort")):
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": name,
                "transaction.timeout.ms": 900_000,
                **QUIET,
            }
        )
        producer.init_transactions(15)
        producer.begin_transaction()
        for number in range(3):
            producer.produce("audit.log", f"booking {number}", f"account-{number}")
        producer.flush(10)
        if ending == "commit":
            producer.commit_transaction(15)
        elif ending == "abort":
            producer.abort_transaction(15)
        producers.append(producer)
    return producers


def shoot(page: Page, address: str, target: Path, theme: str) -> None:
    for name, path in PAGES:
        page.goto(address + path)
        page.wait_for_timeout(700)
        if name == "messages":
            page.locator("tbody tr[data-offset]").nth(2).click()
            page.wait_for_selector(".record")
        if name == "settings":
            page.get_by_label("Find a setting").fill("retention")
            page.locator("summary", has_text=re.compile(r"^retention\.ms$")).click()
            page.wait_for_timeout(400)
        if name == "group":
            page.wait_for_timeout(800)
        page.screenshot(path=target / f"{name}-{theme}.png")
    page.goto(address + "/topics/clicks")
    page.keyboard.press("l")
    page.wait_for_timeout(3500)
    page.screenshot(path=target / f"tail-{theme}.png")
    page.goto(address + "/groups/view?id=nightly-report")
    page.get_by_role("button", name="Reset offsets").click()
    page.get_by_role("button", name="Dry run").click()
    page.wait_for_selector("#reset-plan table")
    page.screenshot(path=target / f"reset-{theme}.png")


def shoot_demo(page: Page, address: str, target: Path, theme: str) -> None:
    for name, path in DEMO_PAGES:
        page.goto(address + path)
        if name == "demo-orders":
            page.keyboard.press("l")
        if name == "demo-greetings":
            page.locator("tbody tr[data-offset]").first.click()
            page.wait_for_selector(".record")
        page.wait_for_timeout(3_000)
        page.screenshot(path=target / f"{name}-{theme}.png")


def shoot_phone(browser: Browser, address: str, target: Path) -> None:
    for theme in ("light", "dark"):
        context = browser.new_context(
            viewport=PHONE,  # type: ignore[arg-type]
            device_scale_factor=2,
            color_scheme=theme,
            has_touch=True,
            is_mobile=True,
        )
        page = context.new_page()
        for name, path in (
            ("overview", "/"),
            ("topics", "/topics"),
            ("messages", "/topics/orders"),
        ):
            page.goto(address + path)
            page.wait_for_timeout(700)
            page.screenshot(path=target / f"phone-{name}-{theme}.png")
        context.close()


def shoot_outage(browser: Browser, world: World, target: Path) -> None:
    """The overview and a page of messages while nobody answers."""
    world.broker.kill()
    for theme in ("light", "dark"):
        context = browser.new_context(viewport=SIZE, color_scheme=theme)  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(world.console.address + "/")
        page.wait_for_selector("#live_state .banner")
        page.wait_for_timeout(6_000)
        page.screenshot(path=target / f"outage-{theme}.png")
        context.close()


def main(target: Path, demo: str, data: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    with World(data) as world:
        world.shop.start()
        producers = open_transactions(world.bootstrap)
        time.sleep(5)
        create_topics(world.bootstrap, {"orders.paid": 3, "revenue": 1, "returns": 3, "ledger": 1})
        hang(world.bootstrap, "ledger")
        time.sleep(WARM_UP_S)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            for theme in ("light", "dark"):
                context = browser.new_context(viewport=SIZE, color_scheme=theme)  # type: ignore[arg-type]
                context.set_default_timeout(90_000)
                shoot_demo(context.new_page(), demo, target, theme)
                shoot(context.new_page(), world.console.address, target, theme)
                context.close()
            shoot_phone(browser, world.console.address, target)
            shoot_outage(browser, world, target)
            browser.close()
        del producers
    shutil.rmtree(data)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("target", type=Path)
    parser.add_argument("console", help="the address that `make up` prints")
    parser.add_argument("--data", type=Path, default=Path("/srv/ottla"))
    given = parser.parse_args()
    main(given.target, given.console, given.data)
