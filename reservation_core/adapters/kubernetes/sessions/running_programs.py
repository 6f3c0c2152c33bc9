"""A program in a pod, over one exec or attach."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from signal import Signals

from reservation_core.adapters.kubernetes.sessions.channels import Channel, ChannelSocket
from reservation_core.adapters.kubernetes.sessions.process_groups import ProcessGroup
from reservation_core.adapters.kubernetes.sessions.program_starts import PROTOCOLS, read_end, size_message
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.sessions.pod_streams import (
    InputClosedError,
    Outlet,
    Output,
    ProgramEnd,
    SignalRefusedError,
    TerminalSize,
)

_HANG_UP_S = 10.0
_END_OF_FILE = b"\x04"
_KILLED = 128 + Signals.SIGKILL
_OUTLETS: dict[int, Outlet] = {Channel.STDOUT: Outlet.STDOUT, Channel.STDERR: Outlet.STDERR}

FindLoss = Callable[[], Awaitable[ProgramEnd]]


class KubernetesProgram:
    """A running program. `group` is its process group; without one the program gets no signals, and is not hung up.

    `find_loss` says how a program ended whose connection broke. `early` is what it has written so far.
    """

    terminal_key = None

    def __init__(
        self,
        socket: ChannelSocket,
        *,
        terminal: bool,
        find_loss: FindLoss,
        group: ProcessGroup | None = None,
        early: list[Output] | None = None,
        forget: Callable[["KubernetesProgram"], None],
    ) -> None:
        self._socket = socket
        self._terminal = terminal
        self._find_loss = find_loss
        self._group = group
        self._early = early or []
        self._forget = forget
        self._end: ProgramEnd | None = None

    async def output(self) -> AsyncIterator[Output]:
        """What it writes; raises ClusterUnavailableError when the connection breaks though the pod runs on."""
        for output in self._early:
            yield output
        self._early.clear()
        while self._end is None:
            received = await self._socket.receive()
            if received is None:
                left = ProgramEnd(None, "The program was left before it ended.")
                self._end = left if self._socket.closed else await self._find_loss()
                return
            channel, data = received
            if channel == Channel.STATUS:
                self._end = await self._explained(read_end(data))
            elif (outlet := _OUTLETS.get(channel)) is not None:
                yield Output(outlet, data)

    async def _explained(self, end: ProgramEnd) -> ProgramEnd:
        """The end of a program that was killed may be its pod's; that of a joined terminal has no exit code."""
        if self._group is None and end.exit_code == 0:
            return ProgramEnd(None, "The job's command has ended. `gpu-dev show` says how.")
        if end.exit_code != _KILLED:
            return end
        try:
            return await self._find_loss()
        except ClusterUnavailableError:
            return end

    async def write(self, data: bytes) -> None:
        """Pass input on. Nobody says whether the program reads it, while its pod runs."""
        if self._end is not None:
            raise InputClosedError("The program has ended.")
        await self._socket.send(Channel.STDIN, data)

    async def close_input(self) -> None:
        """End the input; does nothing where the API server speaks v4 alone (before Kubernetes 1.30)."""
        with suppress(InputClosedError):
            if self._terminal:
                await self._socket.send(Channel.STDIN, _END_OF_FILE)
            elif self._socket.protocol == PROTOCOLS[0]:
                await self._socket.send(Channel.CLOSE, bytes((Channel.STDIN,)))

    async def resize(self, size: TerminalSize) -> None:
        if self._terminal:
            with suppress(InputClosedError):
                await self._socket.send(Channel.RESIZE, size_message(size.columns, size.rows))

    async def send_signal(self, name: str) -> None:
        """Send a signal by another exec. Raises SignalRefusedError, PodNotReachableError, ClusterUnavailableError."""
        if f"SIG{name}" not in Signals.__members__:
            raise SignalRefusedError(f"There is no signal {name[:40]!r}. Use one of `kill -l`, such as INT.")
        if self._group is None:
            raise SignalRefusedError(
                "Kubernetes can't signal a terminal that was joined. Type the key, such as Ctrl-C."
            )
        if self._end is None:
            await self._group.send_signal(name)

    async def wait(self) -> ProgramEnd:
        """How it ended; output that nobody has read is dropped."""
        if self._end is None:
            async for _ in self.output():
                pass
        return self._end or ProgramEnd(None, "The program was left before it ended.")

    async def close(self, *, keep: bool = False) -> None:  # noqa: ARG002 -- pods keep no terminals
        """Hang the program up: Kubernetes goes on with one whose connection has ended. `keep` changes nothing.

        Does not fail: a program that can't be reached now is hung up later, or ends with its pod.
        """
        if self._socket.closed:
            return
        self._forget(self)
        try:
            if self._end is None and self._group is not None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_HANG_UP_S):
                        await self._group.hang_up()
        finally:
            await self._socket.close()
