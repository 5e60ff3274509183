"""Measures the console at scale: `PYTHONPATH=. python tests/console/measure.py`.

Server time of each page with thousands of topics and hundreds of groups, and the frames that a
browser draws while a live tail runs. Not a test: figures of a shared machine decide nothing.
"""

import argparse
import json
import re
import statistics
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
    "/quorum", "/transactions", "/pipelines", "/api/v1/topics", "/api/v1/groups",
    "/api/v1/search?q=topic-19", "/api/v1/history",
)  # fmt: skip

FRAMES = """() => new Promise((done) => {
  const gaps = []; let last = performance.now(); const end = last + 10000;
  const step = (now) => { gaps.push(now - last); last = now;
    now < end ? requestAnimationFrame(step) : done(gaps); };
  requestAnimationFrame(step);
})"""


def fill(bootstrap: str, topics: int, groups: int) -> None:
    began = time.monotonic()
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
    print(f"topics and records: {time.monotonic() - began:.0f} s", flush=True)
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


def measure_pages(console: ConsoleProcess, repeats: int) -> None:
    print(f"{'page':40} {'best ms':>9} {'median ms':>10} {'worst ms':>9} {'cpu ms':>8}")
    with console.client() as client:
        for path in PATHS:
            found = [server_ms(client, path) for _ in range(repeats)]
            times = [wall for wall, _ in found]
            cpu = statistics.median(cpu for _, cpu in found)
            print(
                f"{path:40} {min(times):9.1f} {statistics.median(times):10.1f} {max(times):9.1f} "
                f"{cpu:8.1f}",
                flush=True,
            )


def busy_s(session: Any) -> float:
    """CPU that the page's main thread has used for tasks."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))


def measure_tail(console: ConsoleProcess, bootstrap: str, rate: int) -> None:
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
                producer.produce("tailed", json.dumps({"number": number, "text": "x" * 60}))
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
        status = page.locator("[data-tail-status]").inner_text()
        page.keyboard.press("l")
        browser.close()
    ending.set()
    thread.join()
    seconds = sum(gaps) / 1000
    late = sum(gap > 50 for gap in gaps)
    print(
        f"tail at {rate}/s: {len(gaps) / seconds:.0f} frames/s, p99 gap "
        f"{gaps[int(len(gaps) * 0.99)]:.0f} ms, {late} gaps over 50 ms, "
        f"{busy / seconds:.0%} of the page's thread; page says: {status}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--topics", type=int, default=2000)
    parser.add_argument("--groups", type=int, default=500)
    parser.add_argument("--bootstrap", help="a cluster that is filled already")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--kind", choices=list(Kind), default=Kind.OTTLA)
    parser.add_argument("--tail-rates", type=int, nargs="*", default=[500, 1000, 5000, 50000])
    given = parser.parse_args()
    if given.bootstrap:
        measure(given.bootstrap, given)
        return
    with (
        tempfile.TemporaryDirectory() as directory,
        start_fresh(Kind(given.kind), Path(directory) / "broker") as broker,
    ):
        began = time.monotonic()
        fill(broker.bootstrap, given.topics, given.groups)
        create_topics(broker.bootstrap, {"tailed": 4})
        print(f"{given.topics} topics, {given.groups} groups: {time.monotonic() - began:.0f} s")
        measure(broker.bootstrap, given)


def measure(bootstrap: str, given: argparse.Namespace) -> None:
    with ConsoleProcess(bootstrap) as console:
        with console.client() as client:
            wait_until(lambda: client.get("/api/v1/groups").json()["groups"], "groups", 60)
        time.sleep(5)
        if given.repeats:
            measure_pages(console, given.repeats)
        for rate in given.tail_rates:
            measure_tail(console, bootstrap, rate)


if __name__ == "__main__":
    main()
