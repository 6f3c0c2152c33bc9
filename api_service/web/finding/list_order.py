"""A list's filter, order and page, which are its address: `?q=train&sort=-gpus&page=2`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

from api_service.web.finding.address_words import no_such_choice

A_PAGE = 50
"""Rows of a page."""
_MOST_TYPED = 100
_DIGITS = 4

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """A column that a list can be sorted by. `key` None comes last, whatever the direction."""

    name: str
    words: str
    key: Callable[[T], Any]
    largest_first: bool = False


@dataclass(frozen=True, slots=True)
class ListChoice:
    """What an address says. `filters`: pairs for REST; `sort`: a column's name, with `-` for the other direction."""

    path: str
    filters: tuple[tuple[str, str], ...] = ()
    text: str = ""
    sort: str = ""
    page: int = 1
    cursor: str = ""

    @property
    def narrows(self) -> bool:
        return bool(self.filters or self.text)

    @property
    def is_plain(self) -> bool:
        """Whether the list is as the server has it: in its order, and with everything in it."""
        return not (self.text or self.sort)

    @property
    def address(self) -> str:
        given = [
            *self.filters,
            ("q", self.text),
            ("sort", self.sort),
            ("page", str(self.page) if self.page > 1 else ""),
            ("cursor", self.cursor),
        ]
        query = urlencode([(name, value) for name, value in given if value])
        return f"{self.path}?{query}" if query else self.path

    def at(self, page: int) -> str:
        """The address of another page."""
        return replace(self, page=page, cursor="").address

    def sorted_by(self, name: str) -> str:
        """The address of the list sorted by a column; by that column already, the other way round."""
        return replace(self, sort=f"-{name}" if self.sort == name else name, page=1, cursor="").address

    def chosen(self, name: str) -> str:
        """A filter's value."""
        return dict(self.filters).get(name, "")


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """One page of a list. `total`: None where not counted; `cut`: how many were looked at, where there may be more."""

    items: Sequence[T]
    choice: ListChoice
    columns: Sequence[Column[T]]
    after: str | None
    before: str | None = None
    total: int | None = None
    first: int = 1
    cut: int | None = None

    def direction(self, name: str) -> str:
        """How a column is sorted, as `aria-sort` has it."""
        column = next(column for column in self.columns if column.name == name)
        if self.choice.sort.removeprefix("-") != name:
            return "none"
        return "descending" if column.largest_first != self.choice.sort.startswith("-") else "ascending"


def read_choice(
    path: str, given: Iterable[tuple[str, str]], filters: Sequence[str], columns: Sequence[Column[Any]]
) -> ListChoice:
    """The choice that the parameters of an address make. Raises ProblemError (422) for an order that the list lacks."""
    pairs = [(name, value.strip()) for name, value in given]
    values: Mapping[str, str] = dict(pairs)
    page = values.get("page", "")
    sort, orders = values.get("sort", ""), [column.name for column in columns]
    if sort and sort.removeprefix("-") not in orders:
        raise no_such_choice("The list", "sort", orders)
    return ListChoice(
        path,
        tuple((name, value) for name, value in pairs if name in filters and value),
        values.get("q", "")[:_MOST_TYPED],
        sort,
        int(page) if page.isascii() and page.isdecimal() and len(page) <= _DIGITS and int(page) else 1,
        values.get("cursor", ""),
    )


def arrange(
    items: Sequence[T],
    choice: ListChoice,
    columns: Sequence[Column[T]],
    words_of: Callable[[T], Iterable[str | None]],
    *,
    cut: int | None = None,
) -> Listing[T]:
    """The chosen page of `items` that match, in the chosen order. A page beyond the last is the last."""
    typed = choice.text.casefold()
    found = [item for item in items if any(typed in (word or "").casefold() for word in words_of(item))]
    column = next((column for column in columns if column.name == choice.sort.removeprefix("-")), None)
    if column is not None:
        with_value = [item for item in found if column.key(item) is not None]
        without = [item for item in found if column.key(item) is None]
        backwards = column.largest_first != choice.sort.startswith("-")
        found = [*sorted(with_value, key=column.key, reverse=backwards), *without]
    page = min(choice.page, max(1, -(-len(found) // A_PAGE)))
    start = (page - 1) * A_PAGE
    return Listing(
        found[start : start + A_PAGE],
        choice,
        columns,
        after=choice.at(page + 1) if len(found) > start + A_PAGE else None,
        before=choice.at(page - 1) if page > 1 else None,
        total=len(found),
        first=start + 1,
        cut=cut,
    )
