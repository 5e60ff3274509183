"""Regular expressions that clients send: which topics to subscribe to, which ids to list. Pure.

Apache Kafka runs them in RE2/J, whose time is linear in the text whatever the expression says.
Python's `re` can take for ever over a short one, and here the event loop would wait for it. So
RE2 runs them, from which RE2/J comes and whose grammar it shares. RE2 lets two things pass that
RE2/J refuses (`\\C`, two groups of one name) and refuses one that RE2/J takes: repetitions inside
of repetitions that make more than a thousand together.
"""

from functools import lru_cache
from typing import Any

from ottla.protocol.errors import ErrorCode, KafkaError

# A topic name has at most 249 characters; an expression for such names needs no more than this.
REGEX_CHARACTERS_MAX = 4096
# What one expression may take, as a program and for the states found while it runs: enough for a
# thousand times any character. This bounds the time for a name too, to well below a millisecond.
REGEX_BYTES_MAX = 256 * 1024
COMPILED_MAX = 256  # expressions kept compiled


class Regex:
    __slots__ = ("_pattern",)

    def __init__(self, pattern: Any) -> None:
        self._pattern = pattern

    def matches(self, text: str) -> bool:
        """Whether the expression matches the whole text."""
        # Of a str the binding would also count where its characters begin.
        return self._pattern.fullmatch(text.encode()) is not None


@lru_cache(maxsize=COMPILED_MAX)
def compile_regex(text: str) -> Regex:
    """The expression, or INVALID_REGULAR_EXPRESSION."""
    import re2  # most brokers never see an expression

    if len(text) > REGEX_CHARACTERS_MAX:
        raise _invalid(text, f"longer than {REGEX_CHARACTERS_MAX} characters")
    options = re2.Options()
    options.log_errors = False  # to stderr
    options.never_capture = True
    options.max_mem = REGEX_BYTES_MAX
    try:
        return Regex(re2.compile(text, options))
    except re2.error as error:
        why = error.args[0]
        raise _invalid(
            text, why.decode(errors="replace") if isinstance(why, bytes) else why
        ) from None


def _invalid(text: str, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex `{text[:200]}` is not a valid regular expression: {why[:200]}.",
    )
