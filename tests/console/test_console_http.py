"""The console over HTTP: the API as described, safe changes, and no trace left by reading."""

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import confluent_kafka
import httpx
import pytest
from bench.brokers import Kind, start_fresh
from confluent_kafka.admin import AdminClient
from console_world import (
    BIG_NUMBER,
    QUIET,
    ConsoleProcess,
    World,
    commit_once,
    create_topics,
    wait_until,
)
from published_pipeline import pipeline_status, published

from ottla.client import Client, ClientConfig, CommittedOffset, TopicPartition, commit_offsets

HOSTILE = "</script><script>alert(1)</script><b onmouseover='x'>\"&amp;{{7777*7777}}"


@pytest.fixture
def client(world: World) -> Iterator[httpx.Client]:
    with world.console.client() as made:
        yield made


def groups(world: World) -> set[str]:
    admin = AdminClient({"bootstrap.servers": world.bootstrap, **QUIET})
    found = admin.list_consumer_groups(request_timeout=20).result(20)
    return {group.group_id for group in found.valid}


def write(world: World, topic: str, count: int, **record: Any) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": world.bootstrap, **QUIET})
    for number in range(count):
        producer.produce(topic, json.dumps({"n": number, "big": BIG_NUMBER}), **record)
    assert producer.flush(30) == 0


def matches(schema: dict[str, Any], value: Any, where: str) -> None:
    """Whether a value is what a schema of the description promises; small, as the schemas are."""
    if not schema:
        return
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    python = {
        "object": dict, "array": list, "string": str, "integer": int, "number": (int, float),
        "boolean": bool, "null": type(None),
    }  # fmt: skip
    assert any(isinstance(value, python[kind]) for kind in kinds), (
        f"{where}: {value!r} is not {kinds}"
    )
    if isinstance(value, dict):
        for name in schema.get("required", ()):
            assert name in value, f"{where} lacks {name}"
        for name, inner in schema.get("properties", {}).items():
            if name in value:
                matches(inner, value[name], f"{where}.{name}")
    if isinstance(value, list):
        for index, one in enumerate(value[:5]):
            matches(schema["items"], one, f"{where}[{index}]")


def test_every_question_of_the_api_answers_as_it_is_described(client: httpx.Client) -> None:
    spec = client.get("/api/openapi.json").json()
    asked = 0
    for path, methods in spec["paths"].items():
        if "get" not in methods:
            continue
        address = path.format(
            topic="orders", group="billing", broker_id="1", partition="0", offset="3"
        )
        answer = client.get(address)
        assert answer.status_code == 200, (address, answer.text)
        content = methods["get"]["responses"]["200"]["content"]
        if "application/json" in content:
            matches(content["application/json"]["schema"], answer.json(), address)
        asked += 1
    assert asked >= 20


def test_reading_leaves_no_group_behind_and_since_reads_nothing_older(
    world: World, client: httpx.Client
) -> None:
    create_topics(world.bootstrap, {"since": 1}, **{"retention.ms": "-1"})
    write(world, "since", 400, timestamp=1_000_000_000_000)
    write(world, "since", 3, timestamp=1_700_000_000_000)
    before = groups(world)
    answer = client.get(
        "/api/v1/topics/since/messages",
        params={"from": "time", "time": "2020-01-01T00:00", "filter": "value.n >= 0"},
    ).json()
    assert [json.loads(one["value"])["n"] for one in answer["messages"]] == [0, 1, 2]
    assert answer["scanned"] == 3
    client.get("/topics/since")
    client.get("/topics/since/export", params={"format": "csv"})
    assert groups(world) <= before | {"check", "nightly-report"}
    assert not any("console" in group for group in groups(world))


def test_pages_by_cursor_and_exact_numbers(world: World, client: httpx.Client) -> None:
    create_topics(world.bootstrap, {"paged": 3})
    write(world, "paged", 130)
    seen: list[int] = []
    cursor: str | None = ""
    while cursor is not None:
        answer = client.get(
            "/api/v1/topics/paged/messages",
            params={
                "from": "oldest",
                "size": 40,
                "cursor": cursor,
                "filter": f"value.big == {BIG_NUMBER}",
            },
        ).json()
        seen += [json.loads(one["value"])["n"] for one in answer["messages"]]
        cursor = answer["next_cursor"]
    assert sorted(seen) == list(range(130))
    off_by_one = client.get(
        "/api/v1/topics/paged/messages", params={"filter": f"value.big == {BIG_NUMBER - 1}"}
    ).json()
    assert (off_by_one["messages"], off_by_one["scanned"]) == ([], 130)


def test_a_change_without_its_token_changes_nothing(world: World, client: httpx.Client) -> None:
    token = world.console.token()
    group = "nightly-report"
    altered = {"name": "retention.ms", "value": "1"}
    changes: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "/topics", {"data": {"name": "sneaked"}}),
        ("POST", "/topics/orders/produce", {"data": {"value": "x"}}),
        ("POST", "/topics/orders/configs", {"data": altered}),
        ("POST", "/topics/orders/delete", {"data": {"confirmation": "orders"}}),
        ("POST", "/topics/orders/partitions", {"data": {"count": "99"}}),
        ("POST", "/groups/reset", {"data": {"id": group, "apply": "1", "move": "0 0 payments"}}),
        ("POST", "/groups/delete", {"data": {"id": group, "confirmation": group}}),
        ("POST", "/brokers/1", {"data": {"name": "log.retention.ms", "value": "1"}}),
        ("POST", "/api/v1/topics", {"json": {"name": "sneaked"}}),
        ("POST", "/api/v1/topics/orders/partitions", {"json": {"count": 99}}),
        ("PATCH", "/api/v1/brokers/1/configs", {"json": altered}),
        ("DELETE", "/api/v1/topics/orders", {}),
        ("PATCH", "/api/v1/topics/orders/configs", {"json": altered}),
        ("POST", "/api/v1/topics/orders/messages", {"json": {"value": "x"}}),
        ("POST", f"/api/v1/groups/{group}/reset", {"json": {"strategy": "latest"}}),
        ("DELETE", f"/api/v1/groups/{group}", {}),
    ]
    for headers in (
        {},
        {"X-CSRF-Token": "guess"},
        {"X-CSRF-Token": token, "Origin": "https://evil.example"},
        {"X-CSRF-Token": token, "Sec-Fetch-Site": "cross-site"},
    ):
        for method, path, body in changes:
            answer = client.request(method, path, headers=headers, **body)
            assert answer.status_code == 403, (method, path, headers)
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 421
    topics = client.get("/api/v1/topics").json()["topics"]
    names = {topic["name"]: topic["partition_count"] for topic in topics}
    assert names["orders"] == 6
    assert "sneaked" not in names
    configs = client.get("/api/v1/topics/orders/configs").json()["configs"]
    assert {c["name"]: c["is_default"] for c in configs}["retention.ms"]


def test_the_api_creates_writes_alters_resets_and_deletes(
    world: World, client: httpx.Client
) -> None:
    client.headers["X-CSRF-Token"] = world.console.token()
    made = {"name": "by-api", "partitions": 2, "replication_factor": 1}
    assert client.post("/api/v1/topics", json={**made, "dry_run": True}).json()["is_dry_run"]
    assert client.get("/api/v1/topics/by-api").status_code == 404
    assert client.post("/api/v1/topics", json=made).status_code == 200
    written = client.post(
        "/api/v1/topics/by-api/messages",
        json={
            "partition": 1,
            "key": "k",
            "value_base64": "/w==",
            "headers": [{"key": "h", "value": None}],
        },
    )
    assert written.json()["offset"] == 0, written.text
    found = client.get("/api/v1/topics/by-api/messages").json()["messages"]
    assert [(m["key"], m["value_base64"], m["headers"]) for m in found] == [
        ("k", "/w==", [{"key": "h", "value": None}])
    ]
    altered = {"name": "retention.ms", "value": "1000000"}
    assert client.patch("/api/v1/topics/by-api/configs", json=altered).status_code == 200
    refused = client.patch("/api/v1/topics/by-api/configs", json={**altered, "value": "x"})
    assert refused.status_code >= 400
    assert "retention.ms" in refused.json()["error"]
    group = "by/api ../x"
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": world.bootstrap, "group.id": group, **QUIET}
    )
    consumer.commit(offsets=[confluent_kafka.TopicPartition("by-api", 1, 1)], asynchronous=False)
    consumer.close()
    address = "/api/v1/groups/by%2Fapi%20..%2Fx"
    reset = {"strategy": "earliest"}
    shown = client.post(f"{address}/reset", json=reset).json()
    assert [(m["before"], m["after"]) for m in shown["moves"]] == [(1, 0)]
    assert shown["is_dry_run"]
    assert client.post(f"{address}/reset", json={**reset, "dry_run": False}).status_code == 200
    partitions = client.get(address).json()["partitions"]
    assert [one["committed"] for one in partitions] == [0]
    assert client.delete(address).status_code == 200
    grown = client.post("/api/v1/topics/by-api/partitions", json={"count": 5})
    assert grown.json()["partitions"] == 5, grown.text
    broker = {"name": "log.cleaner.threads", "value": "2"}
    assert client.patch("/api/v1/brokers/1/configs", json=broker).status_code == 200
    one = client.get("/api/v1/topics/by-api/messages/1/0").json()
    assert (one["key"], one["value_base64"]) == ("k", "/w==")
    assert client.delete("/api/v1/topics/by-api").status_code == 200
    assert client.get("/api/v1/topics/by-api").status_code == 404


def is_text_everywhere(pages: list[httpx.Response]) -> None:
    """Nothing that was written to do something does, and every answer forbids it."""
    for page in pages:
        assert page.status_code < 500, (page.url, page.text)
        assert "<script>alert" not in page.text, page.url
        assert "<b onmouseover" not in page.text, page.url
        assert "60481729" not in page.text  # a template did not run it
        assert "script-src 'self'" in page.headers["content-security-policy"]
        assert page.headers["x-content-type-options"] == "nosniff"


def test_hostile_names_and_payloads_are_text_on_every_page(
    world: World, client: httpx.Client
) -> None:
    create_topics(world.bootstrap, {"hostile": 1})
    write(world, "hostile", 1, key=HOSTILE, headers=[(HOSTILE, HOSTILE.encode())])
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": world.bootstrap,
            "group.id": HOSTILE,
            "client.id": HOSTILE,
            "group.instance.id": HOSTILE,
            **QUIET,
        }
    )
    consumer.commit(offsets=[confluent_kafka.TopicPartition("hostile", 0, 0)], asynchronous=False)
    consumer.subscribe(["hostile"])
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": world.bootstrap, "transactional.id": HOSTILE, **QUIET}
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("hostile", HOSTILE)
    producer.flush(20)
    address = "/api/v1/groups/" + quote(HOSTILE, safe="")

    def has_joined() -> bool:
        consumer.poll(0.1)
        found = client.get(address).json()
        return any(member["client_id"] == HOSTILE for member in found.get("members", []))

    wait_until(has_joined, "the member")
    pages = [
        client.get("/"),
        client.get("/groups"),
        client.get("/groups/view", params={"id": HOSTILE}),
        client.get("/groups/view", params={"id": HOSTILE + "?"}),
        client.get("/live/groups", params={"id": HOSTILE}),
        client.get("/topics/hostile"),
        client.get("/topics/hostile", params={"q": HOSTILE, "filter": HOSTILE, "time": HOSTILE}),
        client.get("/topics/hostile", params={"from": HOSTILE}),
        client.get("/topics/hostile", params={"from": "time", "time": HOSTILE}),
        client.get("/topics/hostile/record", params={"partition": 0, "offset": 0}),
        client.get("/topics/hostile/produce", params={"partition": 0, "offset": 0}),
        client.get("/topics/hostile/consumers"),
        client.get("/topics", params={"q": HOSTILE, "sort": HOSTILE}),
        client.get("/topics/" + "%3Cscript%3Ealert(1)"),
        client.get("/topics/hostile/export", params={"format": HOSTILE}),
        client.get("/transactions"),
        client.get("/transactions", params={"hanging": 1, "older": HOSTILE}),
    ]
    is_text_everywhere(pages)
    assert "{{7777*7777}}" in pages[5].text
    assert pages[2].text.count("{{7777*7777}}") >= 4  # group, client, instance and owner
    assert "{{7777*7777}}" in pages[15].text
    producer.abort_transaction(20)
    consumer.close()


def test_hostile_pipelines_are_text_and_hide_no_other(world: World, client: httpx.Client) -> None:
    status = pipeline_status()
    status["name"] = "plain"
    hostile = {
        "name": HOSTILE,
        "state": HOSTILE,
        "last_error": {"message": HOSTILE, "at_ms": 1},
        "graph": {
            "nodes": [
                {"id": "topic:x", "kind": "topic", "label": HOSTILE},
                {"id": "sink:x", "kind": "sink", "label": HOSTILE},
                {"id": "t", "kind": HOSTILE, "label": HOSTILE},
            ],
            "edges": [["topic:x", "sink:x"], ["sink:x", "t"]],
        },
        "queries": [{"name": HOSTILE, "delivery": HOSTILE, "lag": {HOSTILE: 1}}],
    }
    odd = {"queries": [{"lag": 3}], "last_error": "x", "graph": {"edges": [3]}}
    for name, content in (("hostile", hostile), ("odd", odd), ("odder", [])):
        (world.pipelines / name).mkdir()
        (world.pipelines / name / "status.json").write_text(json.dumps(content))
    try:
        with published(world.pipelines, status):
            wait_until(lambda: "plain" in client.get("/pipelines").text, "the pipelines")
            pages = [client.get("/"), client.get("/pipelines"), client.get("/api/v1/pipelines")]
        is_text_everywhere([page for page in pages if "html" in page.headers["content-type"]])
        assert pages[1].text.count("{{7777*7777}}") >= 6
        assert {one["name"] for one in pages[2].json()["pipelines"]} >= {"plain", HOSTILE, "odd"}
    finally:
        for name in ("hostile", "odd", "odder"):
            shutil.rmtree(world.pipelines / name)


def test_hostile_directories_and_settings_are_text(directory: Path) -> None:
    place = directory / HOSTILE.replace("/", "").replace("\\", "")
    with (
        start_fresh(Kind.OTTLA, place) as broker,
        ConsoleProcess(broker.bootstrap) as console,
        console.client() as client,
    ):
        wait_until(lambda: "{{7777*7777}}" in client.get("/brokers").text, "the directory")
        pages = [client.get("/"), client.get("/brokers"), client.get("/brokers/1")]
        is_text_everywhere(pages)
        assert pages[2].text.count("{{7777*7777}}") >= 2  # the directory, and log.dirs


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/topics/orders?partition=" + "9" * 5000, 400),
        ("/topics/orders?from=offset&offset=" + "9" * 5000, 400),
        ("/topics/orders?cursor=0:" + "9" * 5000, 400),
        ("/topics/orders/record?partition=0&offset=" + "9" * 5000, 400),
        ("/topics/orders/record?partition=0&offset=1&download=header&header=77", 400),
        ("/topics/orders/export?format=csv&limit=x", 400),
        ("/topics/orders/tail?cursor=0:" + "9" * 30, 400),
        ("/topics?page=" + "9" * 5000, 400),
        ("/transactions?hanging=1&older=" + "9" * 5000, 200),
        ("/brokers/" + "9" * 5000, 404),
        ("/api/v1/brokers/" + "9" * 5000 + "/configs", 400),
        ("/api/v1/topics/orders/messages/0/99999999999", 404),
    ],
)
def test_bad_input_is_refused_and_no_defect(client: httpx.Client, path: str, status: int) -> None:
    assert client.get(path).status_code == status


def test_a_strange_origin_is_refused_and_no_defect(world: World, client: httpx.Client) -> None:
    headers = {"X-CSRF-Token": world.console.token(), "Origin": "http://["}
    assert client.post("/topics", data={"name": "never"}, headers=headers).status_code == 403


def test_a_reset_of_many_partitions_goes_through_the_form(world: World) -> None:
    create_topics(world.bootstrap, {"wide": 1_200})
    commit_once(world.bootstrap, "wide-reader", "wide", 1, 0)
    with world.console.client() as client:
        client.headers["X-CSRF-Token"] = world.console.token()
        wait_until(
            lambda: client.get("/groups/view", params={"id": "wide-reader"}).is_success, "the group"
        )
        form = {"id": "wide-reader", "strategy": "earliest", "topic": "wide"}
        shown = client.post("/groups/reset", data=form).text
        moves = re.findall(r'name="move" value="([^"]+)"', shown)
        assert len(moves) == 1_200
        done = client.post("/groups/reset", data={"id": "wide-reader", "apply": "1", "move": moves})
        assert "offsets of 1200 partitions were reset" in done.text


def test_batches_larger_than_a_partitions_share_hide_nothing(
    world: World, client: httpx.Client
) -> None:
    create_topics(world.bootstrap, {"bulky": 3, "wide-search": 24})
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": world.bootstrap,
            "message.max.bytes": 2_000_000,
            "batch.num.messages": 1,
            **QUIET,
        }
    )
    for number in range(30):
        producer.produce("bulky", bytes(150_000), partition=number % 3)
    for partition in range(24):
        producer.produce("wide-search", b"needle" + bytes(900_000), partition=partition)
    assert producer.flush(60) == 0
    for begin in ("newest", "oldest"):
        page = client.get("/api/v1/topics/bulky/messages", params={"from": begin}).json()
        found = Counter(one["partition"] for one in page["messages"])
        assert found == {0: 10, 1: 10, 2: 10}
        assert (page["is_complete"], page["unread"]) == (True, [])
        page = client.get(
            "/api/v1/topics/wide-search/messages", params={"from": begin, "q": "needle"}
        ).json()
        assert len({one["partition"] for one in page["messages"]}) == 24, begin


def test_the_marker_of_a_sink_is_shown_as_what_it_is(world: World, client: httpx.Client) -> None:
    about = json.dumps({"next_batch": 12, "records": 5})
    with Client(ClientConfig.of(world.bootstrap)) as wire:
        commit_offsets(
            wire, "sink-4711", {TopicPartition("payments", 0): CommittedOffset(12, about)}
        )
    wait_until(
        lambda: client.get("/groups/view", params={"id": "sink-4711"}).is_success, "the group"
    )
    found = client.get("/api/v1/groups/sink-4711").json()
    assert (found["lag"], found["sink_batch"], found["partitions"]) == (None, 12, [])
    assert "batch 12 is the next" in client.get("/groups/view", params={"id": "sink-4711"}).text
    assert "sink-4711" not in client.get("/topics/payments/consumers").text


def test_a_header_and_a_large_value_are_shown_and_downloaded_whole(
    world: World, client: httpx.Client
) -> None:
    create_topics(world.bootstrap, {"whole": 1})
    value = json.dumps([{"n": BIG_NUMBER + n} for n in range(3_000)])
    header = "word  and   spaces " * 40
    producer = confluent_kafka.Producer({"bootstrap.servers": world.bootstrap, **QUIET})
    producer.produce("whole", value, "k" * 40_000, headers=[("a", "b"), ("long", header)])
    assert producer.flush(20) == 0
    at = {"partition": 0, "offset": 0}
    shown = client.get("/topics/whole/record", params=at).text
    assert header in shown
    assert shown.count('<span class="tag">json</span>') == 1
    assert "download=key" in shown
    for part, wanted in (("value", value), ("key", "k" * 40_000)):
        got = client.get("/topics/whole/record", params={**at, "download": part})
        assert got.text == wanted
    got = client.get("/topics/whole/record", params={**at, "download": "header", "header": 1})
    assert got.text == header


def test_a_read_only_console_refuses_every_change(world: World) -> None:
    with ConsoleProcess(world.bootstrap, "--read-only") as console, console.client() as client:
        client.headers["X-CSRF-Token"] = console.token()
        answer = client.post("/topics", data={"name": "never"})
        assert (answer.status_code, answer.text) == (403, "This console is read-only.")
        for path in (
            "/topics",
            "/topics/orders/partitions",
            "/groups/view?id=billing",
            "/brokers/1",
        ):
            assert "hx-post" not in client.get(path).text
    assert console.process.returncode is not None


def test_a_console_whose_cluster_is_away_says_so(world: World) -> None:
    with ConsoleProcess("127.0.0.1:1") as console, console.client() as client:
        wait_until(lambda: "does not answer" in client.get("/").text, "the page says so")
        for path in ("/topics", "/groups", "/brokers", "/quorum", "/transactions", "/topics/x"):
            assert client.get(path).status_code in (200, 404)
        assert client.get("/api/v1/health").json()["is_reachable"] is False


def test_the_page_of_what_is_gone_is_loaded_once(client: httpx.Client) -> None:
    assert client.get("/topics/nobody").status_code == 404
    moving = client.get("/topics/nobody", headers={"HX-Target": "live"})
    assert moving.headers["hx-refresh"] == "true"  # a page that was open when the topic went
    head = client.get("/live/topics/nobody")
    assert head.headers["hx-refresh"] == "true"
    frame = client.get("/live/state")
    assert "hx-refresh" not in frame.headers
    assert 'id="live_state"' in frame.text
