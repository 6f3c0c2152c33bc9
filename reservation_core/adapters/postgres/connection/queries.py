"""Named SQL statements, read once from the `.sql` files beside the modules that run them.

A statement in a `.sql` file starts with `-- name: its_name`, then one comment line that says what it does, then the SQL
with `:parameters`. What stands before a file's first name is a comment on the file. Casts are written
`CAST(:x AS type)`: SQLAlchemy would read `:x::type` as another parameter, so `::` is refused.
"""

import re
from collections.abc import Iterable
from pathlib import Path

import sqlalchemy

SQL_FOLDER = Path(__file__).parents[1]

_NAME = re.compile(r"--\s*name:\s*(?P<name>[a-z][a-z0-9_]*)\s*")


class QueryFileError(Exception):
    """A `.sql` file breaks the format, or a name is doubled; the text says where and what to change."""


class UnknownQueryError(LookupError):
    """No `.sql` file defines a statement of this name; the text lists the known ones."""


def parse(text: str, source: str) -> dict[str, str]:
    """Split one file's text into statements by name.

    `source` is the file's name for error texts. Raises QueryFileError for what breaks the format.
    """
    statements: dict[str, str] = {}
    name: str | None = None
    lines: list[str] = []
    for line in text.splitlines():
        match = _NAME.fullmatch(line.strip())
        if match is None:
            if re.match(r"\s*--\s*name\b", line):
                raise QueryFileError(f"{source}: write {line.strip()!r} as `-- name: lower_case_words`.")
            lines.append(line)
            continue
        if name is not None:
            statements[name] = _statement(name, lines, source)
        name = match["name"]
        if name in statements:
            raise QueryFileError(f"{source}: the name {name} is used twice; rename one of them.")
        lines = []
    if name is None:
        raise QueryFileError(f"{source}: holds no `-- name: …` line; name its statement or delete the file.")
    statements[name] = _statement(name, lines, source)
    return statements


def _statement(name: str, lines: list[str], source: str) -> str:
    if not lines or not lines[0].startswith("-- "):
        raise QueryFileError(f"{source}: {name} needs a comment line after its name that says what it does.")
    # Comments don't travel to the server, and a colon in one must not become a parameter.
    body = "\n".join(line for line in lines if not line.lstrip().startswith("--")).strip().rstrip(";").rstrip()
    if not body:
        raise QueryFileError(f"{source}: {name} has no statement.")
    if "::" in body:
        raise QueryFileError(f"{source}: {name} casts with `::`; write CAST(… AS …) instead.")
    return body


def load(paths: Iterable[Path]) -> dict[str, sqlalchemy.TextClause]:
    """Read files into statements by name. Raises QueryFileError, also when two files use one name."""
    found: dict[str, sqlalchemy.TextClause] = {}
    origin: dict[str, str] = {}
    for path in sorted(paths):
        for name, body in parse(path.read_text(encoding="utf-8"), path.name).items():
            if name in found:
                raise QueryFileError(f"{path.name}: the name {name} is taken by {origin[name]}; rename one of them.")
            found[name] = sqlalchemy.text(body)
            origin[name] = path.name
    return found


_STATEMENTS = load(sorted(SQL_FOLDER.glob("*/*.sql")))


def statement(name: str) -> sqlalchemy.TextClause:
    """The statement of this name, ready to execute with its parameters. Raises UnknownQueryError."""
    try:
        return _STATEMENTS[name]
    except KeyError:
        known = ", ".join(sorted(_STATEMENTS)) or "none"
        raise UnknownQueryError(
            f"No statement is named {name}. Add it to a file below {SQL_FOLDER}; known: {known}."
        ) from None


def names() -> frozenset[str]:
    """Every statement's name."""
    return frozenset(_STATEMENTS)
