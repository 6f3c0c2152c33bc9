"""Pages whose commands a test types: they can be read, they say what is not typed, and a difference is found."""

from pathlib import Path

import pytest

from tests.e2e.pages.played_page import DOCS, PageExamples, blocks_of

PAGES = [DOCS.parent / "README.md", *sorted((DOCS / "tutorial").glob("*.md"))]
NOT_PLAYED = {
    "first-ten-minutes-cluster": [
        "needs a container engine", "needs a container engine and helm", "needs the server in a pod"
    ],
    "first-session": ["the shell in the session has a prompt of its own"],
}  # fmt: skip
SHOWN = ["job-7f3k9q2m", "…", "  free from Fri 27 Nov 2026 08:00 …"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_can_be_read_and_says_what_is_not_played(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    left_out = [block.not_played for block in blocks_of(text) if block.not_played is not None]
    assert left_out == NOT_PLAYED.get(page.stem, [])
    assert "```\n$ " not in text, "what is typed stands in a block of the kind console"


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        ("job-00000001\nsaid\n\nsaid\n  free from Mon 7 Jan 2030 08:00 to 10:00\n", None),
        ("job-00000001\n  free from Mon 7 Jan 2030 08:00 to 10:00\n", None),
        ("said\njob-00000001\n  free from Mon 7 Jan 2030 08:00 to 10:00\n", "missing here: job-7f3k9q2m"),
        ("job-00000001\nsaid\n", "missing:   free from Fri 27 Nov 2026 08:00 …"),
        ("job-00000001\n  free from Mon 7 Jan 2030 08:00 to 10:00\nsaid\n", "not in the page: said"),
    ],
)
def test_all_that_is_shown_has_to_be_in_the_page(answer: str, wrong: str | None) -> None:
    assert PageExamples().learn(SHOWN, answer) == wrong


def test_an_example_stands_for_one_thing() -> None:
    examples = PageExamples()
    assert examples.learn(["job-7f3k9q2m Fri 27 Nov 2026 11:00"], "job-00000001 Mon 7 Jan 2030 11:00\n") is None
    assert examples.put_in("gpu-dev cancel job-7f3k9q2m") == "gpu-dev cancel job-00000001"
    assert examples.learn(["job-7f3k9q2m"], "job-00000002\n") is not None
    assert examples.learn(["Fri 27 Nov 2026"], "Tue 8 Jan 2030\n") is not None
