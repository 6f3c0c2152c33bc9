"""Steps between a template and its page."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from jinja2 import Environment, FileSystemLoader

import api_service.web
from api_service.web.rendering import label_cells
from reservation_core.domain.request_terms import size_words

TEMPLATES = Path(api_service.web.__file__).parent / "templates"

TABLE = """<p>Before</p><table>
  <caption>All</caption>
  <thead><tr><th scope="col" class="number">Place</th><th scope="col">Job</th>
  <th scope="col"><span>Act</span></th></tr></thead>
  <tbody><tr id="a"><td class="number">1</td><th scope="row">x</th><td>go</td></tr>
  <tr><td>2</td><th scope="row">y</th><td></td></tr></tbody>
</table><p>After</p>"""


def test_cells_carry_their_headings() -> None:
    labelled = label_cells(TABLE + TABLE)
    assert labelled.count('data-label="Place"') == 4
    assert '<td data-label="Place" class="number">1</td><th data-label="Job" scope="row">x</th>' in labelled
    assert '<td data-label="">go</td>' in labelled  # its heading is for screen readers
    assert labelled.replace(' data-label="Place"', "").replace(' data-label="Job"', "").replace(
        ' data-label=""', ""
    ) == (TABLE + TABLE)


def test_a_label_is_the_text_of_its_heading_alone() -> None:
    heading = '<abbr title="Thursday">Thu &amp; "Fri"</abbr>'
    labelled = label_cells(TABLE.replace("Place", heading))
    assert '<td data-label="Thu &amp; &quot;Fri&quot;" class="number">1</td>' in labelled


def test_the_rest_is_left_alone() -> None:
    for text in ("<p>No table</p>", "<table>", "<table><tbody><tr><td>no headings</td></tr></tbody></table>"):
        assert label_cells(text) == text


@pytest.mark.parametrize(
    ("cpus", "memory", "shown"),
    [(0.25, 3 * 2**29, "0.25 CPUs, 1.5 GiB"), (1, None, "1 CPU"), (None, 2**30, "1 GiB")],
)
def test_cpus_and_memory_are_apart(cpus: float | None, memory: int | None, shown: str) -> None:
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True)
    environment.filters["size"] = size_words
    amounts = environment.from_string('{% from "_amounts.html" import amounts %}{{ amounts(resources) }}')
    assert amounts.render(resources=SimpleNamespace(cpus=cpus, memory=memory, shm=None)) == shown


def test_what_only_scripts_fill_is_not_shown_without_them() -> None:
    calendar = (TEMPLATES / "calendar.html").read_text()
    for mark in ('id="calendar"', 'id="calendar-hint"', ">As a table<"):
        line = next(line for line in calendar.splitlines() if mark in line)
        assert re.match(r'<\w+ class="[^"]*\bscripted\b', line) or 'class="timeline scripted' in line
    assert "(scripting: none) { .scripted { display: none" in (TEMPLATES.parent / "styles" / "site.css").read_text()


_TAG = re.compile(r"<\w+(?:[^<>{]|\{\{.*?\}\}|\{%.*?%\})*>")
_REASON = re.compile(r"\{\{[^}]*\b(?:problem|reason|why|now)\.detail[^}]*\}\}")


def test_commands_in_reasons_are_marked_in_text_and_plain_in_attributes() -> None:
    for template in TEMPLATES.rglob("*.html"):
        text = template.read_text()
        assert [tag for tag in _TAG.findall(text) if "with_code" in tag] == [], template.name
        assert [reason for reason in _REASON.findall(_TAG.sub("", text)) if "with_code" not in reason] == []
