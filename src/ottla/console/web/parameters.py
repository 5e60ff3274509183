"""What a request asks for: queries, forms and lists, read within bounds. Pure but for the body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request

from ottla.console.errors import BadRequestError
from ottla.console.numbers import integer
from ottla.console.resets import PARTITIONS_MAX
from ottla.console.seeking import PAGE_SIZES

BODY_BYTES_MAX = 4 * 1024 * 1024
# The moves of a reset, and a few fields beside them.
FIELDS_MAX = PARTITIONS_MAX + 100

Row = TypeVar("Row")


async def read_body(request: Request) -> bytes:
    """The body, if it is not larger than any form."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_BYTES_MAX:
            raise BadRequestError("The form is too large.")
    return bytes(body)


async def read_form(request: Request) -> dict[str, list[str]]:
    """The fields of a form, several values each."""
    body = await read_body(request)
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except (ValueError, UnicodeDecodeError) as error:
        raise BadRequestError("The form cannot be read.") from error
    form: dict[str, list[str]] = {}
    for name, value in pairs:
        form.setdefault(name, []).append(value)
    return form


def first(form: Mapping[str, Sequence[str]], name: str, default: str = "") -> str:
    values = form.get(name)
    return values[0] if values else default


class Listing(NamedTuple, Generic[Row]):
    """One page of a sorted, searched list."""

    rows: Sequence[Row]
    total: int
    number: int  # from 1
    pages: int
    size: int
    sort: str
    search: str
    path: str
    parameters: Mapping[str, str]

    def sort_href(self, key: str, first: str) -> str:
        """The list by another column: `first` way round, or the other if it is so already."""
        sort = f"{first}{key}"
        if self.sort == sort:
            sort = sort.removeprefix("-") if first else f"-{key}"
        return self._address(sort=sort, page="")

    def page_href(self, number: int) -> str:
        return self._address(page=str(number))

    def _address(self, **changes: str) -> str:
        kept = {name: value for name, value in {**self.parameters, **changes}.items() if value}
        return f"{self.path}?{urlencode(kept)}" if kept else self.path


def listing(
    request: Request,
    rows: Sequence[Row],
    *,
    name_of: str,
    sorts: Mapping[str, str],
    default_sort: str,
) -> Listing[Row]:
    """Search by name, sort by a known column, cut out one page; all from the query."""
    parameters = request.query_params
    search = parameters.get("q", "").strip()
    if search:
        wanted = search.casefold()
        rows = [row for row in rows if wanted in str(getattr(row, name_of)).casefold()]
    sort = parameters.get("sort", default_sort)
    column = sorts.get(sort.removeprefix("-"))
    if column is None:
        sort, column = default_sort, sorts[default_sort.removeprefix("-")]
    attribute = column

    def key(row: Row) -> tuple[bool, object]:
        value = getattr(row, attribute)
        return (value is not None, value if value is not None else 0)

    if attribute == name_of:
        ordered = sorted(rows, key=lambda row: str(getattr(row, name_of)))
    else:
        by_name = sorted(rows, key=lambda row: str(getattr(row, name_of)))
        ordered = sorted(by_name, key=key, reverse=sort.startswith("-"))
    if attribute == name_of and sort.startswith("-"):
        ordered.reverse()
    size = integer(
        parameters.get("size"), "The page size", default=PAGE_SIZES[0], least=1, most=500
    )
    pages = max(1, -(-len(ordered) // size))
    page_number = min(integer(parameters.get("page"), "The page", default=1, least=1), pages)
    begin = (page_number - 1) * size
    return Listing(
        ordered[begin : begin + size],
        len(ordered),
        page_number,
        pages,
        size,
        sort,
        search,
        request.url.path,
        dict(parameters),
    )
