"""A shell at a pseudo-terminal: what a person would type there is typed, and what is shown is read."""

import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Callable, Mapping
from contextlib import suppress
from fcntl import ioctl
from pathlib import Path

from tests.waiting import PATIENCE_S, eventually_sync

_PROMPT = re.compile(r"@@prompt (\d+)@@")
_DRAWING = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# A session's first process that opens a terminal gets it as its own, whose Ctrl-C ends what is in the foreground.
_SHELL = 'exec bash --noprofile --norc --noediting -i <"$0" >"$0" 2>&1'
_SIZE = struct.pack("HHHH", 60, 200, 0, 0)


class Terminal:
    """`bash` as a person finds it, with nothing but `environment`. Raises AssertionError when it does not go on."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self._master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, _SIZE)
        os.set_blocking(self._master, False)
        self._shown = ""
        self._process = subprocess.Popen(
            ["sh", "-c", _SHELL, os.ttyname(slave)],
            stdin=subprocess.DEVNULL,
            cwd=folder,
            env={**environment, "TERM": "xterm", "NO_COLOR": "1", "PS1": "@@prompt $?@@", "PS2": ""},
            start_new_session=True,
        )
        self.wait()
        os.close(slave)

    def type(self, text: str) -> None:
        """Type a line; what was shown before it is done with."""
        self._read()
        self._shown = ""
        os.write(self._master, f"{text}\n".encode())

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self._shown = ""
        os.write(self._master, b"\x03")

    def answer(self, question: str, text: str) -> None:
        """Type the answer as soon as the question is shown."""
        self.shows(lambda shown: question in shown)
        os.write(self._master, f"{text}\n".encode())

    def shows(self, fits: Callable[[str], bool]) -> str:
        """Wait until what is shown since the last line was typed fits."""
        with suppress(AssertionError):
            eventually_sync(lambda: fits(self._read()), PATIENCE_S)
            return self._shown
        raise AssertionError(f"after {PATIENCE_S} s the terminal shows:\n{self._shown}")

    def wait(self) -> tuple[str, int]:
        """Wait for the prompt: what was shown until then, and the exit code."""
        shown = self.shows(lambda text: _PROMPT.search(text) is not None)
        prompt = _PROMPT.search(shown)
        assert prompt is not None
        self._shown = ""
        return shown[: prompt.start()], int(prompt[1])

    def close(self) -> None:
        """End what runs in the foreground, and the shell."""
        self.interrupt()
        with suppress(AssertionError):
            self.wait()
        os.close(self._master)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(PATIENCE_S)
        self._process.kill()
        self._process.wait()

    def _read(self) -> str:
        with suppress(BlockingIOError, OSError):
            while chunk := os.read(self._master, 65_536):
                self._shown += _DRAWING.sub("", chunk.decode(errors="replace")).replace("\r", "")
        return self._shown
