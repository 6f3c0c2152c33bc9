"""The generated pages of the reference are what the code says."""

import pytest

from tools.reference import FOLDER, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_current(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name](), "run `make reference`"
