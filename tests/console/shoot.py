"""Takes the screenshots: `PYTHONPATH=. python tests/console/shoot.py docs/images`.

Not a test: only a make target runs it, as pictures that change with every run have no place in one.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import confluent_kafka
from console_world import QUIET, World, create_topics
from playwright.sync_api import Browser, Page, sync_playwright

from ottla.spark.pipelines.run_directory import RunDirectory

CHROMIUM = "/usr/bin/chromium"
WARM_UP_S = 45.0
SIZE = {"width": 1360, "height": 850}
PHONE = {"width": 390, "height": 844}

PAGES = (
    ("overview", "/"),
    ("topics", "/topics"),
    ("messages", "/topics/orders"),
    ("partitions", "/topics/orders/partitions"),
    ("settings", "/topics/orders/configs"),
    ("consumers", "/topics/orders/consumers"),
    ("produce", "/topics/orders/produce?partition=0&offset=12"),
    ("groups", "/groups"),
    ("group", "/groups/view?id=warehouse-sync"),
    ("brokers", "/brokers"),
    ("quorum", "/quorum"),
    ("transactions", "/transactions"),
    ("pipelines", "/pipelines"),
)


def pipeline_status() -> dict[str, Any]:
    """What a running pipeline publishes; see ottla.spark.pipelines.status."""
    now_ms = int(time.time() * 1000)
    nodes = [
        ("topic", "orders"), ("topic", "payments"), ("source", "orders"), ("source", "payments"),
        ("transform", "paid_orders"), ("transform", "revenue"), ("sink", "paid"),
        ("sink", "revenue_by_country"), ("topic", "orders.paid"), ("topic", "revenue"),
    ]  # fmt: skip
    edges = [
        ("topic:orders", "source:orders"), ("topic:payments", "source:payments"),
        ("source:orders", "transform:paid_orders"), ("source:payments", "transform:paid_orders"),
        ("transform:paid_orders", "sink:paid"), ("sink:paid", "topic:orders.paid"),
        ("transform:paid_orders", "transform:revenue"),
        ("transform:revenue", "sink:revenue_by_country"),
        ("sink:revenue_by_country", "topic:revenue"),
    ]  # fmt: skip
    query = {
        "id": "1", "run_id": "1", "delivery": "exactly_once", "watermark": None, "at_ms": now_ms,
    }  # fmt: skip
    return {
        "name": "revenue", "state": "running", "pid": 1, "definition": "revenue.toml",
        "master": "local[2]", "started_at_ms": now_ms - 900_000, "updated_at_ms": now_ms,
        "restarts": 1, "next_start_at_ms": None, "metrics_url": None,
        "last_error": {"message": "The broker closed the connection; started again after 2 s.",
                       "at_ms": now_ms - 700_000},
        "graph": {
            "nodes": [{"id": f"{k}:{v}", "kind": k, "label": v} for k, v in nodes],
            "edges": [list(edge) for edge in edges],
        },
        "queries": [
            {**query, "name": "paid", "topic": "orders.paid", "batch_id": 412, "rows_total": 48_210,
             "input_rows_per_second": 101.2, "processed_rows_per_second": 388.0,
             "batch_duration_ms": 412, "lag": {"orders": 37}, "state_rows": 1204},
            {**query, "name": "revenue_by_country", "topic": "revenue", "batch_id": 409,
             "rows_total": 48_020, "input_rows_per_second": 99.0,
             "processed_rows_per_second": 341.5, "batch_duration_ms": 530,
             "lag": {"orders": 61}, "state_rows": 6},
        ],
    }  # fmt: skip


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
            page.locator("summary", has_text="retention.ms").first.click()
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


def shoot_phone(browser: Browser, address: str, target: Path) -> None:
    context = browser.new_context(
        viewport=PHONE, device_scale_factor=2, color_scheme="light", has_touch=True, is_mobile=True
    )
    page = context.new_page()
    for name, path in (("overview", "/"), ("topics", "/topics"), ("messages", "/topics/orders")):
        page.goto(address + path)
        page.wait_for_timeout(700)
        page.screenshot(path=target / f"phone-{name}.png")
    context.close()


def main(target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory, World(Path(directory)) as world:
        world.shop.start()
        published = world.pipelines / "revenue"
        published.mkdir()
        running = RunDirectory(world.pipelines, "revenue")
        running.acquire()
        (published / "status.json").write_text(json.dumps(pipeline_status()))
        producers = open_transactions(world.bootstrap)
        time.sleep(5)
        create_topics(world.bootstrap, {"orders.paid": 3, "revenue": 1, "returns": 3})
        time.sleep(WARM_UP_S)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            for theme in ("light", "dark"):
                context = browser.new_context(viewport=SIZE, color_scheme=theme)  # type: ignore[arg-type]
                context.set_default_timeout(90_000)
                shoot(context.new_page(), world.console.address, target, theme)
                context.close()
            shoot_phone(browser, world.console.address, target)
            browser.close()
        running.release()
        del producers


if __name__ == "__main__":
    main(Path(sys.argv[1]))
