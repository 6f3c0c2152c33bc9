"""A keeper: holds a program's terminal, with what it showed last, and lets connections come and go.

The control plane may be restarted under a session: its connection ends, the program goes on, and a later connection to
the socket in `terminals` joins it. Only a connection that says so (HANG_UP), and is the last one, ends the session.
"""

# Part of the supervisor, which starts once per pod.

import fcntl
import os
import select
import termios
import time
from _socket import AF_UNIX, SOCK_STREAM
from _socket import socket as Socket  # noqa: N812 - it is a class

from reservation_core.adapters.local.kernel import exit_code_of, signal_group
from reservation_core.adapters.local.sessions.unix_sockets import accept, address_in
from reservation_core.adapters.local.sessions.wire import (
    END_OF_INPUT,
    EXIT,
    HANG_UP,
    INPUT,
    MOST_FRAME_BYTES,
    OUTPUT,
    REFUSED,
    SIGNAL,
    SIGNALS,
    SIZE,
    STARTED,
    TERMINALS,
    frame,
    read_frame,
)

try:
    import _signal as signal  # type: ignore[import-not-found]  # `signal` takes 5 ms to make enums of the numbers
except ImportError:
    import signal

KEPT_BYTES = 128 * 1024
"""How much of the last output a connection that joins is shown."""

_FULL_BYTES = 64 * 1024
"""A connection with so much unsent output is full: while all are, the program waits."""

_MOST_UNSENT_BYTES = 1024 * 1024
"""A connection that is so far behind others is ended."""

_MOST_VIEWERS = 64
_LAST_WORDS_S = 5.0
_READ_BYTES = 16 * 1024
_END_OF_FILE = b"\x04"


class _Viewer:
    """A connection to the terminal."""

    def __init__(self, connection: "Socket") -> None:
        connection.setblocking(False)
        self.connection = connection
        self.received = bytearray()
        self.unsent = bytearray()

    def fileno(self) -> int:
        return int(self.connection.fileno())


class TerminalKeeper:
    """One terminal with its program and its connections. `slave`: the program's end."""

    def __init__(self, pod_dir: str, first: "Socket", size: tuple[int, int]) -> None:
        """Raises OSError when the machine has no terminal or no room left."""
        self.pid = 0
        self.master, self.slave = os.openpty()
        os.set_blocking(self.master, False)
        self._resize(*size)
        self._viewers = [_Viewer(first)]
        self._shown = bytearray()
        self._typed = bytearray()
        self._ended = False
        self._name = f"{pod_dir}/{TERMINALS}/{time.time_ns():020d}-{os.getpid()}"
        self._door = Socket(AF_UNIX, SOCK_STREAM)
        self._open_door()

    def keep(self) -> None:
        """Serve connections until the program has ended or is hung up."""
        os.close(self.slave)
        self._viewers[0].unsent += frame(STARTED)
        ended, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        try:
            while not self._ended:
                self._step(ended)
                done, status = os.waitpid(self.pid, os.WNOHANG)
                if done:
                    self._report(status)
                    return
        finally:
            os.unlink(self._name)  # noqa: PTH108

    def _open_door(self) -> None:
        folder, _, name = self._name.rpartition("/")
        with address_in(folder, name) as address:
            self._door.bind(address)
            os.chmod(address, 0o600)  # noqa: PTH101
        self._door.listen(8)
        self._door.setblocking(False)

    def _step(self, ended: int) -> None:
        """Wait until something can be passed on, and pass it on."""
        reading: list[int | Socket | _Viewer] = [ended, self._door]
        if not self._viewers or any(len(viewer.unsent) < _FULL_BYTES for viewer in self._viewers):
            reading.append(self.master)
        if len(self._typed) < _FULL_BYTES:
            reading += self._viewers
        writing: list[int | _Viewer] = [viewer for viewer in self._viewers if viewer.unsent]
        if self._typed:
            writing.append(self.master)
        ready, writable, _ = select.select(reading, writing, [])
        if ended in ready:
            os.read(ended, 4096)
        if self._door in ready:
            self._let_in()
        if self.master in ready and not self._show():
            time.sleep(0.01)  # the program's end of the terminal is closed: its death comes next
        if self.master in writable:
            self._type()
        for viewer in [*self._viewers]:
            if viewer in writable:
                self._send(viewer)
            if viewer in ready and viewer in self._viewers:
                self._hear(viewer)

    def _let_in(self) -> None:
        try:
            fd = accept(self._door)
        except OSError:
            return  # it has gone, or waits for a descriptor
        viewer = _Viewer(Socket(fileno=fd))
        if len(self._viewers) >= _MOST_VIEWERS:
            viewer.unsent += frame(REFUSED, f"{_MOST_VIEWERS} connections are in this terminal already".encode())
            self._send(viewer)
            viewer.connection.close()
            return
        for begin in range(0, len(self._shown), MOST_FRAME_BYTES):
            viewer.unsent += frame(OUTPUT, bytes(self._shown[begin : begin + MOST_FRAME_BYTES]))
        self._viewers.append(viewer)

    def _show(self) -> bool:
        """Pass the program's output on; false when there is none."""
        try:
            data = os.read(self.master, _READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False  # Linux says EIO when nobody has the program's end open
        self._shown += data
        del self._shown[:-KEPT_BYTES]
        for viewer in [*self._viewers]:
            viewer.unsent += frame(OUTPUT, data)
            self._send(viewer)
            if len(viewer.unsent) > _MOST_UNSENT_BYTES:
                self._leave(viewer)
        return bool(data)

    def _type(self) -> None:
        try:
            del self._typed[: os.write(self.master, self._typed[:4096])]
        except BlockingIOError:
            return
        except OSError:
            self._typed.clear()

    def _send(self, viewer: _Viewer) -> None:
        try:
            while viewer.unsent:
                del viewer.unsent[: viewer.connection.send(viewer.unsent)]
        except BlockingIOError:
            return
        except OSError:
            viewer.unsent.clear()  # it has gone; `_hear` reads what it said last, which may be HANG_UP

    def _hear(self, viewer: _Viewer) -> None:
        """Do what a connection asks for."""
        try:
            data = viewer.connection.recv(_READ_BYTES)
            viewer.received += data
            while (received := read_frame(viewer.received)) is not None:
                self._obey(viewer, *received)
        except BlockingIOError:
            return
        except (OSError, ValueError):
            data = b""
        if not data:
            self._leave(viewer)

    def _obey(self, viewer: _Viewer, kind: bytes, content: bytes) -> None:
        if kind == INPUT:
            self._typed += content
            self._type()
        elif kind == END_OF_INPUT:
            self._typed += _END_OF_FILE
        elif kind == SIZE:
            self._resize(int.from_bytes(content[:2], "big"), int.from_bytes(content[2:4], "big"))
        elif kind == SIGNAL and content.decode() in SIGNALS:
            signal_group(os.tcgetpgrp(self.master) or self.pid, SIGNALS[content.decode()])
        elif kind == HANG_UP:
            self._leave(viewer)
            if not self._viewers:
                # The kernel hangs up the program when the last descriptor of this end is closed.
                self._ended = True

    def _leave(self, viewer: _Viewer) -> None:
        if viewer in self._viewers:
            self._viewers.remove(viewer)
            viewer.connection.close()

    def _resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, _winsize(columns, rows))

    def _report(self, status: int) -> None:
        """Pass on the last output and how the program ended."""
        while select.select([self.master], [], [], 0)[0] and self._show():
            pass
        until = time.monotonic() + _LAST_WORDS_S
        for viewer in self._viewers:
            viewer.unsent += frame(EXIT, str(exit_code_of(status)).encode())
        while (left := [viewer for viewer in self._viewers if viewer.unsent]) and time.monotonic() < until:
            for viewer in select.select([], left, [], max(0.0, until - time.monotonic()))[1]:
                self._send(viewer)


def _winsize(columns: int, rows: int) -> bytes:
    """The kernel's `struct winsize`, without pixels."""
    sizes = memoryview(bytearray(8)).cast("H")
    sizes[0], sizes[1] = rows, columns
    return sizes.tobytes()
