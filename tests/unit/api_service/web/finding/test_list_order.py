"""Which rows a list's address shows, and in what order."""

from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_service.problems import ProblemError
from api_service.web.finding.list_order import A_PAGE, Column, ListChoice, arrange, read_choice

Row = tuple[str, int | None]
COLUMNS: tuple[Column[Row], ...] = (
    Column("name", "Name", lambda row: row[0]),
    Column("gpus", "GPUs", lambda row: row[1], largest_first=True),
)
ROWS = st.lists(st.tuples(st.text("ab ", max_size=4), st.none() | st.integers(0, 9)), max_size=3 * A_PAGE)
SORTS = st.sampled_from(["", "name", "-name", "gpus", "-gpus"])


def words(row: Row) -> tuple[str]:
    return (row[0],)


def choice_of(address: str) -> ListChoice:
    parts = urlsplit(address)
    return read_choice(parts.path, parse_qsl(parts.query), ("status", "user"), COLUMNS)


@given(ROWS, SORTS, st.text("ab", max_size=2))
def test_the_pages_of_a_list_have_every_row_that_matches_once(rows: list[Row], sort: str, text: str) -> None:
    seen: list[Row] = []
    address: str | None = ListChoice("/jobs", text=text, sort=sort).address
    while address is not None:
        listing = arrange(rows, choice_of(address), COLUMNS, words)
        assert listing.first == len(seen) + 1
        assert len(listing.items) <= A_PAGE
        assert (listing.before is None) == (not seen)
        seen += listing.items
        assert listing.total is not None
        address = listing.after
    assert sorted(seen, key=str) == sorted((row for row in rows if text in row[0]), key=str)
    assert listing.total == len(seen)
    if sort == "name":
        assert [row[0] for row in seen] == sorted(row[0] for row in seen)
    if sort.endswith("gpus"):
        numbers = [row[1] for row in seen if row[1] is not None]
        assert numbers == sorted(numbers, reverse=sort == "gpus")
        assert all(row[1] is None for row in seen[len(numbers) :])
    if not sort:
        assert seen == [row for row in rows if text in row[0]]


@pytest.mark.parametrize(
    ("address", "same"),
    [
        ("/jobs?status=queued&status=running&q=a%26b&sort=-gpus&page=3", None),
        ("/jobs?page=x&nothing=1", "/jobs"),
        ("/jobs?page=0", "/jobs"),
        ("/jobs?page=99999&status=", "/jobs"),
        ("/jobs?page=1", "/jobs"),
        ("/jobs?page=²", "/jobs"),
        ("/jobs?cursor=abc&user=bob", "/jobs?user=bob&cursor=abc"),
    ],
)
def test_an_address_is_what_was_chosen(address: str, same: str | None) -> None:
    assert choice_of(address).address == (same or address)


def test_a_heading_sorts_and_then_the_other_way_round() -> None:
    choice = choice_of("/jobs?user=bob&page=3&cursor=x")
    first = choice.sorted_by("gpus")
    assert first == "/jobs?user=bob&sort=gpus"
    assert choice_of(first).sorted_by("gpus") == "/jobs?user=bob&sort=-gpus"
    assert choice_of(choice_of(first).sorted_by("gpus")).sorted_by("gpus") == first
    directions = [
        arrange([], choice_of(f"/jobs?sort={sort}"), COLUMNS, words).direction("gpus")
        for sort in ("gpus", "-gpus", "name")
    ]
    assert directions == ["descending", "ascending", "none"]


def test_a_page_beyond_the_last_is_the_last() -> None:
    rows: list[Row] = [(str(number), number) for number in range(A_PAGE + 1)]
    listing = arrange(rows, ListChoice("/jobs", page=9), COLUMNS, words)
    assert listing.items == rows[A_PAGE:]
    assert listing.after is None
    assert listing.before == "/jobs"


def test_an_order_that_the_list_lacks_is_said() -> None:
    with pytest.raises(ProblemError) as refused:
        choice_of("/jobs?sort=-colour")
    assert refused.value.detail == "The list has no such order. Write `sort=` in the address with one of name, gpus."
