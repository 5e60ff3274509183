"""The console over HTTP: the API as described, safe changes, and no trace left by reading."""

import json
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import httpx
import pytest
from confluent_kafka.admin import AdminClient
from console_world import BIG_NUMBER, QUIET, ConsoleProcess, World, create_topics, wait_until

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
    create_topics(world.bootstrap, {"since": 1})
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
    assert client.delete("/api/v1/topics/by-api").status_code == 200
    assert client.get("/api/v1/topics/by-api").status_code == 404


def test_hostile_names_and_payloads_are_text_on_every_page(
    world: World, client: httpx.Client
) -> None:
    create_topics(world.bootstrap, {"hostile": 1})
    write(world, "hostile", 1, key=HOSTILE, headers=[(HOSTILE, HOSTILE.encode())])
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": world.bootstrap, "group.id": HOSTILE, "client.id": HOSTILE, **QUIET}
    )
    consumer.commit(offsets=[confluent_kafka.TopicPartition("hostile", 0, 0)], asynchronous=False)
    consumer.close()
    wait_until(lambda: HOSTILE in client.get("/api/v1/groups").text.replace("\\", ""), "the group")
    pages = [
        client.get("/"),
        client.get("/groups"),
        client.get("/groups/view", params={"id": HOSTILE}),
        client.get("/groups/view", params={"id": HOSTILE + "?"}),
        client.get("/topics/hostile"),
        client.get("/topics/hostile", params={"q": HOSTILE, "filter": HOSTILE, "time": HOSTILE}),
        client.get("/topics/hostile", params={"from": HOSTILE}),
        client.get("/topics/hostile/record", params={"partition": 0, "offset": 0}),
        client.get("/topics/hostile/produce", params={"partition": 0, "offset": 0}),
        client.get("/topics/hostile/consumers"),
        client.get("/topics", params={"q": HOSTILE, "sort": HOSTILE}),
        client.get("/topics/" + "%3Cscript%3Ealert(1)"),
        client.get("/topics/hostile/export", params={"format": HOSTILE}),
    ]
    for page in pages:
        assert "<script>alert" not in page.text, page.url
        assert "<b onmouseover" not in page.text, page.url
        assert "60481729" not in page.text  # a template did not run it
        policy = page.headers["content-security-policy"]
        assert "script-src 'self'" in policy
        assert page.headers["x-content-type-options"] == "nosniff"
    assert "{{7777*7777}}" in pages[4].text


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
