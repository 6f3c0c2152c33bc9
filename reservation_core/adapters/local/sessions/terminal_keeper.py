"""A keeper: holds a program's terminal, with what it showed last, and lets connections come and go.

The control plane may be restarted under a session: its connection ends, the program goes on, and a later connection to
the socket in `terminals` joins it. Only a connection that says so, and is the last one, ends the session. It says so by
HANG_UP, and by closing its side alone: that is seen where HANG_UP waits behind input that the program does not take.
"""

# Part of the supervisor, which starts once per pod.

import fcntl
import os
import select
import termios
import time
from _socket import AF_UNIX, SOCK_STREAM
from _socket import socket as Socket  # noqa: N812 - it is a class

from reservation_core.adapters.local.kernel import signal_group
from reservation_core.adapters.local.sessions.unix_sockets import accept, address_in
from reservation_core.adapters.local.sessions.wire import (
    DESCRIPTION,
    END_OF_INPUT,
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
    end_frames,
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
_NO_DESCRIPTOR_S = 0.05
_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.01, 1.0
"""How soon a terminal that its program has closed is looked at again; each time later."""

_HALF_CLOSED = getattr(select, "POLLRDHUP", 0)  # Linux has it


class _Viewer:
    """A connection to the terminal."""

    def __init__(self, connection: "Socket") -> None:
        connection.setblocking(False)
        self.connection = connection
        self.received = bytearray()
        self.unsent = bytearray()
        self.hangs_up = False
        """Whether it has closed its side alone, to leave."""
        self.gone = False
        """Whether it is closed, with input that was not read yet."""

    def fileno(self) -> int:
        return int(self.connection.fileno())


class TerminalKeeper:
    """One terminal with its program and its connections. `slave`: the program's end; `person`: who opened it."""

    def __init__(self, pod_dir: str, first: "Socket", size: tuple[int, int], person: str) -> None:
        """Raises OSError when the machine has no terminal or no room left."""
        self.pid = 0
        self.master, self.slave = os.openpty()
        os.set_blocking(self.master, False)
        self._resize(*size)
        self._viewers = [_Viewer(first)]
        self._shown = bytearray()
        self._typed = bytearray()
        self._ended = False
        self._look_s = 0.0
        """How soon to look at a closed terminal again; 0: it is open."""
        self._person = person
        self._name = f"{pod_dir}/{TERMINALS}/{time.time_ns():020d}-{os.getpid()}"
        self._door = Socket(AF_UNIX, SOCK_STREAM)
        self._open_door()

    def keep(self) -> None:
        """Serve connections until the program has ended or is hung up."""
        device = os.ttyname(self.slave).rpartition("/")[2]
        self._describe(device)
        os.close(self.slave)
        self._viewers[0].unsent += frame(STARTED, self._name.rpartition("/")[2].encode())
        ended, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        try:
            while not self._ended:
                self._step(ended)
                done, status = os.waitpid(self.pid, os.WNOHANG)
                if done:
                    self._close_door()  # whoever hears of the end must not find the terminal any more
                    self._report(status)
                    return
        finally:
            self._close_door()

    def _describe(self, device: str) -> None:
        """Say whose terminal this is. Without room for that, as on a full disk, it is nobody's."""
        try:
            os.symlink(f"{device}/{self.pid}/{self._person}", self._name + DESCRIPTION)  # noqa: PTH211
        except OSError:
            return

    def _open_door(self) -> None:
        folder, _, name = self._name.rpartition("/")
        with address_in(folder, name) as address:
            self._door.bind(address)
            os.chmod(address, 0o600)  # noqa: PTH101
        self._door.listen(8)
        self._door.setblocking(False)

    def _close_door(self) -> None:
        for name in (self._name, self._name + DESCRIPTION):
            _remove(name)

    def _step(self, ended: int) -> None:
        """Wait until something can be passed on, and pass it on."""
        ready = self._wait(ended)
        if ended in ready:
            os.read(ended, 4096)
        if self._door.fileno() in ready:
            self._let_in()
        if ready.get(self.master, 0) & ~select.POLLOUT or self._look_s:
            self._show()
        if ready.get(self.master, 0) & select.POLLOUT or (self._typed and self._look_s):
            self._type()
        for viewer in [*self._viewers]:
            event = ready.get(viewer.fileno(), 0)
            if event & select.POLLOUT:
                self._send(viewer)
            if event & ~select.POLLOUT and viewer in self._viewers:
                self._notice(viewer, event)

    def _wait(self, ended: int) -> dict[int, int]:
        """Wait for events, by descriptor. A closed terminal has one all the time, so it is not asked for any."""
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        poll.register(self._door, select.POLLIN)
        takes_input = len(self._typed) < _FULL_BYTES
        for viewer in self._viewers:
            if takes_input or not viewer.gone:
                wanted = (select.POLLIN if takes_input else 0) | (select.POLLOUT if viewer.unsent else 0)
                poll.register(viewer, wanted | _HALF_CLOSED)
        shows = not self._viewers or any(len(viewer.unsent) < _FULL_BYTES for viewer in self._viewers)
        if not self._look_s and (shows or self._typed):
            poll.register(self.master, (select.POLLIN if shows else 0) | (select.POLLOUT if self._typed else 0))
        return dict(poll.poll(self._look_s * 1000 or None))

    def _let_in(self) -> None:
        try:
            fd = accept(self._door)
        except BlockingIOError:
            return  # it has gone
        except OSError:  # the machine has no descriptors left: the connection waits
            time.sleep(_NO_DESCRIPTOR_S)
            return
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
        """Pass the program's output on; false while nobody has its end open."""
        look_s, self._look_s = self._look_s, 0.0
        try:
            data = os.read(self.master, _READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:  # Linux says EIO; a program may open its terminal again
            self._look_s = min(max(2 * look_s, _FIRST_LOOK_S), _LONGEST_LOOK_S)
            return False
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

    def _notice(self, viewer: _Viewer, event: int) -> None:
        """Read what a connection says; one that leaves is not waited for while the program takes no input."""
        viewer.hangs_up |= bool(event & _HALF_CLOSED and not event & select.POLLHUP)
        viewer.gone |= bool(event & (select.POLLHUP | select.POLLERR))
        if len(self._typed) < _FULL_BYTES:
            self._hear(viewer)
        elif viewer.hangs_up:
            self._hang_up(viewer)
        elif viewer.gone:
            viewer.unsent.clear()

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
            self._hang_up(viewer) if viewer.hangs_up else self._leave(viewer)

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
            self._hang_up(viewer)

    def _hang_up(self, viewer: _Viewer) -> None:
        """Let a connection go that wants the program to end; the last one's wish counts."""
        self._leave(viewer)
        # The kernel hangs up the program when the last descriptor of this end is closed.
        self._ended = all(other.gone for other in self._viewers)

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
            viewer.unsent += end_frames(status)
        while (left := [viewer for viewer in self._viewers if viewer.unsent]) and time.monotonic() < until:
            for viewer in select.select([], left, [], max(0.0, until - time.monotonic()))[1]:
                self._send(viewer)


def _remove(path: str) -> None:
    try:
        os.unlink(path)  # noqa: PTH108
    except OSError:
        return


def _winsize(columns: int, rows: int) -> bytes:
    """The kernel's `struct winsize`, without pixels."""
    sizes = memoryview(bytearray(8)).cast("H")
    sizes[0], sizes[1] = rows, columns
    return sizes.tobytes()
