"""What a person does in the console: read, search, follow, produce, change, reset."""

import json
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from zoneinfo import ZoneInfo

import confluent_kafka
import pytest
from console_world import (
    BIG_NUMBER,
    QUIET,
    ConsoleProcess,
    World,
    commit_once,
    create_topics,
    hang,
    told_when_well,
    wait_until,
)
from playwright.sync_api import Browser, Locator, Page, expect

from conftest import WatchedPage

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>\"'{{7*7}}"


def produce(world: World, topic: str, *values: object, key: str | None = None) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": world.bootstrap, **QUIET})
    for value in values:
        data = value if isinstance(value, bytes) else json.dumps(value)
        producer.produce(topic, data, key, headers=[("n", HOSTILE)])
    assert producer.flush(20) == 0


def rows(page: Page) -> list[str]:
    return page.locator("tbody tr[data-offset] .value").all_inner_texts()


def test_messages_by_offset_partition_time_and_filter(watched: WatchedPage, world: World) -> None:
    create_topics(world.bootstrap, {"read": 2})
    produce(world, "read", *({"n": n, "big": BIG_NUMBER + n} for n in range(120)), key="k")
    page = watched.go("/topics/read")
    assert len(rows(page)) == 50
    assert f'"big": {BIG_NUMBER + 119}' in rows(page)[0]
    page.get_by_role("link", name="Older").click()
    page.get_by_role("link", name="Older").click()
    expect(page.locator("tbody tr[data-offset]")).to_have_count(20)
    assert '"n": 0,' in rows(page)[-1]
    page.get_by_label("From").select_option("offset")
    page.locator("input[name=offset]").fill("7")
    page.get_by_role("button", name="Read").click()
    page.wait_for_url("**offset=7**")
    assert '"n": 7,' in rows(page)[0]
    page.get_by_label("From").select_option("time")
    page.locator("input[name=time]").fill("1h")
    page.locator("input[name=filter]").fill(f"value.big == {BIG_NUMBER + 33}")
    page.get_by_role("button", name="Read").click()
    expect(page.locator("tbody tr[data-offset]")).to_have_count(1)
    assert '"n": 33,' in rows(page)[0]
    page.locator("input[name=filter]").fill("value.n >")
    page.get_by_role("button", name="Read").click()
    expect(page.get_by_role("alert")).to_contain_text("ends too early")


def test_a_message_opens_in_place_and_is_shown_exactly(watched: WatchedPage, world: World) -> None:
    create_topics(world.bootstrap, {"shown": 1})
    produce(world, "shown", {"id": BIG_NUMBER, "text": HOSTILE}, b"\x00\x01\xfe", key=HOSTILE)
    page = watched.go("/topics/shown?from=oldest")
    page.locator("tbody tr[data-offset='0']").click()
    record = page.locator(".record")
    expect(record.locator("pre.json")).to_contain_text(str(BIG_NUMBER))
    expect(record.locator("pre.json")).to_contain_text("onerror=alert(1)")
    expect(record.locator(".headers")).to_contain_text(HOSTILE)
    expect(record.locator("img, script")).to_have_count(0)
    page.locator("tbody tr[data-offset='0']").click()
    expect(record).to_have_count(0)
    page.get_by_role("button", name="Open message 1 of partition 0").press("Enter")
    expect(page.locator(".hex")).to_contain_text("00 01 fe")


def test_live_tail_shows_stops_and_resumes_without_losing_any(
    watched: WatchedPage, world: World
) -> None:
    create_topics(world.bootstrap, {"tailed": 2})
    page = watched.go("/topics/tailed")
    page.get_by_role("button", name="Live tail").click()
    expect(page.locator("[data-tail-status]")).to_contain_text("waiting")
    produce(world, "tailed", {"n": 1})
    expect(page.locator("tbody")).to_contain_text('{"n": 1}')
    page.get_by_role("button", name="Stop").click()
    other = page.context.new_page()
    other.goto(page.url)
    other.get_by_role("button", name="Live tail").click()
    expect(other.locator("[data-tail-status]")).to_contain_text("waiting")
    produce(world, "tailed", {"n": 2}, {"n": 3})
    expect(other.locator("tbody tr[data-offset]")).to_have_count(2)
    other.close()
    assert len(rows(page)) == 1
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("tbody tr[data-offset]")).to_have_count(3)
    expect(page.locator("[data-tail-status]")).to_contain_text("3 messages")


def test_live_tail_keeps_telling_of_a_partition_that_nobody_leads(
    watched: WatchedPage, world: World
) -> None:
    create_topics(world.bootstrap, {"half-led": 2})
    page = watched.go("/topics/half-led")
    page.get_by_role("button", name="Live tail").click()
    expect(page.locator("[data-tail-status]")).to_contain_text("waiting")
    # What the console sends while the other partition goes on: one broker has no such moment.
    page.locator("live-tail").evaluate(
        """(tail) => {
          const send = (name, data) => tail.source.dispatchEvent(new MessageEvent(name, { data }));
          send("trouble", "Partition 1: Nobody leads it now.");
          send("records", "1 0 0 0:1,1:0\\n");
        }"""
    )
    expect(page.locator("[data-tail-status]")).to_contain_text("1 message ")
    expect(page.locator("[data-tail-trouble]")).to_have_text("Partition 1: Nobody leads it now.")


def test_produce_with_key_and_headers_and_copy_from_a_message(
    watched: WatchedPage, world: World
) -> None:
    create_topics(world.bootstrap, {"written": 1})
    page = watched.go("/topics/written/produce")
    page.get_by_label("Key", exact=True).fill("k-1")
    page.locator("textarea[name=value]").fill('{"hello": 9007199254740993}')
    page.get_by_label("Header name").fill("source")
    page.get_by_label("Header value").fill("form")
    page.get_by_role("button", name="Produce").click()
    expect(page.locator("#produce-answer")).to_contain_text("partition 0 at offset 0")
    page.get_by_role("link", name="Show it").click()
    page.locator("tbody tr[data-offset='0']").click()
    expect(page.locator(".record .headers")).to_contain_text("form")
    page.get_by_role("link", name="Produce a copy").click()
    expect(page.get_by_label("Key", exact=True)).to_have_value("k-1")
    expect(page.get_by_label("Header value")).to_have_value("form")
    page.locator("textarea[name=value]").fill("second")
    page.get_by_role("button", name="Produce").click()
    expect(page.locator("#produce-answer")).to_contain_text("offset 1")
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": world.bootstrap, "group.id": "check", **QUIET}
    )
    consumer.assign([confluent_kafka.TopicPartition("written", 0, 0)])
    found = consumer.consume(2, 15)
    consumer.close()
    assert [(m.key(), m.value(), m.headers()) for m in found] == [
        (b"k-1", b'{"hello": 9007199254740993}', [("source", b"form")]),
        (b"k-1", b"second", [("source", b"form")]),
    ]


def test_a_topic_is_created_checked_altered_and_deleted(watched: WatchedPage) -> None:
    page = watched.go("/topics")
    page.get_by_role("button", name="New topic").click()
    page.get_by_label("Name").fill("made-here")
    page.get_by_label("Setting").first.fill("retention.ms")
    page.locator("input[name=config_value]").first.fill("soon")
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#create-topic .banner.bad")).to_contain_text("retention.ms")
    page.locator("input[name=config_value]").first.fill("3600000")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page).to_have_url(re.compile(r"/topics/made-here$"))
    page.get_by_role("link", name="Settings").click()
    row = page.locator("tr", has=page.locator("summary", has_text=re.compile(r"^retention\.ms$")))
    expect(row).to_contain_text("3600000")
    expect(row).to_contain_text("topic")
    row.locator("summary").click()
    row.get_by_label("Value of retention.ms").fill("-7")
    row.get_by_role("button", name="Set").click()
    expect(row.locator(".banner.bad")).to_be_visible()
    expect(row.get_by_label("Value of retention.ms")).to_have_value("-7")
    row.get_by_label("Value of retention.ms").fill("7200000")
    row.get_by_role("button", name="Set").click()
    expect(row.locator(".banner.good")).to_contain_text("7200000")
    expect(row.locator("td.config-value").first).to_have_text("7200000")
    row.get_by_role("button", name="Back to default").click()
    expect(row.locator(".banner.good")).to_contain_text("back to its default")
    expect(row.locator("td.config-value").first).to_have_text("604800000")
    expect(row.get_by_role("button", name="Back to default")).to_have_count(0)
    page.get_by_role("link", name="Partitions").click()
    page.get_by_placeholder("made-here").fill("made-her")
    page.get_by_role("button", name="Delete topic").click()
    expect(page.locator("#partition-answer")).to_contain_text("Type the topic's name")
    page.get_by_placeholder("made-here").fill("made-here")
    page.get_by_role("button", name="Delete topic").click()
    expect(page).to_have_url(re.compile(r"/topics$"))
    expect(page.locator("tbody")).not_to_contain_text("made-here")


def test_offsets_are_reset_as_the_dry_run_showed(watched: WatchedPage, world: World) -> None:
    group = f"reset {HOSTILE}"
    create_topics(world.bootstrap, {"reset-me": 2})
    for key in range(20):  # keys, as a producer without them may write to one partition only
        produce(world, "reset-me", key, key, key=str(key))
    commit_once(world.bootstrap, group, "reset-me", 2, 3)
    page = watched.go("/groups")
    wait_until(lambda: page.reload() and page.get_by_role("link", name=group).count(), "the group")
    page.get_by_role("link", name=group).click()
    expect(page.locator("h1")).to_have_text(group)
    page.get_by_role("button", name="Reset offsets").click()
    page.locator("select[name=strategy]").select_option("shift")
    page.get_by_label("Number").fill("-2")
    page.get_by_role("button", name="Dry run").click()
    plan = page.locator("#reset-plan tbody tr")
    expect(plan).to_have_count(2)
    expect(plan.first).to_contain_text("-2")
    page.get_by_role("button", name="Apply to 2 partitions").click()
    expect(page.locator("#reset-plan")).to_contain_text("were reset")
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": world.bootstrap, "group.id": group, **QUIET}
    )
    asked = [confluent_kafka.TopicPartition("reset-me", p) for p in range(2)]
    assert [found.offset for found in consumer.committed(asked, 15)] == [1, 1]
    consumer.close()


def test_offsets_of_a_running_group_are_not_reset(watched: WatchedPage) -> None:
    page = watched.go("/groups/view?id=billing")
    page.get_by_role("button", name="Reset offsets").click()
    page.get_by_role("button", name="Dry run").click()
    expect(page.locator("#reset-plan")).to_contain_text("stop its consumers first")
    page.get_by_role("button", name=re.compile("Apply to")).click()
    expect(page.locator("#reset-plan .banner.bad")).to_be_visible()


def test_exports_are_what_the_page_shows(watched: WatchedPage, world: World) -> None:
    create_topics(world.bootstrap, {"exported": 1})
    produce(world, "exported", *({"n": n} for n in range(5)), key="=1+1")
    page = watched.go("/topics/exported?from=oldest")
    with page.expect_download() as lines:
        page.get_by_role("link", name="JSONL").click()
    found = [json.loads(line) for line in lines.value.path().read_text().splitlines()]
    assert [json.loads(one["value"])["n"] for one in found] == list(range(5))
    with page.expect_download() as table:
        page.get_by_role("link", name="CSV").click()
    text = table.value.path().read_text()
    assert text.count("'=1+1") == 5


@contextmanager
def broker_away(world: World) -> Iterator[None]:
    """The broker is killed for the length of the block, and back after it: it is everybody's."""
    world.broker.kill()
    try:
        yield
    finally:
        world.broker.start()
        with world.console.client() as client:
            wait_until(lambda: client.get("/api/v1/health").json()["is_reachable"], "an answer")


def verdict(page: Page) -> Locator:
    return page.locator("#live .verdict")


def test_a_broker_that_is_killed_and_returns_is_told_on_the_open_page(
    watched: WatchedPage, world: World
) -> None:
    page = watched.go("/")
    expect(page.locator("#live_state")).to_contain_text(told_when_well()[1], timeout=30_000)
    with broker_away(world):
        expect(verdict(page)).to_contain_text("does not answer", timeout=30_000)
        expect(page.locator("#live_state")).to_contain_text("no answer")
        expect(page.locator("#live_state .banner")).to_contain_text("what was known")
        expect(page.locator(".figure").first).to_have_text("–")  # no figure of the past stays
        page.set_viewport_size({"width": 390, "height": 844})
        expect(page.locator("#live_state .state")).to_be_in_viewport()
        expect(page.locator("#live_state .banner")).to_be_in_viewport()
    expect(page.locator("#live_state .banner")).to_have_count(0, timeout=30_000)
    expect(verdict(page)).not_to_contain_text("does not answer")
    expect(page.locator(".timeline")).to_contain_text("The cluster answers again")


def test_no_page_takes_an_outage_for_an_empty_cluster(watched: WatchedPage, world: World) -> None:
    watched.go("/topics/orders")
    with broker_away(world):
        page = watched.go("/topics/orders")
        expect(page.locator("main .banner.bad").last).to_be_visible()
        expect(page.locator("tbody")).to_contain_text("Nothing was read.")
        page = watched.go("/groups/view?id=billing")
        expect(page.locator("#live")).to_contain_text("Who is a member is not known now.")
        page = watched.go("/transactions")
        expect(page.locator("#live")).to_contain_text("is not known now")
        page = watched.go("/topics/orders/partitions")
        expect(page.get_by_role("alert").first).to_contain_text("The cluster does not answer")
        with world.console.client() as client:
            for path in ("/api/v1/topics/orders/messages", "/topics/orders/export?format=csv"):
                assert client.get(path).status_code == 502, path
    page = watched.go("/topics/orders")
    expect(page.locator("tbody tr[data-offset]").first).to_be_visible()


def test_a_live_tail_goes_on_across_a_kill_and_loses_nothing(
    watched: WatchedPage, world: World
) -> None:
    create_topics(world.bootstrap, {"survived": 2})
    page = watched.go("/topics/survived")
    page.get_by_role("button", name="Live tail").click()
    expect(page.locator("[data-tail-status]")).to_contain_text("waiting")
    produce(world, "survived", {"n": 1}, key="a")
    expect(page.locator("tbody")).to_contain_text('{"n": 1}')
    with broker_away(world):
        expect(page.locator("[data-tail-trouble]")).to_be_visible(timeout=30_000)
    produce(world, "survived", {"n": 2}, key="a")
    produce(world, "survived", {"n": 3}, key="b")
    expect(page.locator("tbody tr[data-offset]")).to_have_count(3, timeout=30_000)
    expect(page.locator("[data-tail-trouble]")).to_be_hidden()
    expect(page.locator("[data-tail-status]")).to_contain_text("3 messages")


def test_a_live_tail_begun_in_an_outage_follows_when_it_is_over(
    watched: WatchedPage, world: World
) -> None:
    create_topics(world.bootstrap, {"awaited": 2})
    page = watched.go("/topics/awaited")
    with broker_away(world):
        page.get_by_role("button", name="Live tail").click()
        expect(page.locator("[data-tail-trouble]")).to_contain_text("Nobody leads it")
    expect(page.locator("[data-tail-trouble]")).to_be_hidden(timeout=30_000)
    produce(world, "awaited", {"n": 1})
    expect(page.locator("tbody")).to_contain_text('{"n": 1}', timeout=30_000)


def test_a_console_that_ended_is_told_on_the_open_page(browser: Browser, world: World) -> None:
    with ConsoleProcess(world.bootstrap) as console:
        page = browser.new_page()
        page.goto(console.address + "/topics")
        expect(page.locator("live-pulse .banner")).to_be_hidden()
        console.close()
        expect(page.locator("live-pulse .banner")).to_be_visible(timeout=20_000)
        expect(page.locator("#live_state .state")).not_to_be_visible()
        page.close()


def test_a_tail_draws_what_it_counts(watched: WatchedPage, world: World) -> None:
    create_topics(world.bootstrap, {"drawn": 2})
    page = watched.go("/topics/drawn")
    page.get_by_role("button", name="Live tail").click()
    expect(page.locator("[data-tail-status]")).to_contain_text("waiting")
    for _ in range(3):
        produce(world, "drawn", *range(150), key="k")
    expect(page.locator("[data-tail-status]")).to_contain_text("450 messages")
    page.get_by_role("button", name="Stop").click()
    told = page.locator("live-tail").evaluate(
        "(tail) => [tail.seen, tail.drawn, tail.skipped, tail.waiting.length, tail.frame]"
    )
    assert told == [450, 450, 0, 0, None]
    offsets = [int(row) for row in page.locator("tbody tr[data-offset]").evaluate_all(
        "(rows) => rows.map((row) => row.dataset.offset)"
    )]  # fmt: skip
    assert offsets == list(range(449, -1, -1))  # the newest first, each once


def test_a_hidden_tab_lets_go_of_its_tail_and_misses_nothing(
    watched: WatchedPage, world: World
) -> None:
    create_topics(world.bootstrap, {"hidden": 1})
    page = watched.go("/topics/hidden")
    page.get_by_role("button", name="Live tail").click()
    expect(page.locator("[data-tail-status]")).to_contain_text("waiting")
    show = """(hidden) => {
        Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
        document.dispatchEvent(new Event("visibilitychange")); }"""
    page.evaluate(show, True)
    assert page.locator("live-tail").evaluate("(tail) => tail.source") is None
    produce(world, "hidden", {"n": 1}, {"n": 2})
    page.evaluate(show, False)
    expect(page.locator("tbody tr[data-offset]")).to_have_count(2)


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        ((4711).to_bytes(8, "big"), b"text", []),
        (b"two\nlines", b"\nbegins with a line end\r\nand has others", [("h", b"a\nb")]),
        (b"", None, [("null", None), ("empty", b""), ("", b"no name")]),
        (None, b"", [("twice", b"1"), ("twice", b"2")]),
    ],
)
def test_a_copy_is_the_same_message_byte_for_byte(
    watched: WatchedPage,
    world: World,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
) -> None:
    topic = f"copied-{uuid.uuid4().hex[:8]}"
    create_topics(world.bootstrap, {topic: 1})
    producer = confluent_kafka.Producer({"bootstrap.servers": world.bootstrap, **QUIET})
    producer.produce(topic, value, key, headers=headers)  # type: ignore[arg-type]
    assert producer.flush(20) == 0
    page = watched.go(f"/topics/{topic}/produce?partition=0&offset=0")
    page.get_by_role("button", name="Produce").click()
    expect(page.locator("#produce-answer")).to_contain_text("offset 1")
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": world.bootstrap, "group.id": "check", **QUIET}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    first, second = consumer.consume(2, 15)
    consumer.close()
    for one in (first, second):
        assert (one.key(), one.value(), one.headers() or []) == (key, value, headers)


def test_a_hanging_transaction_is_found_and_told(watched: WatchedPage, world: World) -> None:
    create_topics(world.bootstrap, {"hung": 1})
    hang(world.bootstrap, "hung")
    with world.console.client() as client:
        wait_until(lambda: client.get("/api/v1/topics/hung").is_success, "the topic is known")
    page = watched.go("/transactions")
    page.get_by_label("Silent for at least").fill("1h")
    page.get_by_role("button", name="Look for hanging ones").click()
    expect(page.locator(".banner.good")).to_contain_text("No transaction is hanging")
    page.get_by_label("Silent for at least").fill("15m")
    page.get_by_role("button", name="Look for hanging ones").click()
    expect(page.get_by_text("1 transaction that no coordinator knows")).to_be_visible()
    expect(page.locator("tbody tr", has_text="4711")).to_contain_text("hung")
    with world.console.client() as client:
        found = client.get("/api/v1/transactions/hanging").json()
    assert [(one["topic"], one["producer_id"]) for one in found["hanging"]] == [("hung", 4711)]
    assert (found["untold_count"], found["silent_brokers"]) == (0, [])


def test_times_are_in_the_zone_that_the_page_shows(browser: Browser, world: World) -> None:
    create_topics(world.bootstrap, {"zoned": 1}, **{"retention.ms": "-1"})
    noon_ms = int(datetime(2024, 7, 1, 12, tzinfo=ZoneInfo("Europe/Prague")).timestamp() * 1000)
    producer = confluent_kafka.Producer({"bootstrap.servers": world.bootstrap, **QUIET})
    for minutes in (-1, 0, 1):
        producer.produce("zoned", str(minutes), timestamp=noon_ms + minutes * 60_000)
    assert producer.flush(20) == 0
    commit_once(world.bootstrap, "zoned", "zoned", 1, 0)
    context = browser.new_context(timezone_id="Europe/Prague")
    page = context.new_page()
    page.goto(world.console.address + "/topics/zoned")
    page.get_by_label("From").select_option("time")
    expect(page.get_by_label("Since (local)")).to_be_visible()
    page.get_by_label("Since (local)").fill("2024-07-01T12:00")
    page.get_by_role("button", name="Read").click()
    page.wait_for_url("**time=**")
    assert rows(page) == ["0", "1"]
    expect(page.locator("[data-page-status]")).to_contain_text("since 2024-07-01 12:00:00")
    wait_until(lambda: page.goto(world.console.address + "/groups/view?id=zoned").ok, "the group")
    page.get_by_role("button", name="Reset offsets").click()
    page.locator("select[name=strategy]").select_option("time")
    page.get_by_label("Time (local)").fill("2024-07-01 12:00")
    page.get_by_role("button", name="Dry run").click()
    expect(page.locator("#reset-plan")).to_contain_text("2024-07-01T10:00:00.000Z")
    expect(page.locator("#reset-plan tbody td").nth(2)).to_have_text("1")
    context.close()
