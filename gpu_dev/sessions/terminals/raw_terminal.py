"""This side's terminal while a program in a job uses it: raw as OpenSSH has it, and put back whatever happens."""

import os
import signal
import termios
import tty
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from gpu_dev.sessions.program_wire import USUAL_SIZE, Size

_MOST = 10_000
"""Columns and rows that the server takes."""


class RawTerminal:
    """The terminal of a descriptor. As a context manager it is raw within, and as it was before afterwards."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._before: list[Any] | None = None

    def __enter__(self) -> Self:
        self.make_raw()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.put_back()

    def make_raw(self) -> None:
        """Pass every key on as it is typed; keys typed before stay."""
        if not self._is_ours():
            return
        with suppress(termios.error):
            if self._before is None:
                self._before = termios.tcgetattr(self._descriptor)
            tty.setraw(self._descriptor, termios.TCSADRAIN)

    def put_back(self) -> None:
        """Restore the terminal; one that is gone, or another program's now, is left alone."""
        if self._before is not None and self._is_ours():
            with suppress(termios.error):
                termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)
            self._before = None

    def suspend(self) -> None:
        """Stop this process and those of its group, as Ctrl-Z does; returns once they go on."""
        self.put_back()
        os.kill(0, signal.SIGTSTP)
        self.make_raw()

    def size(self) -> Size:
        """The terminal's size, or the usual one where it has none."""
        try:
            columns, rows = os.get_terminal_size(self._descriptor)
        except OSError:
            return USUAL_SIZE
        return Size(min(columns, _MOST) or USUAL_SIZE.columns, min(rows, _MOST) or USUAL_SIZE.rows)

    def _is_ours(self) -> bool:
        """Whether this process is in the foreground of the terminal, where that controls processes at all."""
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:
            return True
