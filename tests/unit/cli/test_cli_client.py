"""Errors of the client become sentences, with and without a broker to blame."""

from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException

from ottla.cli.client import Troubles, client_settings, error_of, translated_errors, uuid_text
from ottla.cli.errors import CliError, ExitCode
from ottla.cli.params import KEY_VALUE
from ottla.cli.settings import Connection
from ottla.cli.up import default_directory, remove_data

CONNECTION = Connection({"bootstrap.servers": "h:1"}, timeout_s=0.5)


def test_the_cause_behind_a_timeout_is_told() -> None:
    troubles = Troubles(CONNECTION)
    refused = "h:1/bootstrap: Connect to ipv4#1.1.1.1:1 failed: Connection refused (after 1ms in"
    troubles.on_error(KafkaError(KafkaError._TRANSPORT, refused))
    error = error_of(KafkaError(KafkaError._TIMED_OUT, "timed out"), troubles)
    assert error.exit_code is ExitCode.UNREACHABLE
    assert "h:1 (Connection refused)" in error.message


def test_a_timeout_without_a_cause_names_the_time() -> None:
    error = error_of(KafkaError(KafkaError._TIMED_OUT, "timed out"), Troubles(CONNECTION))
    assert "no answer within 0.5 s" in error.message


def test_refused_credentials_end_the_wait_at_once() -> None:
    troubles = Troubles(CONNECTION)
    troubles.on_error(KafkaError(KafkaError._AUTHENTICATION, "h:1/1: bad password"))
    with pytest.raises(CliError, match="refused the credentials") as raised:
        troubles.raise_if_hopeless()
    assert raised.value.exit_code is ExitCode.AUTH


def test_one_refused_address_is_not_yet_hopeless() -> None:
    troubles = Troubles(Connection({"bootstrap.servers": "h:1"}, timeout_s=60))
    troubles.on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    troubles.raise_if_hopeless()


def test_an_error_of_the_broker_keeps_its_name_whatever_its_words() -> None:
    error = error_of(
        KafkaError(KafkaError.TOPIC_ALREADY_EXISTS, "da war sie"), Troubles(CONNECTION)
    )
    assert error.error_name == "TOPIC_ALREADY_EXISTS"


@pytest.mark.parametrize(
    ("error", "text", "code"),
    [
        (KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "x"), "Topic 't' does not exist;", 3),
        (KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no"), "Topic 't': No.", 4),
        (KafkaError(KafkaError.INVALID_CONFIG, "bad value"), "Topic 't': Bad value.", 1),
        (KafkaError(KafkaError.REQUEST_TIMED_OUT, "too slow"), "Topic 't': Too slow.", 5),
        (KafkaError(KafkaError._INVALID_ARG, "No such property"), "No such property.", 2),
    ],
)
def test_an_answer_of_the_broker_names_its_subject(error: KafkaError, text: str, code: int) -> None:
    with (
        pytest.raises(CliError) as raised,
        translated_errors(Troubles(CONNECTION), "topic 't'"),
    ):
        raise KafkaException(error)
    assert raised.value.message.startswith(text)
    assert raised.value.exit_code == code


def test_the_client_is_silent_unless_the_user_asks_it_to_speak() -> None:
    troubles = Troubles(CONNECTION)
    assert client_settings(CONNECTION, troubles)["log_level"] == 0
    loud = Connection({"bootstrap.servers": "h:1", "debug": "all"})
    assert "log_level" not in client_settings(loud, troubles)


def test_ids_are_printed_as_kafka_prints_them() -> None:
    assert uuid_text("a+b/c") == "a-b_c"


@pytest.mark.parametrize(
    ("text", "pair"), [("a=b", ("a", "b")), ("a=", ("a", "")), ("a=b=c", ("a", "b=c"))]
)
def test_a_pair_splits_at_its_first_equal_sign(text: str, pair: tuple[str, str]) -> None:
    assert KEY_VALUE.convert(text, None, None) == pair


def test_data_live_where_the_xdg_rules_say() -> None:
    assert str(default_directory("/x")) == "/x/ottla/up"
    assert str(default_directory(None)) == "~/.local/share/ottla/up"


def test_fresh_takes_only_what_a_broker_left(tmp_path: object) -> None:
    from pathlib import Path

    root = Path(str(tmp_path))
    remove_data(root / "absent")
    (root / "empty").mkdir()
    remove_data(root / "empty")
    foreign = root / "foreign"
    foreign.mkdir()
    (foreign / "file").touch()
    with pytest.raises(CliError, match="not made by Ottla"):
        remove_data(foreign)
    own = root / "own"
    own.mkdir()
    (own / "meta.properties").touch()
    remove_data(own)
    assert not own.exists()
    assert foreign.exists()


def test_a_future_that_never_ends_is_given_up_when_nobody_is_there() -> None:
    from ottla.cli.client import Admin

    admin = Admin(Connection({"bootstrap.servers": "127.0.0.1:1"}, timeout_s=0.3))
    with pytest.raises(CliError, match="Connection refused"):
        admin.result(Future())
