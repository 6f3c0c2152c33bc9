"""The ways into local pods: through the socket of their supervisors, and to ports on which their processes listen."""

import asyncio
import json
import os
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

from reservation_core.adapters.local.sessions.kept_terminals import kept_terminals, sockets_in
from reservation_core.adapters.local.sessions.listening_ports import PortOwners, listening_ports
from reservation_core.adapters.local.sessions.programs import (
    MinderConnection,
    PipedProgram,
    TerminalProgram,
    read_pipe,
    write_pipe,
)
from reservation_core.adapters.local.sessions.unix_sockets import address_in
from reservation_core.adapters.local.sessions.wire import ENTRANCE, SIZE, TERMINALS, Request, size_content
from reservation_core.domain.model import PodName
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.sessions.pod_streams import (
    CHUNK_BYTES,
    InputClosedError,
    KeptTerminal,
    ListeningPort,
    NoTerminalError,
    Outlet,
    PodNotReachableError,
    PortClosedError,
    Program,
    TerminalSize,
)

P = ParamSpec("P")
T = TypeVar("T")

_PATIENCE_S = 10.0
_PATIENCE = struct.pack("ll", int(_PATIENCE_S), 0)


class LocalPodStreams:
    """The ways into the pods below `home` (GPU_DEV_HOME)."""

    def __init__(self, home: Path) -> None:
        self._pods = home.absolute() / "pods"
        self._ports = PortOwners()

    async def run(self, pod: PodName, program: Program) -> PipedProgram | TerminalProgram:
        """Start a program; a terminal is kept by the pod's side, and outlives this process."""
        terminal = program.terminal
        request = Request(
            [*program.command],
            dict(program.variables),
            None if terminal is None else (terminal.size.columns, terminal.size.rows, terminal.kind),
            program.person,
        )
        try:
            encoded = request.encode()
        except ValueError as problem:
            raise PodNotReachableError(f"The command can't be passed on: it has {problem}. Shorten it.") from problem
        if terminal is not None:
            return TerminalProgram(*await self._enter(pod, encoded, ()))
        with ExitStack() as ours:
            with ExitStack() as theirs:
                try:
                    (stdin, our_stdin) = _pipe(theirs, ours)
                    (our_stdout, stdout), (our_stderr, stderr) = _pipe(ours, theirs), _pipe(ours, theirs)
                except OSError as problem:  # as at the limit of this process's descriptors
                    raise _not_entered(problem) from problem
                minder, _ = await self._enter(pod, encoded, (stdin, stdout, stderr))
            ours.pop_all()
        outputs = {Outlet.STDOUT: await read_pipe(our_stdout), Outlet.STDERR: await read_pipe(our_stderr)}
        return PipedProgram(minder, await write_pipe(our_stdin), outputs)

    async def attach(
        self, pod: PodName, size: TerminalSize, *, person: str = "", name: str | None = None
    ) -> TerminalProgram:
        """Join the terminal of a name, or the newest, before others the newest of this person."""
        folder = self._pods / str(pod) / TERMINALS
        sockets = await self._call(sockets_in, folder)
        wanted = [found for found in sockets if name in (None, found.name, found.file)]
        for found in sorted(wanted, key=lambda found: found.person != person):
            with suppress(ConnectionRefusedError, FileNotFoundError):
                opened = await self._call(_connect, folder, found.file, b"", ())
                minder = MinderConnection(*await asyncio.open_unix_connection(sock=opened, limit=CHUNK_BYTES))
                with suppress(InputClosedError):
                    await minder.send(SIZE, size_content(size.columns, size.rows))
                return TerminalProgram(minder, found.file)
        if name is not None:
            job = pod.reservation_id
            raise NoTerminalError(f"{job} has no open terminal {name}. `gpu-dev attach {job} --list` lists them.")
        raise NoTerminalError(
            f"No terminal is open in {pod.reservation_id}. Open one: gpu-dev shell {pod.reservation_id}"
        )

    async def terminals(self, pod: PodName) -> list[KeptTerminal]:
        """As the port says; without /proc there seem to be none."""
        return await self._call(kept_terminals, self._pods / str(pod) / TERMINALS)

    async def connect(self, pod: PodName, port: int) -> "LocalPodConnection":
        """Connect to a port of this machine on which a process of the pod listens, and to no other."""
        directory = self._pods / str(pod)
        addresses = await self._call(self._listening, directory, port)
        for address in addresses:
            with suppress(OSError):
                async with asyncio.timeout(_PATIENCE_S):
                    return LocalPodConnection(*await asyncio.open_connection(address, port, limit=CHUNK_BYTES))
        raise PortClosedError(
            f"No process of {pod.reservation_id} accepts connections at port {port}. Start the server, then try again."
        )

    async def listening_ports(self, pod: PodName) -> list[ListeningPort]:
        """As the port says; of a pod that has ended, none."""
        return await self._call(_listening_ports, self._pods / str(pod))

    async def close(self) -> None:
        """Nothing is shared between streams."""

    async def _enter(self, pod: PodName, request: bytes, pipes: tuple[int, ...]) -> tuple[MinderConnection, str | None]:
        """The minder of a program that was started, and the key of its terminal."""
        directory = self._pods / str(pod)
        try:
            opened = await self._call(_connect, directory, ENTRANCE, request, pipes)
        except FileNotFoundError as problem:
            raise _not_reachable(pod, directory) from problem
        except ConnectionError as problem:
            raise PodNotReachableError(f"{pod.reservation_id} is ending: nobody can enter it any more.") from problem
        minder = MinderConnection(*await asyncio.open_unix_connection(sock=opened, limit=CHUNK_BYTES))
        try:
            async with asyncio.timeout(_PATIENCE_S):
                key = await minder.begun()
        except TimeoutError as problem:
            await minder.hang_up()
            raise ClusterUnavailableError("The pod's supervisor does not answer. Try again.") from problem
        except BaseException:
            await minder.hang_up()
            raise
        return minder, key

    def _listening(self, directory: Path, port: int) -> list[str]:
        supervisor = _supervisor_of(directory)
        return [] if supervisor is None else self._ports.addresses(supervisor, port)

    async def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await asyncio.to_thread(function, *args, **kwargs)
        except (FileNotFoundError, ConnectionError):
            raise
        except OSError as problem:
            raise _not_entered(problem) from problem


class LocalPodConnection:
    """A TCP connection to a process of a pod."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        try:
            return await self._reader.read(CHUNK_BYTES)
        except OSError:
            return b""

    async def write(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as problem:
            raise InputClosedError from problem

    async def close_input(self) -> None:
        with suppress(OSError):
            self._writer.write_eof()

    async def close(self) -> None:
        """End the connection once its last bytes are read, or after 10 s."""
        self._writer.close()
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._writer.wait_closed()
        except TimeoutError:
            self._writer.transport.abort()  # its reader takes nothing more
        except OSError:
            return


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """A pipe's ends, which are closed with who has them. Raises OSError."""
    ends = os.pipe()
    for owner, end in zip((reader, writer), ends, strict=True):
        owner.callback(os.close, end)
    return ends


def _connect(folder: Path, name: str, request: bytes, pipes: tuple[int, ...]) -> socket.socket:
    """Connect to a socket in a folder, and send a request with descriptors."""
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Not settimeout: with it, connecting fails at once while others wait to be accepted.
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _PATIENCE)
        with address_in(str(folder), name) as address:
            opened.connect(address)
        if request:
            sent = socket.send_fds(opened, [request], pipes)
            if sent < len(request):  # a program may have ended already: even an empty write would fail then
                opened.sendall(request[sent:])
        opened.setblocking(False)
    except BaseException:
        opened.close()
        raise
    return opened


def _listening_ports(directory: Path) -> list[ListeningPort]:
    supervisor = _supervisor_of(directory)
    return [] if supervisor is None else listening_ports(supervisor)


def _supervisor_of(directory: Path) -> int | None:
    try:
        pid: int = json.loads((directory / "state.json").read_bytes())["supervisor_pid"]
    except (FileNotFoundError, NotADirectoryError):
        return None
    return pid


def _not_entered(problem: OSError) -> ClusterUnavailableError:
    return ClusterUnavailableError(f"The pod could not be entered: {problem}. Try again.")


def _not_reachable(pod: PodName, directory: Path) -> PodNotReachableError:
    if (directory / "state.json").exists():
        return PodNotReachableError(
            f"{pod.reservation_id} was started by an earlier version of the server, or its machine allows no sockets:"
            " it can't be entered. Start it again."
        )
    return PodNotReachableError(f"{pod.reservation_id} is not running.")
