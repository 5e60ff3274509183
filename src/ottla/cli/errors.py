"""What a command tells its user when it cannot do what was asked, and with which exit code.

A command raises `CliError` with one sentence that says what to do; `main` alone prints it.
Pure: this module knows Kafka's error names but never imports a client, so `--help` stays fast.
"""

from __future__ import annotations

import re
from enum import IntEnum


class ExitCode(IntEnum):
    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    AUTH = 4
    UNREACHABLE = 5
    INTERRUPTED = 130


class CliError(Exception):
    """One sentence for the user, the exit code that a script sees, and the broker's own error."""

    def __init__(
        self,
        message: str,
        exit_code: ExitCode = ExitCode.ERROR,
        *,
        error_name: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.error_name = error_name  # by Kafka or librdkafka, where one of them refused


# Names of errors by Kafka and by librdkafka; those with an underscore are librdkafka's own.
_NOT_FOUND = frozenset(
    {
        "UNKNOWN_TOPIC_OR_PART",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "_UNKNOWN_TOPIC",
        "_UNKNOWN_PARTITION",
        "UNKNOWN_TOPIC_ID",
        "GROUP_ID_NOT_FOUND",
        "TRANSACTIONAL_ID_NOT_FOUND",
        "RESOURCE_NOT_FOUND",
    }
)
_AUTH = frozenset(
    {
        "_AUTHENTICATION",
        "SASL_AUTHENTICATION_FAILED",
        "UNSUPPORTED_SASL_MECHANISM",
        "ILLEGAL_SASL_STATE",
        "TOPIC_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "DELEGATION_TOKEN_AUTHORIZATION_FAILED",
    }
)
_UNREACHABLE = frozenset(
    {
        "_TIMED_OUT",
        "_TIMED_OUT_QUEUE",
        "_MSG_TIMED_OUT",
        "_TRANSPORT",
        "_ALL_BROKERS_DOWN",
        "_RESOLVE",
        "_SSL",
        "REQUEST_TIMED_OUT",
        "BROKER_NOT_AVAILABLE",
        "NETWORK_EXCEPTION",
    }
)


def exit_code_of(error_name: str) -> ExitCode:
    """The exit code for an error by the name that Kafka or librdkafka gives it."""
    if error_name in _NOT_FOUND:
        return ExitCode.NOT_FOUND
    if error_name in _AUTH:
        return ExitCode.AUTH
    if error_name in _UNREACHABLE:
        return ExitCode.UNREACHABLE
    return ExitCode.ERROR


_WRAPPERS = (
    re.compile(r"(?:failed|Failed to resolve '[^']*'): (?P<reason>.+?)(?: \(after .*)?$"),
    re.compile(r"^(?:\S+/bootstrap|\S+/\d+): (?P<reason>.+?)(?: \(after .*)?$"),
)


def transport_reason(text: str) -> str:
    """The cause inside librdkafka's account of a failed connection."""
    for wrapper in _WRAPPERS:
        if found := wrapper.search(text):
            return found["reason"].rstrip(".")
    return text.rstrip(".")


def sentence(text: str) -> str:
    """`text` with a capital first letter and one full stop."""
    text = text.strip()
    if not text:
        return "No reason was given."
    if text[0].islower() and text.split()[0].isalpha():
        text = text[0].upper() + text[1:]
    return text if text[-1] in ".!?" else f"{text}."
