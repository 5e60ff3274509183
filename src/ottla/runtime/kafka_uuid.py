"""Which random UUIDs may name a topic, a directory or a cluster. Pure.

Kafka prints ids in URL-safe Base64 and never draws one that starts with a dash, which tools
would take for an option; the ids 0 and 1 are reserved (no id, and the metadata topic).
"""

from uuid import UUID

_RESERVED_MAX = 1
_BASE64_DASH = 62  # the digit that URL-safe Base64 prints as "-"
_FIRST_DIGIT_SHIFT = 128 - 6


def is_usable_uuid(candidate: UUID) -> bool:
    number = candidate.int
    return number > _RESERVED_MAX and number >> _FIRST_DIGIT_SHIFT != _BASE64_DASH
