"""Regular expressions of subscriptions: written for RE2/J, run by Python's `re`. Pure.

The two agree on what topic names need. Where RE2/J spells something that `re` lacks, it is
translated (`\\pL` classes and `\\z` to what they mean for the letters of topic names); what cannot
be translated is INVALID_REGULAR_EXPRESSION. RE2/J has neither look-around nor back-references and
never takes more than linear time. Both are refused here as well, and so are repetitions of groups
that repeat or choose inside: `re` could need exponential time for those, on the event loop.
"""

import re
from functools import lru_cache

from ottla.protocol.errors import ErrorCode, KafkaError

# A topic name has at most 249 characters; an expression for such names needs no more than this.
REGEX_CHARACTERS_MAX = 4096
COMPILED_MAX = 1024  # expressions kept compiled

# RE2/J repeats nothing more than a thousand times.
_REFUSED = re.compile(
    r"\{\d*,?(?:[1-9]\d{4,}|[2-9]\d{3}|1(?:[1-9]\d\d|0[1-9]\d|00[1-9]))\b|"
    r"\(\?(?:[=!]|<[=!]|P=|\()|\\[1-9]|\\k|[*+?}]\+"
)
_CLASSES = {
    r"\pL": "A-Za-z",
    r"\p{L}": "A-Za-z",
    r"\pN": "0-9",
    r"\p{N}": "0-9",
    r"\p{Alpha}": "A-Za-z",
    r"\p{Digit}": "0-9",
    r"\p{Alnum}": "A-Za-z0-9",
    r"\p{Lower}": "a-z",
    r"\p{Upper}": "A-Z",
    r"\p{Ll}": "a-z",
    r"\p{Lu}": "A-Z",
    "[:alpha:]": "A-Za-z",
    "[:digit:]": "0-9",
    "[:alnum:]": "A-Za-z0-9",
    "[:lower:]": "a-z",
    "[:upper:]": "A-Z",
    "[:word:]": "A-Za-z0-9_",
}
_TOKEN = re.compile(
    "|".join(
        (
            *(re.escape(name) for name in sorted(_CLASSES, key=len, reverse=True)),
            r"\\Q(?P<quoted>.*?)(?:\\E|$)",
            r"\\.",
            r"\(\?<",
            r"\[\^?\]?",
            r"\]",
            r".",
        )
    ),
    re.DOTALL,
)
_REPEATS = frozenset("*+{")
_SET_OPERATORS = frozenset("[&|~")  # `re` will give them a meaning inside sets


@lru_cache(maxsize=COMPILED_MAX)
def compile_regex(text: str) -> "re.Pattern[str]":
    """The expression, or INVALID_REGULAR_EXPRESSION."""
    if len(text) > REGEX_CHARACTERS_MAX or _REFUSED.search(text):
        raise _invalid(text)
    try:
        return re.compile(_translated(text), re.ASCII)
    except (re.error, OverflowError, RecursionError):
        raise _invalid(text) from None


def _translated(text: str) -> str:
    out: list[str] = []
    is_in_set = False
    choices = [False]  # for each open group: whether it repeats or chooses inside
    was_choice_closed = False
    for found in _TOKEN.finditer(text):
        token = found[0]
        if not is_in_set:
            if token in _REPEATS and was_choice_closed:
                raise _invalid(text)
            was_choice_closed = _follow(choices, token)
        if token in _CLASSES:
            letters = _CLASSES[token]
            out.append(letters if is_in_set else f"[{letters}]")
        elif found["quoted"] is not None:
            out.append(re.escape(found["quoted"]))
        elif token == r"\z":
            out.append(r"\Z")
        elif token == "(?<" and not is_in_set:
            out.append("(?P<")
        elif is_in_set and token[0] in _SET_OPERATORS:
            out.append("".join(f"\\{one}" for one in token))
        else:
            is_in_set = token[0] == "[" or (is_in_set and token != "]")
            out.append(token)
    return "".join(out)


def _follow(choices: list[bool], token: str) -> bool:
    """Keep track of groups; whether one that repeats or chooses inside ends with this token."""
    if token in ("(", "(?<"):
        choices.append(False)
    elif token == ")" and len(choices) > 1:
        closed = choices.pop()
        choices[-1] |= closed
        return closed
    elif token == "|" or token in _REPEATS:
        choices[-1] = True
    return False


def _invalid(text: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex `{text[:200]}` is not a valid regular expression",
    )
