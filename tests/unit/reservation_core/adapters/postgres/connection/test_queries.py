"""The loader of named SQL statements: its format, and that mistakes are caught when the program starts."""

from pathlib import Path

import pytest

from reservation_core.adapters.postgres.connection import queries


def test_a_file_holds_many_statements() -> None:
    text = (
        "-- about the file\n\n-- name: one\n-- Gets one: really.\nSELECT :a;\n\n"
        "-- name: two\n-- Gets two.\n-- and more: text\nSELECT 2\n"
    )
    assert queries.parse(text, "x.sql") == {"one": "SELECT :a", "two": "SELECT 2"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-- name: a\n-- A.\nSELECT 1\n-- name: a\n-- A.\nSELECT 2\n", "used twice"),
        ("-- name: a\n-- A.\nSELECT 1\n-- name: b\n-- B.\nSELECT 1\n-- name: a\n-- A.\nSELECT 2\n", "used twice"),
        ("-- name: a\nSELECT 1\n", "needs a comment line"),
        ("-- name: a\n-- A.\n", "no statement"),
        ("-- name: a\n-- A.\nSELECT :x::int\n", "CAST"),
        ("-- name: Bad Name\n-- A.\nSELECT 1\n", "lower_case_words"),
        ("SELECT 1\n", "holds no"),
    ],
)
def test_mistakes_are_errors_that_say_where(text: str, message: str) -> None:
    with pytest.raises(queries.QueryFileError, match=message) as raised:
        queries.parse(text, "x.sql")
    assert "x.sql" in str(raised.value)


def test_a_name_may_not_be_used_by_two_files(tmp_path: Path) -> None:
    for file in ("a.sql", "b.sql"):
        (tmp_path / file).write_text("-- name: same\n-- The same.\nSELECT 1\n")
    with pytest.raises(queries.QueryFileError, match=r"b\.sql: the name same is taken by a\.sql"):
        queries.load(tmp_path.glob("*.sql"))


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(queries.UnknownQueryError, match="No statement is named no_such_statement"):
        queries.statement("no_such_statement")


def test_every_statement_of_the_project_loads() -> None:
    for name in queries.names():
        assert str(queries.statement(name))
