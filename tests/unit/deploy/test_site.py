"""The documentation site has every page once, on one of its shelves."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
_SITE = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def test_every_page_is_on_a_shelf_once() -> None:
    listed = re.findall(r": ([\w/.-]+\.md)$", _SITE, re.MULTILINE)
    there = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(there)


def test_the_shelves_are_four() -> None:
    nav = _SITE.partition("\nnav:\n")[2]
    assert re.findall(r"^  - ([\w-]+):", nav, re.MULTILINE) == [
        "Home",
        "Tutorial",
        "How-to",
        "Explanation",
        "Reference",
    ]


def test_design_records_are_listed_by_their_titles() -> None:
    listed = dict(re.findall(r'^ {10}- "(.+)": (design/.+\.md)$', _SITE, re.MULTILINE))
    assert listed
    for title, page in listed.items():
        assert (ROOT / "docs" / page).read_text(encoding="utf-8").partition("\n")[0].replace('"', "") == f"# {title}"
