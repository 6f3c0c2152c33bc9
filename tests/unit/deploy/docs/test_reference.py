"""The generated pages of the reference are what the code says."""

import re

import pytest

from tools.reference import FOLDER, PAGES, settings_page


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_current(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name](), "run `make reference`"


def test_every_setting_has_a_meaning_that_stands_alone() -> None:
    rows = [line.strip("| ").split(" | ") for line in settings_page().splitlines() if line.startswith("| `")]
    assert len(rows) > 200
    assert [row[0] for row in rows if len(row) < 4] == []
    # Rows are sorted by name: the one before is another setting's neighbour than in the code.
    back = re.compile(r"^(The same|This|These|After that|Such)\b", re.IGNORECASE)
    assert [row[0] for row in rows if back.search(row[-1])] == []
