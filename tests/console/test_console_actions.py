"""What a person does in the console: read, search, follow, produce, change, reset."""

import json
import re
import time

import confluent_kafka
from console_world import BIG_NUMBER, QUIET, World, commit_once, create_topics, wait_until
from playwright.sync_api import Page, expect

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
    time.sleep(1)
    produce(world, "tailed", {"n": 1})
    expect(page.locator("tbody")).to_contain_text('{"n": 1}')
    page.get_by_role("button", name="Stop").click()
    produce(world, "tailed", {"n": 2}, {"n": 3})
    time.sleep(1)
    assert len(rows(page)) == 1
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("tbody tr[data-offset]")).to_have_count(3)
    expect(page.locator("[data-tail-status]")).to_contain_text("3 messages")


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


def test_a_broker_that_is_killed_and_returns_is_told(watched: WatchedPage, world: World) -> None:
    page = watched.go("/")
    expect(page.locator("#live .verdict")).to_contain_text("All is well", timeout=30_000)
    world.broker.kill()
    try:
        expect(page.locator("#live .verdict")).to_contain_text("does not answer", timeout=30_000)
        expect(page.locator("#live_state")).to_contain_text("no answer")
        other = watched.go("/topics/orders/partitions")
        expect(other.get_by_role("alert")).to_contain_text("The cluster does not answer")
        watched.go("/topics/orders")
    finally:
        world.broker.start()  # the world is everybody's
    page = watched.go("/")
    expect(page.locator("#live .verdict")).not_to_contain_text("does not answer", timeout=30_000)
    expect(page.locator(".timeline")).to_contain_text("The cluster answers again")
    page = watched.go("/topics/orders")
    expect(page.locator("tbody tr[data-offset]").first).to_be_visible()
