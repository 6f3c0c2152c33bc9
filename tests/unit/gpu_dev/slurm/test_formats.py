"""Formats of tables, as Slurm describes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_dev.slurm.formats import Field, UnknownFieldError, read_format, table_lines

FIELDS = {"i": Field[str]("JOBID", lambda text: text), "n": Field[str]("LENGTH", lambda text: str(len(text)))}


def shown(form: str, *things: str, titles: bool = False) -> str:
    columns, after = read_format(form, FIELDS)
    return table_lines(things, columns, after, titles=titles)


@pytest.mark.parametrize(
    ("form", "line"),
    [
        ("%i", "job-1"),
        ("%8i|", "job-1   |"),
        ("%.8i|", "   job-1|"),
        ("%3i|", "job|"),
        ("%.3i|", "job|"),
        ("<%i %n>", "<job-1 5>"),
        ("none", "none"),
    ],
)
def test_a_field_has_a_width_and_a_side(form: str, line: str) -> None:
    assert shown(form, "job-1") == f"{line}\n"


def test_titles_have_the_same_widths() -> None:
    assert shown("%.7i %n", "job-1", titles=True) == "  JOBID LENGTH\n  job-1 5\n"
    assert shown("%i", titles=True) == "JOBID\n"


@pytest.mark.parametrize("form", ["%z", "%", "% i", "%%i", "%5"])
def test_an_unknown_field_is_named(form: str) -> None:
    with pytest.raises(UnknownFieldError):
        read_format(form, FIELDS)


@given(st.integers(1, 30), st.booleans(), st.text(max_size=40))
def test_a_cell_is_as_wide_as_asked(width: int, right: bool, text: str) -> None:
    [column], _ = read_format(f"%{'.' if right else ''}{width}i", FIELDS)
    assert len(column.cell(text)) == width


def test_a_value_cannot_steer_the_terminal() -> None:
    assert shown("%i", "a\x1b[2J\nb") == "a\\x1b[2J\\nb\n"
