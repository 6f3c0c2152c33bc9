"""Streams into a running pod: programs, with or without a terminal, and TCP connections.

All streams have back-pressure: whoever does not read makes the other side wait, and at most some 100 KiB are held for
it. A stream that nobody closes ends with its pod. Nothing of what passes is logged.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import NamedTuple, Protocol

from reservation_core.domain.model import PodName

CHUNK_BYTES = 64 * 1024
"""The most bytes that one read of a stream returns."""


class PodNotReachableError(Exception):
    """The pod takes no streams: it has not started, has ended, or its cluster can't do this. The text says why."""


class PortClosedError(Exception):
    """No process of the pod accepts connections at this port. The text names the port and the next step."""


class NoTerminalError(Exception):
    """The pod keeps no terminal that could be joined. The text names the next step."""


class InputClosedError(Exception):
    """The program or the connection reads no more."""


class SignalRefusedError(Exception):
    """This cluster can't send this signal to a program. The text says what to do instead."""


@dataclass(frozen=True, slots=True)
class TerminalSize:
    """A terminal's size in characters; both from 1 to 10,000."""

    columns: int = 80
    rows: int = 24


@dataclass(frozen=True, slots=True)
class Terminal:
    """A terminal for a program. `kind`: the value of TERM."""

    size: TerminalSize = TerminalSize()
    kind: str = "xterm-256color"


@dataclass(frozen=True, slots=True)
class Program:
    """A program to run in a pod, in the pod's folder, with its variables and `variables`.

    An empty command is the user's login shell. Without a terminal, input and both outputs are pipes. `person`: the name
    of the user who starts it, and joins its terminal again.
    """

    command: tuple[str, ...] = ()
    terminal: Terminal | None = None
    variables: tuple[tuple[str, str], ...] = ()
    person: str = ""


@dataclass(frozen=True, slots=True)
class KeptTerminal:
    """A terminal that a pod keeps. `name`: the number of its device, as 3 of /dev/pts/3; `program`: its foreground one.

    A later terminal may get the same name, but never the same `key`. `person` opened it. One of which that is
    unknown can be joined, and is in no list.
    """

    key: str
    name: str
    person: str
    opened_at: datetime
    program: str


@dataclass(frozen=True, slots=True)
class ListeningPort:
    """A port at which a process of a pod accepts connections. `program`: the short name of the process."""

    port: int
    program: str


class Outlet(IntEnum):
    """Where a program has written to; a terminal has standard output alone."""

    STDOUT = 1
    STDERR = 2


class Output(NamedTuple):
    """At most CHUNK_BYTES that a program has written."""

    outlet: Outlet
    data: bytes


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """How a program ended. `exit_code` is 128 + n for signal n, or None if it is not known; `detail` says why.

    `signal` is the number of the signal that ended it, on clusters that report signals apart from exit codes.
    """

    exit_code: int | None
    detail: str = ""
    signal: int | None = None
    core_dumped: bool = False


class RunningProgram(Protocol):
    """A program in a pod. Methods may raise ClusterUnavailableError when the way to the pod breaks."""

    @property
    def terminal_key(self) -> str | None:
        """What `attach` joins this terminal by, and never another one; None where the pod keeps none."""

    def output(self) -> AsyncIterator[Output]:
        """What it writes, until it and its children have closed their outputs. To be iterated once."""

    async def write(self, data: bytes) -> None:
        """Pass input on, and wait until it is taken. Raises InputClosedError."""

    async def close_input(self) -> None:
        """End the input of a program without a terminal; a terminal gets the end-of-file character."""

    async def resize(self, size: TerminalSize) -> None:
        """Change the terminal's size; does nothing without a terminal."""

    async def send_signal(self, name: str) -> None:
        """Send a signal by its name without SIG, such as `INT`, to the program's group. Raises SignalRefusedError."""

    async def wait(self) -> ProgramEnd:
        """How it ended. To be awaited after its output has ended."""

    async def close(self, *, keep: bool = False) -> None:
        """Leave the program, which is hung up (SIGHUP) unless it has ended.

        With `keep` a program goes on in its terminal, to be joined again, on clusters whose pods keep terminals.
        """


class PodConnection(Protocol):
    """A TCP connection inside a pod. Methods may raise ClusterUnavailableError when the way to the pod breaks."""

    async def read(self) -> bytes:
        """At most CHUNK_BYTES, once there are some; none at the end."""

    async def write(self, data: bytes) -> None:
        """Pass bytes on, and wait while the other side does not read. Raises InputClosedError."""

    async def close_input(self) -> None:
        """Send the end of the stream; reading goes on. Clusters that can't do that close the whole connection later."""

    async def close(self) -> None:
        """End the connection."""


class PodStreams(Protocol):
    """The ways into running pods."""

    async def run(self, pod: PodName, program: Program) -> RunningProgram:
        """Start a program in a pod. Raises PodNotReachableError and ClusterUnavailableError.

        A command that can't be run is a program that says so on standard error and ends with 127 or 126.
        """

    async def attach(
        self, pod: PodName, size: TerminalSize, *, person: str = "", name: str | None = None
    ) -> RunningProgram:
        """Join a terminal that the pod keeps, beside those who are in it.

        It is the one with a name or key, or the newest that `person` has opened, or else the newest. Its recent output
        comes first. Raises NoTerminalError, PodNotReachableError and ClusterUnavailableError.
        """

    async def terminals(self, pod: PodName) -> list[KeptTerminal]:
        """The terminals that the pod keeps, newest first. Raises NoTerminalError where the cluster keeps none."""

    async def connect(self, pod: PodName, port: int) -> PodConnection:
        """Connect to a port at which a process of the pod listens.

        Raises PortClosedError, PodNotReachableError and ClusterUnavailableError.
        """

    async def listening_ports(self, pod: PodName) -> list[ListeningPort] | None:
        """The ports at which processes of the pod listen, the lowest first; None where the cluster can't say.

        Raises ClusterUnavailableError.
        """

    async def close(self) -> None:
        """Close all streams of this process, as `close` with `keep` does."""
