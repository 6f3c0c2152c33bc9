"""Formats of answers: `-o table|wide|json|yaml|name`.

Tables are for people: local times, short durations, colour on a terminal only (and none with NO_COLOR). JSON and YAML
are for programs: the wire's own fields, RFC 3339 UTC, ISO 8601 durations; lists are `{items, next_cursor}`.
Whatever others wrote (names, details) can't reach the terminal as control characters.
"""

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar, assert_never

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpu_dev.display.local_times import local_sentence
from gpu_dev.terminal import Rendered, clean

T = TypeVar("T", bound=BaseModel)
_ENDLESS = 100_000
_STYLES = {
    "running": "green",
    "succeeded": "green",
    "free": "green",
    "queued": "yellow",
    "starting": "cyan",
    "ending": "cyan",
    "held": "yellow",
    "failed": "red",
    "lost": "red",
    "quarantined": "red",
    "cancelled": "dim",
    "expired": "magenta",
    "Starts now": "green",
    "Accepted": "yellow",
    "Refused": "red",
}


class Format(StrEnum):
    """The format of an answer."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


# Without slots: in Python 3.11 a frozen generic class with slots can't be called as `View[Job](…)`.
@dataclass(frozen=True)
class Column(Generic[T]):
    """One column of a table, or one line of a single thing's table; `wide` ones are shown by `-o wide` only."""

    title: str
    value: Callable[[T], str]
    wide: bool = False
    right: bool = False


@dataclass(frozen=True)
class View(Generic[T]):
    """The view of one kind of thing: its columns, its name, and the text for an empty list."""

    name: Callable[[T], str]
    columns: tuple[Column[T], ...]
    empty: str = "Nothing to show."


def show_list(
    items: Sequence[T], view: View[T], form: Format, *, next_cursor: str | None = None, **more: Any
) -> Rendered:
    """A list as text that ends with a line break; `more` are further fields of the answer for JSON and YAML."""
    match form:
        case Format.TABLE | Format.WIDE:
            if not items:
                return Rendered(f"{view.empty}\n")
            columns = [column for column in view.columns if form is Format.WIDE or not column.wide]
            table = _table()
            for column in columns:
                table.add_column(column.title, justify="right" if column.right else "left", no_wrap=True)
            for item in items:
                table.add_row(*(_cell(column.value(item)) for column in columns))
            return _rendered(table)
        case Format.JSON | Format.YAML:
            plain = {"items": [item.model_dump(mode="json") for item in items], "next_cursor": next_cursor, **more}
            return _data(plain, form)
        case Format.NAME:
            return Rendered("".join(f"{clean(view.name(item))}\n" for item in items))
        case _:
            assert_never(form)


def show_one(item: T, view: View[T], form: Format) -> Rendered:
    """A single thing as text that ends with a line break: its fields below each other, or its data."""
    match form:
        case Format.TABLE | Format.WIDE:
            table = _table(header=False)
            table.add_column(no_wrap=True, style="bold")
            table.add_column(no_wrap=True)
            for column in view.columns:
                value = column.value(item)
                if value or form is Format.WIDE:
                    table.add_row(column.title.lower(), _cell(value))
            return _rendered(table)
        case Format.JSON | Format.YAML:
            return _data(item.model_dump(mode="json"), form)
        case Format.NAME:
            return Rendered(f"{clean(view.name(item))}\n")
        case _:
            assert_never(form)


def memory(size_bytes: int | None) -> str:
    """A GPU's memory in GiB; empty when unknown."""
    return "" if size_bytes is None else f"{size_bytes / 2**30:.0f} GiB"


def as_json(plain: Any, *, indent: int | None = None) -> Rendered:
    """JSON with a line break. Characters that steer a terminal are escaped, which JSON reads as the same."""
    text = json.dumps(plain, indent=indent, ensure_ascii=False, separators=None if indent else (",", ":"))
    lines = (line if line.isprintable() else _escaped(line) for line in text.split("\n"))
    return Rendered("\n".join(lines) + "\n")


def _escaped(line: str) -> str:
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)


def _data(plain: Any, form: Format) -> Rendered:
    if form is Format.JSON:
        return as_json(plain, indent=2)
    import yaml

    text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
    if not text.replace("\n", "").isprintable():
        text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=False)
    return Rendered(text)


def coloured(word: str) -> Rendered:
    """One word in the colour of what it says."""
    return Rendered(_printed(_cell(word)).removesuffix("\n"))


def _table(*, header: bool = True) -> Table:
    return Table(box=None, pad_edge=False, show_header=header, header_style="bold", padding=(0, 2, 0, 0))


def _cell(value: str) -> Text:
    return Text(clean(local_sentence(value)), style=_STYLES.get(value, ""))


def _rendered(table: Table) -> Rendered:
    return Rendered("".join(f"{line.rstrip()}\n" for line in _printed(table).splitlines()))


def _printed(content: Table | Text) -> str:
    """A table or text as wide as it needs to be, coloured when stdout is a terminal that wants it."""
    wanted = Console()
    console = Console(
        file=io.StringIO(),
        width=_ENDLESS,
        force_terminal=wanted.is_terminal,
        no_color=wanted.no_color,
        color_system="standard" if wanted.is_terminal else None,
        highlight=False,
    )
    with console.capture() as captured:
        console.print(content, crop=False)
    return captured.get()
