"""The colours of terminals on the pages: any text is readable on any ground."""

import re
from pathlib import Path

import pytest

from tools.terminal_colours import PAGES, SHEET, contrast, ground, palette, readable, sheet

STYLES = Path(SHEET).parent


def test_the_style_sheet_is_the_one_that_is_written() -> None:
    assert SHEET.read_text() == sheet(), "python -m tools.terminal_colours writes it"


def test_the_pages_are_those_of_the_site() -> None:
    papers = re.findall(r"--paper: (#\w{6})", (STYLES / "site.css").read_text())
    assert papers == ["#{:02x}{:02x}{:02x}".format(*page) for page in PAGES]


@pytest.mark.parametrize("dark", [False, True])
def test_any_text_is_readable_on_any_ground(dark: bool) -> None:
    texts = [readable(colour, dark) for colour in palette()]
    grounds = [PAGES[dark], *(ground(colour, dark) for colour in palette())]
    assert min(contrast(text, behind) for text in texts for behind in grounds) >= 4.5
    assert min(contrast(PAGES[dark], text) for text in texts) >= 4.5  # inverse


def test_colours_that_are_readable_stay() -> None:
    assert readable((0, 0, 0), dark=False) == (0, 0, 0)
    assert readable((255, 255, 255), dark=True) == (255, 255, 255)
