"""Formats of `squeue -o` and `sinfo -o`: `%.10i` is a column that is ten characters wide, at the right."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from gpu_dev.terminal import clean

T = TypeVar("T")
_FIELD = re.compile(r"%(\.?)(\d{0,4})([A-Za-z])")


class UnknownFieldError(Exception):
    """A format names a column that does not exist here."""


# Without slots: in Python 3.11 a frozen generic class with slots can't be called as `Field[Job](…)`.
@dataclass(frozen=True)
class Field(Generic[T]):
    """A column: its title, and what it shows of a thing."""

    title: str
    value: Callable[[T], str]


@dataclass(frozen=True)
class Column(Generic[T]):
    """A column as a format writes it: text before it, its width (0 for any), its side."""

    before: str
    field: Field[T]
    width: int
    right: bool

    def cell(self, text: str) -> str:
        """A text at the column's width: cut, or filled with spaces."""
        if not self.width:
            return self.before + text
        return self.before + (text.rjust(self.width) if self.right else text.ljust(self.width))[: self.width]


def read_format(form: str, fields: Mapping[str, Field[T]]) -> tuple[list[Column[T]], str]:
    """The columns of a format, and the text after them. Raises UnknownFieldError."""
    columns, end = [], 0
    for found in _FIELD.finditer(form):
        if (field := fields.get(found[3])) is None:
            raise UnknownFieldError(f"%{found[3]}")
        columns.append(Column(form[end : found.start()], field, int(found[2] or 0), bool(found[1])))
        end = found.end()
    if "%" in form[end:] or any("%" in column.before for column in columns):
        raise UnknownFieldError("%")
    return columns, form[end:]


def table_lines(things: Iterable[T], columns: Iterable[Column[T]], after: str, *, titles: bool) -> str:
    """Lines of a table."""
    columns = list(columns)
    lines = ["".join(column.cell(column.field.title) for column in columns)] if titles else []
    lines += ("".join(column.cell(clean(column.field.value(thing))) for column in columns) for thing in things)
    return "".join(f"{(line + after).rstrip()}\n" for line in lines)
