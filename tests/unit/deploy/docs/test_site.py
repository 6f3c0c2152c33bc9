"""The documentation site has every page once, on one of its shelves."""

import re
from pathlib import Path

import pytest

from tools.site import faults

ROOT = Path(__file__).parents[4]
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


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ('<script src="assets/site.js"></script><a href="https://kind.example">kind</a>', []),
        ('<link rel="canonical" href="https://docs.example/index.html">', []),
        ('<script src="https://cdn.example/x.js"></script>', ["index.html loads https://cdn.example/x.js"]),
        ('<link rel="stylesheet" href="//fonts.example/x.css">', ["index.html loads //fonts.example/x.css"]),
        ('<img src="http://images.example/x.png">', ["index.html loads http://images.example/x.png"]),
    ],
)
def test_a_page_that_loads_something_from_elsewhere_is_found(tmp_path: Path, written: str, found: list[str]) -> None:
    (tmp_path / "index.html").write_text(written)
    assert list(faults(tmp_path)) == found
