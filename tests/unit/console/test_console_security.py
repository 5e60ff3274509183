"""Which requests are refused, and what every answer forbids."""

import pytest

from ottla.console.web.security import CONTENT_SECURITY_POLICY, Rules, refusal

TOKEN = "secret-token"
LOCAL = Rules(TOKEN, frozenset({"console.example"}), True, False)
OWN = {"host": "127.0.0.1:9680"}


@pytest.mark.parametrize(
    ("host", "is_taken"),
    [
        ("127.0.0.1:9680", True),
        ("localhost", True),
        ("LOCALHOST:1", True),
        ("[::1]:9680", True),
        ("console.example", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("10.0.0.5:9680", False),
        ("", False),
        ("[", False),
    ],
)
def test_a_console_on_loopback_answers_to_its_own_names_only(host: str, is_taken: bool) -> None:
    assert (refusal(LOCAL, "GET", {"host": host}) is None) is is_taken


def test_a_console_on_a_network_answers_to_addresses_but_not_to_any_name() -> None:
    rules = LOCAL._replace(is_loopback=False)
    assert refusal(rules, "GET", {"host": "10.0.0.5:9680"}) is None
    assert refusal(rules, "GET", {"host": "rebound.example"}) is not None


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-csrf-token": "wrong"},
        {"x-csrf-token": TOKEN, "origin": "https://evil.example"},
        {"x-csrf-token": TOKEN, "origin": "http://127.0.0.1:8000"},
        {"x-csrf-token": TOKEN, "origin": "null"},
        {"x-csrf-token": TOKEN, "origin": "http://["},
        {"x-csrf-token": TOKEN, "origin": "https://console.example.evil"},
        {"x-csrf-token": TOKEN, "sec-fetch-site": "cross-site"},
        {"x-csrf-token": TOKEN, "sec-fetch-site": "same-site"},
    ],
)
def test_a_change_from_elsewhere_is_refused(method: str, headers: dict[str, str]) -> None:
    refused = refusal(LOCAL, method, {**OWN, **headers})
    assert refused is not None
    assert refused[0] == 403


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://127.0.0.1:9680"},
        {"sec-fetch-site": "same-origin"},
        {"origin": "https://console.example"},  # a proxy asked by another name than the browser
    ],
)
def test_a_change_from_the_console_is_taken(headers: dict[str, str]) -> None:
    assert refusal(LOCAL, "POST", {**OWN, "x-csrf-token": TOKEN, **headers}) is None


def test_a_read_only_console_changes_nothing_even_with_the_token() -> None:
    rules = LOCAL._replace(is_read_only=True)
    assert refusal(rules, "POST", {**OWN, "x-csrf-token": TOKEN}) == (
        403,
        "This console is read-only.",
    )
    assert refusal(rules, "GET", OWN) is None


def test_the_policy_lets_nothing_inline_run() -> None:
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert CONTENT_SECURITY_POLICY.startswith("default-src 'none'")
