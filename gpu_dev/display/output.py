"""Formats of answers: `-o table|wide|json|yaml|name`.

Tables are for people: local times, short durations, colour on a terminal only (and none with NO_COLOR). JSON and YAML
are for programs: the wire's own fields, RFC 3339 UTC, ISO 8601 durations; lists are `{items, next_cursor}`.
Whatever others wrote (names, details) can't reach the terminal as control characters.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any, Generic, TypeVar, assert_never

from msgspec import Struct
from msgspec.structs import replace

from gpu_dev.terminal import Rendered, clean
from reservation_core.domain.short_durations import iso8601
from reservation_core.domain.time_words import rfc3339

T = TypeVar("T", bound=Struct)
_GAP = "  "
_BOLD, _DIM, _RED, _GREEN, _YELLOW, _MAGENTA, _CYAN = 1, 2, 31, 32, 33, 35, 36
_FIRST_COLOUR = 30
_STYLES = {
    "running": _GREEN,
    "succeeded": _GREEN,
    "free": _GREEN,
    "queued": _YELLOW,
    "starting": _CYAN,
    "ending": _CYAN,
    "held": _YELLOW,
    "failed": _RED,
    "lost": _RED,
    "quarantined": _RED,
    "cancelled": _DIM,
    "expired": _MAGENTA,
    "Starts now": _GREEN,
    "Accepted": _YELLOW,
    "Refused": _RED,
}
"""Words and the numbers of their ANSI styles."""


class Format(StrEnum):
    """The format of an answer."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class Column(Struct, Generic[T], frozen=True):
    """One column of a table, or one line of a single thing's table; `wide` ones are shown by `-o wide` only."""

    title: str
    value: Callable[[T], str]
    wide: bool = False
    right: bool = False


class View(Struct, Generic[T], frozen=True):
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
            rows = [[clean(column.value(item)) for column in columns] for item in items]
            return _table([[column.title for column in columns], *rows], [column.right for column in columns])
        case Format.JSON | Format.YAML:
            plain = {"items": as_data(items), "next_cursor": next_cursor, **more}
            return _data(plain, form)
        case Format.NAME:
            return Rendered("".join(f"{clean(view.name(item))}\n" for item in items))
        case _:
            assert_never(form)


def show_one(item: T, view: View[T], form: Format) -> Rendered:
    """A single thing as text that ends with a line break: its fields below each other, or its data."""
    match form:
        case Format.TABLE | Format.WIDE:
            lines = ((column.title.lower(), clean(column.value(item))) for column in view.columns)
            return _table([[*line] for line in lines if line[1] or form is Format.WIDE], [False, False], down=True)
        case Format.JSON | Format.YAML:
            return _data(as_data(item), form)
        case Format.NAME:
            return Rendered(f"{clean(view.name(item))}\n")
        case _:
            assert_never(form)


def with_facts(view: View[T], facts: Iterable[tuple[str, str]]) -> View[T]:
    """The details of one item with more facts, each with its title."""
    more = tuple(Column[T](title.upper(), _always(words)) for title, words in facts)
    return replace(view, columns=(*view.columns, *more))


def _always(words: str) -> Callable[[Any], str]:
    return lambda _item: words


def as_data(value: Any) -> Any:
    """An answer as the wire has it: objects, lists, texts and numbers."""
    match value:
        case Struct():
            return {name: as_data(getattr(value, name)) for name in value.__struct_fields__}
        case dict():
            return {as_data(key): as_data(item) for key, item in value.items()}
        case list() | tuple():
            return [as_data(item) for item in value]
        case Enum():
            return value.value
        case datetime():
            return rfc3339(value)
        case timedelta():
            return iso8601(value)
        case Decimal():
            return str(value)
        case _:
            return value


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


def csv_text(text: str) -> Rendered:
    """CSV of the server, whose lines end with CRLF."""
    return Rendered("\r\n".join(map(clean, text.split("\r\n"))))


def amount(number: float) -> str:
    """A number to the hundredth: `20`, `2.5`."""
    return f"{number:.2f}".rstrip("0").rstrip(".")


def coloured(word: str) -> Rendered:
    """One word, or what is over a limit, in the colour of what it says."""
    return Rendered(_styled(clean(word), _style_of(word), _may_style()))


def _style_of(text: str) -> int | None:
    return _STYLES.get(text, _RED if text.endswith(", over") else None)


def _table(rows: list[list[str]], right: Sequence[bool], *, down: bool = False) -> Rendered:
    """Rows of clean texts below each other, titles first; `down`: each row's title, then its value."""
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    may_style = _may_style()
    lines = []
    for number, row in enumerate(rows):
        cells = []
        for place, (text, width, is_right) in enumerate(zip(row, widths, right, strict=True)):
            is_title = place == 0 if down else number == 0
            shown = _styled(text, _BOLD if is_title else _style_of(text), may_style)
            space = " " * (width - _width(text))
            cells.append(space + shown if is_right else shown + space)
        lines.append(_GAP.join(cells).rstrip() + "\n")
    return Rendered("".join(lines))


def _styled(text: str, style: int | None, may_style: tuple[bool, bool]) -> str:
    on, with_colours = may_style
    if style is None or not text or not on or (style > _FIRST_COLOUR and not with_colours):
        return text
    return f"\x1b[{style}m{text}\x1b[0m"


def _may_style() -> tuple[bool, bool]:
    """Whether stdout is a terminal, and whether it wants colours."""
    on = bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty()
    return on, not os.environ.get("NO_COLOR")


def _width(text: str) -> int:
    """Columns on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
