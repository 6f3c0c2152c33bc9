"""Every design record states its status and the date of its decision."""

import re
from datetime import date
from pathlib import Path

import pytest

RECORDS = sorted((Path(__file__).parents[3] / "docs" / "design").glob("*.md"))
_HEAD = re.compile(
    r"# (\d{4}):? \S.*\n\n"
    r"\*\*Status\.\*\* (?:Proposed|Accepted|Superseded by \[\d{4}\]\((\d{4}-[a-z0-9-]+\.md)\)), (\d{4}-\d{2}-\d{2})\.\s"
)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.stem)
def test_a_design_record_begins_with_its_number_status_and_date(record: Path) -> None:
    head = _HEAD.match(record.read_text(encoding="utf-8"))
    assert head is not None, "begin with '# NNNN Title', an empty line, and '**Status.** Accepted, YYYY-MM-DD.'"
    number, successor, decided = head.groups()
    assert record.name.startswith(f"{number}-")
    assert successor is None or record.with_name(successor).is_file()
    date.fromisoformat(decided)


def test_numbers_are_consecutive() -> None:
    assert [record.name[:4] for record in RECORDS] == [f"{number:04}" for number in range(1, len(RECORDS) + 1)]
