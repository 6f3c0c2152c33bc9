"""The escapes of OpenSSH in what is typed: `~` at the beginning of a line and one more character."""

from collections.abc import Iterator
from enum import Enum, auto

HELP = """\r
Escapes, after Enter:\r
 ~.   leave the job's terminal\r
 ~^Z  suspend gpu-dev\r
 ~?   this list\r
 ~~   type ~\r
"""
_ESCAPE = ord("~")
_LINE_ENDS = b"\r\n"
_SUSPEND = 0x1A


class Escape(Enum):
    """A request to gpu-dev itself."""

    LEAVE = auto()
    SUSPEND = auto()
    HELP = auto()


_ESCAPES = {ord("."): Escape.LEAVE, _SUSPEND: Escape.SUSPEND, ord("?"): Escape.HELP}


class Escapes:
    """Parts of what is typed: input for the program, and escapes."""

    def __init__(self) -> None:
        self._at_line_start = True
        self._begun = False

    def feed(self, typed: bytes) -> Iterator[bytes | Escape]:
        """The parts, in order; no part is empty."""
        if not self._begun and _ESCAPE not in typed:
            self._at_line_start = typed[-1:] in (b"\r", b"\n") if typed else self._at_line_start
            if typed:
                yield typed
            return
        passed = bytearray()
        for character in typed:
            if self._begun:
                self._begun = False
                escape = _ESCAPES.get(character)
                if escape is not None:
                    if passed:
                        yield bytes(passed)
                        passed.clear()
                    yield escape
                    continue
                if character != _ESCAPE:
                    passed.append(_ESCAPE)
            elif self._at_line_start and character == _ESCAPE:
                self._begun = True
                continue
            passed.append(character)
            self._at_line_start = character in _LINE_ENDS
        if passed:
            yield bytes(passed)
