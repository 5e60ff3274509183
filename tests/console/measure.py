"""Measures the console at scale: `make console-scale`.

Server time of each page with thousands of topics and hundreds of groups, and the frames that a
browser draws while a live tail runs, as tables for docs/console.md. It fails where a page takes
longer than it may, or a tail that is slow enough to be watched skips records or frames. It is run
by hand and on a machine that has nothing else to do: the tests count questions, not time.
"""

import argparse
import json
import re
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import confluent_kafka
import httpx
from bench.brokers import Kind, start_fresh
from console_world import QUIET, ConsoleProcess, create_topics, wait_until

from ottla.client import Client, ClientConfig, CommittedOffset, TopicPartition, commit_offsets

PATHS = (
    "/", "/topics", "/topics?sort=-rate&page=7", "/topics?q=topic-1", "/topics/topic-0001",
    "/topics/topic-0001?from=time&time=1h", "/topics/topic-0001/partitions",
    "/topics/topic-0001/configs", "/topics/topic-0001/consumers", "/topics/topic-0001/produce",
    "/groups", "/groups?sort=-lag&page=3", "/groups/view?id=group-0001", "/brokers", "/brokers/1",
    "/quorum", "/transactions", "/transactions?hanging=1", "/pipelines", "/live/state",
    "/live/topics/topic-0001", "/api/v1/topics", "/api/v1/groups", "/api/v1/search?q=topic-19",
    "/api/v1/history",
)  # fmt: skip
PAGE_MS_MAX = 300.0
# Tails up to this rate show everything, and a screen of sixty frames a second misses none for long.
WATCHED_PER_S_MAX = 1_000
FRAME_GAP_MS_MAX = 50.0

FRAMES = """() => new Promise((done) => {
  const gaps = []; let last = performance.now(); const end = last + 10000;
  const step = (now) => { gaps.push(now - last); last = now;
    now < end ? requestAnimationFrame(step) : done(gaps); };
  requestAnimationFrame(step);
})"""


def fill(bootstrap: str, topics: int, groups: int) -> None:
    for start in range(0, topics, 200):
        create_topics(
            bootstrap, {f"topic-{n:04}": 3 for n in range(start, min(start + 200, topics))}
        )
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **QUIET})
    # A producer asks for the metadata of every topic it writes to, again and again.
    for number in range(min(topics, 100)):
        for _ in range(20):
            producer.produce(f"topic-{number:04}", json.dumps({"n": number}), str(number))
        producer.poll(0)
    producer.flush(120)
    with Client(ClientConfig.of(bootstrap)) as client:
        for number in range(groups):
            offsets = {
                TopicPartition(f"topic-{(number * 3 + t) % topics:04}", p): CommittedOffset(1)
                for t in range(3)
                for p in range(3)
            }
            commit_offsets(client, f"group-{number:04}", offsets)


def server_ms(client: httpx.Client, path: str) -> tuple[float, float]:
    """Wall and CPU time of one page, as the server tells them."""
    answer = client.get(path)
    answer.raise_for_status()
    wall, cpu = re.findall(r"dur=([\d.]+)", answer.headers["server-timing"])
    return float(wall), float(cpu)


def measure_pages(console: ConsoleProcess, repeats: int) -> list[str]:
    """The table of pages; returns what took too long."""
    print("| page | median ms | worst ms | CPU ms |\n|---|---|---|---|")
    slow = []
    with console.client() as client:
        for path in PATHS:
            found = [server_ms(client, path) for _ in range(repeats)]
            wall = statistics.median(wall for wall, _ in found)
            worst = max(wall for wall, _ in found)
            cpu = statistics.median(cpu for _, cpu in found)
            print(f"| `{path}` | {wall:.1f} | {worst:.1f} | {cpu:.1f} |", flush=True)
            if wall > PAGE_MS_MAX:
                slow.append(f"{path} took {wall:.0f} ms, more than {PAGE_MS_MAX:.0f}")
    return slow


def busy_s(session: Any) -> float:
    """CPU that the page's main thread has used for tasks."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))


def measure_tail(console: ConsoleProcess, bootstrap: str, rate: int, size: int) -> list[str]:
    """A row of the table of tails; returns what a person would have missed."""
    from playwright.sync_api import sync_playwright

    ending = threading.Event()

    def produce() -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 10, **QUIET}
        )
        number, began = 0, time.monotonic()
        while not ending.is_set():
            due = int((time.monotonic() - began) * rate)
            while number < due:
                producer.produce("tailed", json.dumps({"number": number, "text": "x" * size}))
                number += 1
            producer.poll(0)
            time.sleep(0.005)
        producer.flush(10)

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        page = browser.new_page()
        page.goto(f"{console.address}/topics/tailed")
        page.keyboard.press("l")
        page.wait_for_timeout(3000)
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        before = busy_s(session)
        gaps = sorted(page.evaluate(FRAMES))
        busy = busy_s(session) - before
        page.keyboard.press("l")
        seen, drawn, skipped = page.locator("live-tail").evaluate(
            "(tail) => [tail.seen, tail.drawn, tail.skipped]"
        )
        browser.close()
    ending.set()
    thread.join()
    seconds = sum(gaps) / 1000
    gap_ms = gaps[int(len(gaps) * 0.99)]
    print(
        f"| {rate:,} | {size + 30:,} | {seen:,} | {drawn:,} | {skipped:,} | "
        f"{len(gaps) / seconds:.0f} | {gap_ms:.0f} | {busy / seconds:.0%} |",
        flush=True,
    )
    missed = []
    if seen != drawn + skipped:
        missed.append(f"at {rate}/s, {seen - drawn - skipped} were neither drawn nor told")
    if rate <= WATCHED_PER_S_MAX and skipped:
        missed.append(f"at {rate}/s of {size} bytes, {skipped} were skipped")
    if rate <= WATCHED_PER_S_MAX and gap_ms > FRAME_GAP_MS_MAX:
        missed.append(f"at {rate}/s of {size} bytes, frames came {gap_ms:.0f} ms apart")
    return missed


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--topics", type=int, default=2000)
    parser.add_argument("--groups", type=int, default=500)
    parser.add_argument("--bootstrap", help="a cluster that is filled already")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--kind", choices=list(Kind), default=Kind.OTTLA)
    parser.add_argument("--tail-rates", type=int, nargs="*", default=[500, 1_000, 5_000, 50_000])
    given = parser.parse_args()
    if given.bootstrap:
        sys.exit("\n".join(measure(given.bootstrap, given)) or None)
    with (
        tempfile.TemporaryDirectory() as directory,
        start_fresh(Kind(given.kind), Path(directory) / "broker") as broker,
    ):
        fill(broker.bootstrap, given.topics, given.groups)
        create_topics(broker.bootstrap, {"tailed": 4})
        missed = measure(broker.bootstrap, given)
    sys.exit("\n".join(missed) or None)  # an empty message would be a failure


def measure(bootstrap: str, given: argparse.Namespace) -> list[str]:
    missed = []
    with ConsoleProcess(bootstrap) as console:
        with console.client() as client:
            wait_until(
                lambda: len(client.get("/api/v1/groups").json()["groups"]) >= given.groups,
                "groups",
                60,
            )
        if given.repeats:
            missed += measure_pages(console, given.repeats)
        print(
            "\n| records/s | bytes each | passed | drawn | skipped | frames/s | p99 gap ms "
            "| page's thread |\n|---|---|---|---|---|---|---|---|"
        )
        for rate in given.tail_rates:
            missed += measure_tail(console, bootstrap, rate, 60)
        if given.tail_rates:
            missed += measure_tail(console, bootstrap, 1_000, 10_000)
    return missed


if __name__ == "__main__":
    main()
