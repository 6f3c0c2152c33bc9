"""What nodes say of their cards' links, as it is written and read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.cards.link_words import (
    LONGEST_TEXT,
    MOST_LINKED_CARDS,
    BadLinksError,
    Links,
    format_links,
    link_word,
    link_words,
    read_links,
)

ISLANDS = "X NV4 SYS SYS;NV4 X SYS SYS;SYS SYS X NV4;SYS SYS NV4 X"


@st.composite
def topologies(draw: st.DrawFn, most: int = 8, strengths: tuple[int, ...] = (1, 4, 5, 9)) -> Links:
    """Links of some cards."""
    cards = draw(st.integers(1, most))
    links = [[0] * cards for _ in range(cards)]
    for one in range(cards):
        for other in range(one):
            links[one][other] = links[other][one] = draw(st.sampled_from(strengths))
    return tuple(map(tuple, links))


@given(topologies(strengths=(1, 2, 3, 4, 5, 6, 23, 104)))
def test_what_is_written_is_read_back(links: Links) -> None:
    assert read_links(format_links(links)) == links
    assert [" ".join(row) for row in link_words(links)] == format_links(links).split(";")


@pytest.mark.parametrize(
    "text",
    [
        "NV4 0-1 2-3",
        "NV4 2,3 0,1",
        " NV4\t0-1\n2-3 ",
        "X NV4 SYS SYS\nNV4 X\tSYS SYS \nSYS SYS X NV4\nSYS SYS NV4 X\n",
        ISLANDS + ";",
    ],
)
def test_both_forms_say_the_same(text: str) -> None:
    assert format_links(read_links(text)) == ISLANDS


def test_groups_that_do_not_say_how_they_are_joined_are_taken_for_one_switch_each() -> None:
    assert format_links(read_links("0,2 1")) == "X SYS PIX;SYS X SYS;PIX SYS X"


def test_a_stronger_link_is_a_greater_number() -> None:
    words = ["X", "SYS", "NODE", "PHB", "PXB", "PIX", "NV1", "NV2", "NV18", "NV99"]
    assert [link_word(strength) for strength in (0, 1, 2, 3, 4, 5, 6, 7, 23, 104)] == words


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        ("  ;", "it is empty"),
        ("X NV4", "its rows are not as long as there are rows"),
        ("X NV4;NV4", "its rows are not as long as there are rows"),
        ("X NV4;;NV4 X", "its rows are not as long as there are rows"),
        ("X NV4;NV3 X", "its link of 0 to 1 differs from that of 1 to 0"),
        ("X X;X X", "X must stand on the diagonal, and nowhere else"),
        ("X NV4;NV4 SYS", "X must stand on the diagonal, and nowhere else"),
        ("X NV0;NV0 X", "'NV0' is none of X"),
        ("X NV100;NV100 X", "'NV100' is none of X"),
        ("X nv4;nv4 X", "'nv4' is none of X"),
        (";".join([" ".join(["X"] * 65)] * 65), "it has 65 rows, and at most 64 are read"),
        ("X" * (LONGEST_TEXT + 1), f"it is longer than {LONGEST_TEXT} characters"),
        ("0-3 3-7", "its groups must have each index from 0 on, and each once"),
        ("0-3 5-7", "its groups must have each index from 0 on, and each once"),
        ("NV4", "its groups must have each index from 0 on, and each once"),
        ("NVX 0-1", "'NVX' is none of X"),
        ("0-1 zwei", "'zwei' is no group of indices"),
        ("0-1,", "'0-1,' is no group of indices"),
        ("1-0", "'1-0' is no range of indices up to 63"),
        (f"0-{MOST_LINKED_CARDS}", "'0-64' is no range of indices up to 63"),
        ("0-9999", "'0-9999' is no range of indices up to 63"),
        ("0-1 \u0662", "'\u0662' is no group of indices"),
        ("\u0660-1", "'\u0660-1' is no group of indices"),
    ],
)
def test_what_says_nothing_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(BadLinksError) as refused:
        read_links(text)
    assert why in str(refused.value)


@given(st.text(alphabet="X NV0123456789,-;\nSYPIB", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        links = read_links(text)
    except BadLinksError:
        return
    assert read_links(format_links(links)) == links
