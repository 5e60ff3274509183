"""Numbers that people and addresses write, read within bounds. Pure."""

from __future__ import annotations

from ottla.console.errors import BadRequestError

PARTITION_MAX = 2**31 - 1
OFFSET_MAX = 2**63 - 1


def integer(
    text: str | None,
    what: str,
    *,
    default: int | None = None,
    least: int = 0,
    most: int = OFFSET_MAX,
) -> int:
    """A number within bounds; BadRequestError names what it is."""
    if not text:
        if default is None:
            raise BadRequestError(f"{what} is missing.")
        return default
    try:
        value = int(text)
    except ValueError:
        raise BadRequestError(f"{what} is not a whole number.") from None
    if not least <= value <= most:
        raise BadRequestError(f"{what} must be between {least} and {most}.")
    return value
