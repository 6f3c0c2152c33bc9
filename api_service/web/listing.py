"""Read a list of REST for a page: as REST has it, page by page; or filtered and sorted, of so many of its rows."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from api_service.web.finding.list_order import A_PAGE, Column, ListChoice, Listing, arrange
from api_service.web.rest_calls import ListPage, Query
from api_service.web.visit import Visit

LOOKED_AT = 1_000
"""Rows that are filtered by text and sorted: REST has them in one order."""

T = TypeVar("T")


async def read_list(
    visit: Visit,
    model: type[ListPage[T]],
    path: str,
    query: Query,
    choice: ListChoice,
    columns: Sequence[Column[T]],
    words_of: Callable[[T], Iterable[str | None]],
) -> Listing[T]:
    """The chosen page of a list; `words_of` a row are searched for the typed text."""
    if not choice.is_plain:
        every = await visit.rest.all(model, path, query, at_most=LOOKED_AT)
        return arrange(every, choice, columns, words_of, cut=LOOKED_AT if len(every) == LOOKED_AT else None)
    answer = await visit.rest.send("GET", path, query={**query, "cursor": choice.cursor or None, "limit": A_PAGE})
    found = model.model_validate_json(answer.body)
    after = None if found.next_cursor is None else replace(choice, cursor=found.next_cursor).address
    return Listing(found.items, choice, columns, after, before=choice.at(1) if choice.cursor else None)
