"""The supervisor's side of the ways into its pod: take a connection, fork a minder for it, and forget it.

The supervisor reads nothing from the connection, so nothing that comes over it can hold up the pod's own life.
"""

# Part of the supervisor, which starts once per pod: `socket` would cost 5 ms.

import os
import time
from _socket import AF_UNIX, SOCK_STREAM
from _socket import socket as Socket  # noqa: N812 - it is a class

from reservation_core.adapters.local.sessions.minders import mind
from reservation_core.adapters.local.sessions.unix_sockets import accept, address_in
from reservation_core.adapters.local.sessions.wire import ENTRANCE, REFUSED, TERMINALS, frame

try:
    import _signal as signal  # type: ignore[import-not-found]  # `signal` takes 5 ms to make enums of the numbers
except ImportError:
    import signal

MOST_MINDERS = 512
_BACKLOG = 512
_OWN_FD = 3
_PAUSE_S = 0.05
_TOO_MANY = f"The job has {MOST_MINDERS} programs and terminals open already; end some of them first"


class Entrance:
    """Takes requests for programs in a pod, and knows the minders that serve them."""

    def __init__(self, pod_dir: str, environment: dict[str, str], directory: str, umask: int) -> None:
        """`directory` is where programs start. Raises OSError."""
        self._pod_dir = pod_dir
        self._environment = environment
        self._directory = directory
        self._umask = umask
        self._minders: set[int] = set()
        os.mkdir(f"{pod_dir}/{TERMINALS}", 0o700)  # noqa: PTH102
        self._socket = Socket(AF_UNIX, SOCK_STREAM)
        with address_in(pod_dir, ENTRANCE) as address:
            self._socket.bind(address)
            os.chmod(address, 0o600)  # noqa: PTH101
        self._socket.listen(_BACKLOG)
        self._socket.setblocking(False)

    def fileno(self) -> int:
        return int(self._socket.fileno())

    def forget(self, pid: int) -> None:
        """Note that a child has ended, which may have been a minder."""
        self._minders.discard(pid)

    def admit(self) -> bool:
        """Fork a minder for a connection that waits; whether there was one."""
        try:
            fd = accept(self._socket)
        except BlockingIOError:
            return False
        except OSError:  # the machine has no descriptors left: the connection waits
            time.sleep(_PAUSE_S)
            return False
        try:
            if len(self._minders) >= MOST_MINDERS:
                _refuse(fd, _TOO_MANY)
            else:
                self._fork_minder(fd)
        except OSError as problem:  # as at the limit of the user's processes
            _refuse(fd, f"the machine starts no more processes ({os.strerror(problem.errno or 0)}); end some first")
        finally:
            os.close(fd)
        return True

    def _fork_minder(self, fd: int) -> None:
        supervisor = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_minder(supervisor, fd)
        self._minders.add(pid)

    def close(self) -> None:
        """Take no more requests; programs that run go on."""
        self._socket.close()

    def _become_minder(self, supervisor: int, fd: int) -> None:
        """Serve one connection in the child. Never returns."""
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            # Everything else is the supervisor's, above all the lock, which would outlive it here.
            os.dup2(fd, _OWN_FD, inheritable=False)
            os.closerange(_OWN_FD + 1, os.sysconf("SC_OPEN_MAX"))
            mind(_OWN_FD, supervisor, self._pod_dir, self._environment, self._directory, self._umask)
        finally:
            os._exit(1)


def _refuse(fd: int, why: str) -> None:
    """Say why to a client that may have gone."""
    try:
        os.set_blocking(fd, False)
        os.write(fd, frame(REFUSED, why.encode()))
    except OSError:
        return
