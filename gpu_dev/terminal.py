"""Output to the terminal: the answer on stdout, messages to the person on stderr."""

import os
import re
import sys
from types import TracebackType
from typing import Self


def clean(text: str) -> str:
    """Text with control characters made visible, so that it can't steer a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class Rendered(str):
    """Text whose control characters are ours, such as colours. Joined with other text it becomes plain text."""


def harmless(text: str) -> str:
    """Text with all control characters made visible but line breaks, for text not made for a terminal."""
    return "\n".join(line if line.isprintable() else clean(line) for line in text.split("\n"))


_DRAWING = re.compile(rb"\x1b\[(?:\?25[hl]|[0-9;]*[ABCDGHJKm])")
"""Sequences for drawing: colours, the cursor and its moves. None makes a terminal answer, store or forward anything."""
_CUT = re.compile(rb"\x1b(?:\[[?0-9;]{0,30})?\Z|\xc2\Z")
_STEERING = re.compile(rb"[\x00-\x07\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]")


class ProgramOutput:
    """A program's output for a terminal: colours and moves pass, and other control sequences are made visible."""

    def __init__(self) -> None:
        self._kept = b""

    def take(self, chunk: bytes) -> bytes:
        """The output that can be shown by now; the beginning of a sequence waits for its end."""
        text = self._kept + chunk
        cut = _CUT.search(text)
        self._kept = text[cut.start() :] if cut else b""
        return self._shown(text[: cut.start()] if cut else text)

    def rest(self) -> bytes:
        """The beginning of a sequence whose end did not come."""
        kept, self._kept = self._kept, b""
        return self._shown(kept)

    def _shown(self, text: bytes) -> bytes:
        parts, at = [], 0
        for drawing in _DRAWING.finditer(text):
            parts += [_STEERING.sub(_visible, text[at : drawing.start()]), drawing[0]]
            at = drawing.end()
        return b"".join([*parts, _STEERING.sub(_visible, text[at:])])


def _visible(found: re.Match[bytes]) -> bytes:
    return found[0].decode().encode("unicode_escape")


def say(text: str) -> None:
    """Print a message to the person, on stderr: one line unless rendered."""
    sys.stderr.write(f"{text if isinstance(text, Rendered) else clean(text)}\n")
    sys.stderr.flush()


def put(text: str) -> None:
    """Write (part of) the answer to stdout. Its contents can't steer a terminal."""
    sys.stdout.write(text if isinstance(text, Rendered) else harmless(text))
    sys.stdout.flush()


class StatusLine:
    """One message on stderr that changes: in its place on a terminal, elsewhere a line for each change.

    As a context manager it ends the line afterwards.
    """

    def __init__(self) -> None:
        self._in_place = sys.stderr.isatty()
        self._is_begun = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_begun:
            self._is_begun = False
            say("")

    def show(self, text: str) -> None:
        """Replace the message."""
        if not self._in_place:
            say(text)
            return
        columns = os.get_terminal_size(sys.stderr.fileno()).columns or len(text)
        sys.stderr.write(f"\r\x1b[K{clean(text)[: columns - 1]}")
        sys.stderr.flush()
        self._is_begun = True
