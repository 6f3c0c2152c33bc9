"""What Go's `encoding/json` makes of an answer, for the few types that schedulers decode into.

Names are matched in any letter case, unknown ones are skipped, null leaves the zero value, and a value of another type
is an error, which comes after the rest was decoded.
"""

import json
from dataclasses import dataclass
from typing import Any


class GoTypeError(Exception):
    """json: cannot unmarshal …"""


@dataclass(frozen=True)
class Text:
    zero: Any = ""


@dataclass(frozen=True)
class Whole:
    zero: Any = 0


@dataclass(frozen=True)
class Real:
    zero: Any = 0.0


@dataclass(frozen=True)
class Anything:
    zero: Any = None


@dataclass(frozen=True)
class ListOf:
    item: Any
    zero: Any = None


@dataclass(frozen=True)
class MapOf:
    item: Any
    zero: Any = None


@dataclass(frozen=True)
class Struct:
    fields: dict[str, Any]
    pointer: bool = False

    @property
    def zero(self) -> Any:
        return None if self.pointer else {name: kind.zero for name, kind in self.fields.items()}


def decode(body: bytes, kind: Any) -> Any:
    """The decoded value. Raises GoTypeError, and ValueError for what is no JSON."""
    problems: list[str] = []
    value = _decoded(json.loads(body), kind, problems)
    if problems:
        raise GoTypeError(problems[0])
    return value


def _decoded(found: Any, kind: Any, problems: list[str]) -> Any:
    if found is None:
        return kind.zero
    return _checked(found, kind, problems)


def _checked(found: Any, kind: Any, problems: list[str]) -> Any:
    if isinstance(kind, Anything):
        return found
    if isinstance(kind, Text) and isinstance(found, str):
        return found
    if isinstance(kind, Whole) and isinstance(found, int) and not isinstance(found, bool):
        return found
    if isinstance(kind, Real) and isinstance(found, int | float) and not isinstance(found, bool):
        return float(found)
    if isinstance(kind, ListOf) and isinstance(found, list):
        return [_decoded(member, kind.item, problems) for member in found]
    if isinstance(kind, MapOf) and isinstance(found, dict):
        return {name: _decoded(member, kind.item, problems) for name, member in found.items()}
    if isinstance(kind, Struct) and isinstance(found, dict):
        made = {name: field.zero for name, field in kind.fields.items()}
        by_fold = {name.lower(): name for name in kind.fields}
        for name, member in found.items():
            known = by_fold.get(name.lower())
            if known is not None:
                made[known] = _decoded(member, kind.fields[known], problems)
        return made
    problems.append(f"cannot unmarshal {type(found).__name__} into {kind}")
    return kind.zero
