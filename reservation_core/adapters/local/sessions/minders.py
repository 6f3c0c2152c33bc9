"""A minder: the process that starts one program in a pod for one connection, and stays until the program has ended.

A program with pipes has them from the control plane itself; its minder passes signals on and reports the end. A program
with a terminal has a keeper as its minder, see `terminal_keeper`.
"""

# Part of the supervisor, which starts once per pod.

import os
import select
from _socket import CMSG_LEN, SCM_RIGHTS, SOL_SOCKET
from _socket import socket as Socket  # noqa: N812 - it is a class

from reservation_core.adapters.local.kernel import PR_SET_PDEATHSIG, prctl, signal_group
from reservation_core.adapters.local.sessions.terminal_keeper import TerminalKeeper
from reservation_core.adapters.local.sessions.wire import (
    HEAD_BYTES,
    MOST_REQUEST_BYTES,
    REFUSED,
    SIGNAL,
    SIGNALS,
    STARTED,
    Request,
    decode_request,
    end_frames,
    frame,
    read_frame,
)

try:
    import _signal as signal  # type: ignore[import-not-found]  # `signal` takes 5 ms to make enums of the numbers
except ImportError:
    import signal

TYPE_CHECKING = False

NOT_EXECUTABLE = 126
NOT_FOUND = 127
_REQUEST_PATIENCE_S = 10.0
_PIPES = 3


class _NotUnderstoodError(Exception):
    """The request is not one; the text says why."""


def mind(fd: int, supervisor: int, pod_dir: str, environment: dict[str, str], directory: str, umask: int) -> None:
    """Serve the connection `fd` until its program has ended, then end this process."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(1)
    connection = Socket(fileno=fd)
    try:
        request, pipes = _receive(connection)
    except (_NotUnderstoodError, OSError, ValueError) as problem:
        _refuse(connection, problem)
    environment = environment | request.variables
    if request.terminal is not None:
        columns, rows, environment["TERM"] = request.terminal
        try:
            keeper = TerminalKeeper(pod_dir, connection, (columns, rows), request.person)
            keeper.pid = os.fork()
        except OSError as problem:
            _refuse(connection, problem)
        if keeper.pid == 0:
            os.login_tty(keeper.slave)
            _become(request, environment, directory, umask)
        keeper.keep()
    else:
        try:
            grouped, tell = os.pipe()
            pid = os.fork()
        except OSError as problem:
            _refuse(connection, problem)
        if pid == 0:
            os.setsid()
            os.write(tell, b"!")
            for number, pipe in enumerate(pipes):
                os.dup2(pipe, number)
            _become(request, environment, directory, umask)
        for pipe in pipes:
            os.close(pipe)
        os.close(tell)
        os.read(grouped, 1)  # only a program with a group of its own can be hung up
        os.close(grouped)
        _tell(connection, frame(STARTED))
        _wait(pid, connection)
    os._exit(0)


def _receive(connection: "Socket") -> tuple[Request, list[int]]:
    """The request, and the ends of pipes for a program without a terminal."""
    connection.settimeout(_REQUEST_PATIENCE_S)
    content = bytearray()
    pipes: list[int] = []
    size = None
    while size is None or len(content) < size:
        data, ancillary, _, _ = connection.recvmsg(
            HEAD_BYTES - 1 if size is None else size - len(content), CMSG_LEN(64)
        )
        if not data:
            raise _NotUnderstoodError("the request is incomplete")
        for level, kind, passed in ancillary:
            if level == SOL_SOCKET and kind == SCM_RIGHTS:
                pipes += memoryview(passed[: len(passed) // 4 * 4]).cast("i").tolist()
        content += data
        if size is None and len(content) >= HEAD_BYTES - 1:
            size = int.from_bytes(content[: HEAD_BYTES - 1], "big")
            del content[: HEAD_BYTES - 1]
            if size > MOST_REQUEST_BYTES:
                raise _NotUnderstoodError("the request is too large")
    request = decode_request(bytes(content))
    if len(pipes) != (0 if request.terminal else _PIPES):
        raise _NotUnderstoodError("the request lacks pipes")
    for pipe in pipes:
        os.set_inheritable(pipe, False)
    connection.settimeout(None)
    return request, pipes


def _become(request: Request, environment: dict[str, str], directory: str, umask: int) -> None:
    """Run the program in the child. Never returns."""
    code, what = NOT_EXECUTABLE, "the program could not be set up"
    try:
        # exec resets handlers, but keeps signals ignored that Python ignores.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.umask(umask)
        what = f"the working directory {directory} can't be entered"
        os.chdir(directory)
        command = request.command or [_login_shell(environment)]
        first = command[0] if request.command else "-" + command[0].rpartition("/")[2]
        what = f"the command {command[0]} can't be run"
        os.execvpe(command[0], [first, *command[1:]], environment)  # noqa: S606
    except (OSError, ValueError) as problem:
        missing = isinstance(problem, FileNotFoundError) and what.startswith("the command")
        code = NOT_FOUND if missing else NOT_EXECUTABLE
        why = os.strerror(problem.errno) if isinstance(problem, OSError) and problem.errno else str(problem)
        os.write(2, f"gpu-dev: {what}: {why}\n".encode("utf-8", "replace"))
    finally:
        os._exit(code)


def _login_shell(environment: dict[str, str]) -> str:
    """The shell of the user, or else the first one of this machine."""
    import pwd  # noqa: PLC0415 - only for shells

    try:
        found = environment.get("SHELL") or pwd.getpwuid(os.getuid()).pw_shell
    except KeyError:
        found = ""
    shells = [found, "/bin/bash", "/usr/bin/bash"]
    usable = (shell for shell in shells if os.access(shell, os.X_OK) and not shell.endswith(("nologin", "false")))
    return next(usable, "/bin/sh")


def _wait(pid: int, connection: "Socket") -> None:
    """Pass signals on until the program has ended, then report how."""
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    buffer = bytearray()
    connected = True
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            _tell(connection, end_frames(status))
            return
        sources: list[int | Socket] = [ended, connection] if connected else [ended]
        ready = select.select(sources, [], [])[0]
        if ended in ready:
            os.read(ended, 4096)
        if connection in ready:
            connected = _obey(connection, buffer, pid)


def _obey(connection: "Socket", buffer: bytearray, group: int) -> bool:
    """Do what a connection asks for; whether it goes on. A program that nobody listens to any more is hung up."""
    try:
        data = connection.recv(4096)
        buffer += data
        while (received := read_frame(buffer)) is not None:
            kind, content = received
            if kind == SIGNAL and content.decode() in SIGNALS:
                signal_group(group, SIGNALS[content.decode()])
    except (OSError, ValueError):
        data = b""
    if not data:
        signal_group(group, SIGNALS["HUP"])
        signal_group(group, SIGNALS["CONT"])
    return bool(data)


def _refuse(connection: "Socket", problem: Exception) -> None:
    """Say why nothing was started. Never returns."""
    why = os.strerror(problem.errno) if isinstance(problem, OSError) and problem.errno else str(problem)
    _tell(connection, frame(REFUSED, why.encode("utf-8", "replace")[:1000]))
    os._exit(1)


def _tell(connection: "Socket", content: bytes) -> None:
    try:
        connection.sendall(content)
    except OSError:
        return  # nobody listens any more
