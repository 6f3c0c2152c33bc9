"""Reading large JSON a part at a time: where each part begins and ends, and only one of many in memory at once.

Names of members are compared as Go's decoder does: in any letter case. Of members that are repeated the last counts.
"""

import json
import re
from collections.abc import Iterator, Mapping
from math import isinf
from typing import Any, NoReturn

_SPACE = re.compile(r"[ \t\n\r]*")


class BadJsonError(ValueError):
    """The text is not JSON, or not of the expected shape; the text of this says what is wrong."""


class JsonWalk:
    """A walk through one JSON text, forward only."""

    def __init__(self, body: bytes) -> None:
        try:
            self.text = body.decode("utf-8")
        except UnicodeDecodeError:
            raise BadJsonError("the body is not JSON in UTF-8") from None
        self._at = 0
        self._decode = json.JSONDecoder(parse_float=_finite, parse_constant=_no_constant).raw_decode

    def members(self, what: str) -> Iterator[str]:
        """The names of an object's members, in lower case; take each one's value before the next. None has none."""
        if self._is_null():
            return
        self._expect("{", f"{what} must be an object")
        if self._peek() == "}":
            self._at += 1
            return
        while True:
            name = self.value() if self._peek() == '"' else None
            if not isinstance(name, str):
                raise _not_json()
            self._expect(":")
            yield name.lower()
            if self._peek() == "}":
                self._at += 1
                return
            self._expect(",")

    def items(self, what: str) -> Iterator[None]:
        """A list's items; take each before the next. None has none."""
        if self._is_null():
            return
        self._expect("[", f"{what} must be a list")
        if self._peek() == "]":
            self._at += 1
            return
        while True:
            yield None
            if self._peek() == "]":
                self._at += 1
                return
            self._expect(",")

    def value(self) -> Any:
        """The value that comes next."""
        return self.span()[0]

    def span(self) -> tuple[Any, int, int]:
        """The same with where it begins and ends in the text."""
        begins = self._skip()
        try:
            value, self._at = self._decode(self.text, begins)
        except (ValueError, RecursionError):
            raise _not_json() from None
        return value, begins, self._at

    def end(self) -> None:
        """Nothing may come any more."""
        if self._skip() != len(self.text):
            raise _not_json()

    def is_null(self) -> bool:
        """Whether null comes next; it is left where it is."""
        return self.text.startswith("null", self._skip())

    def _is_null(self) -> bool:
        if not self.is_null():
            return False
        self._at += 4
        return True

    def _skip(self) -> int:
        found = _SPACE.match(self.text, self._at)
        if found is not None:
            self._at = found.end()
        return self._at

    def _peek(self) -> str:
        at = self._skip()
        return self.text[at : at + 1]

    def _expect(self, mark: str, otherwise: str | None = None) -> None:
        if self._peek() != mark:
            raise _not_json() if otherwise is None or self._peek() == "" else BadJsonError(otherwise)
        self._at += 1


def member(found: Mapping[str, Any], name: str) -> Any:
    """A member in any letter case, that of exactly this name first; None without one."""
    if name in found:
        return found[name]
    lower = name.lower()
    return next((value for key, value in found.items() if key.lower() == lower), None)


def text_member(found: Mapping[str, Any], name: str, longest: int) -> str:
    """The same where a text of 1 to `longest` characters is wanted. Raises BadJsonError."""
    value = member(found, name)
    if not isinstance(value, str) or not 0 < len(value) <= longest:
        raise BadJsonError(f"{name} must be a text of 1 to {longest} characters")
    return value


def _not_json() -> BadJsonError:
    return BadJsonError("the body is not JSON in UTF-8")


def _finite(text: str) -> float:
    value = float(text)
    if isinf(value):
        raise ValueError("a number so large is none to Go either")
    return value


def _no_constant(_name: str) -> NoReturn:
    raise ValueError("NaN and Infinity are not JSON")
