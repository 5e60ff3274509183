"""Errors become one sentence and an exit code, in one place."""

import click
import pytest

from ottla.cli import main
from ottla.cli.errors import CliError, ExitCode, exit_code_of, sentence, transport_reason


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """A command `fail` that raises what the test puts into the list."""
    raised: list[BaseException] = []

    @click.command()
    def fail() -> None:
        raise raised[0]

    monkeypatch.setattr(main.root, "get_command", lambda ctx, name: fail)
    return raised


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (CliError("Do this.", ExitCode.NOT_FOUND), 3, "Error: Do this.\n"),
        (CliError("Do that."), 1, "Error: Do that.\n"),
        (
            click.UsageError("no such thing"),
            2,
            "Error: No such thing. See 'ottla fail --help'.\n",
        ),
        (FileNotFoundError(2, "No such file or directory", "x"), 1, "Error: x: No such file or"),
        (ZeroDivisionError("by zero"), 1, "Error: This is a defect in Ottla (ZeroDivisionError"),
        (KeyboardInterrupt(), 130, "\n"),
        (BrokenPipeError(), 0, ""),
    ],
)
def test_an_error_is_one_sentence_and_an_exit_code(
    failing: list[BaseException],
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    text: str,
) -> None:
    failing.append(error)
    assert main.run(["fail"]) == code
    captured = capsys.readouterr()
    assert captured.err.startswith(text)
    assert captured.err.count("\n") <= 1
    assert captured.out == ""


def test_a_traceback_is_shown_only_on_request(
    failing: list[BaseException],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing.append(ZeroDivisionError())
    monkeypatch.setenv("OTTLA_DEBUG", "1")
    assert main.run(["fail"]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    "args", [["nonsense"], ["topic", "create"], ["topic", "list", "-o", "xml"], ["consume", "-n0"]]
)
def test_wrong_usage_is_exit_code_2_and_one_line(
    args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(args) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "--help" in captured.err


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("UNKNOWN_TOPIC_OR_PART", 3),
        ("TOPIC_AUTHORIZATION_FAILED", 4),
        ("_TRANSPORT", 5),
        ("POLICY_VIOLATION", 1),
    ],
)
def test_exit_codes_tell_kinds_of_errors_apart(name: str, code: int) -> None:
    assert exit_code_of(name) == code


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "127.0.0.1:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused "
            "(after 1ms in state CONNECT)",
            "Connection refused",
        ),
        (
            "no.invalid:9/bootstrap: Failed to resolve 'no.invalid:9': Name or service not known "
            "(after 2ms in state CONNECT)",
            "Name or service not known",
        ),
        ("h:1/1: Disconnected (after 5ms in state UP)", "Disconnected"),
        ("something else", "something else"),
    ],
)
def test_the_reason_is_taken_out_of_librdkafkas_account(text: str, reason: str) -> None:
    assert transport_reason(text) == reason


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("it broke", "It broke."),
        ("It broke!", "It broke!"),
        ("retention.ms is odd", "retention.ms is odd."),
        ("  ", "No reason was given."),
    ],
)
def test_a_sentence_begins_and_ends_as_one(text: str, expected: str) -> None:
    assert sentence(text) == expected
