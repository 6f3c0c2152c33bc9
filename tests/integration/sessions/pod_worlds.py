"""Pods to enter for tests, and how tests look at programs in them."""

import asyncio
import hashlib
import os
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count

from reservation_core.domain.model import PodName, PodPhase
from reservation_core.ports.cluster import Cluster
from reservation_core.ports.sessions.pod_streams import (
    CHUNK_BYTES,
    InputClosedError,
    Outlet,
    PodConnection,
    PodStreams,
    PortClosedError,
    Program,
    ProgramEnd,
    RunningProgram,
    Terminal,
)
from tests.integration.cluster_behaviour import SpecMaker, reaches
from tests.programs.ports import own_port
from tests.waiting import eventually

_STEADY = 10  # looks at a program that makes no progress
_NUMBERS = count()

# Sends back what comes, and the end after the other side's end.
ECHO_SERVER = """
import socketserver, sys
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)
        self.request.sendall(b"end")
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    request_queue_size = 256
Server(("127.0.0.1", int(sys.argv[1])), Echo).serve_forever()
"""


@dataclass
class PodWorld:
    """Pods to enter. `scratch` is a folder that their programs may write to."""

    streams: PodStreams
    scratch: str

    async def start(self, *command: str, env: tuple[tuple[str, str], ...] = ()) -> PodName:
        """A running pod."""
        raise NotImplementedError

    async def end(self, pod: PodName) -> None:
        """End a pod at once."""
        raise NotImplementedError

    async def ended(self, pod: PodName) -> bool:
        """Whether its cluster says that it has ended."""
        raise NotImplementedError

    def echo_server(self, port: int) -> tuple[str, ...]:
        """A command that serves a port of the pod's 127.0.0.1."""
        return (sys.executable, "-c", ECHO_SERVER, str(port))

    def file(self) -> str:
        """A new name in the scratch folder."""
        return f"{self.scratch}/{os.getpid()}-{next(_NUMBERS)}"


@dataclass
class ClusterWorld(PodWorld):
    """Pods of a cluster."""

    cluster: Cluster
    make_spec: SpecMaker

    async def start(self, *command: str, env: tuple[tuple[str, str], ...] = ()) -> PodName:
        spec = self.make_spec(*(command or ("sleep", "600")), env=env)
        await self.cluster.create_pod(spec)
        await eventually(reaches(self.cluster, spec, PodPhase.RUNNING))
        return spec.name

    async def end(self, pod: PodName) -> None:
        await self.cluster.delete_pod(str(pod), timedelta(0))

    async def ended(self, pod: PodName) -> bool:
        pods = await self.cluster.find_pods(pod.reservation_id)
        return all(status.phase is not PodPhase.RUNNING for status in pods)


def sh(script: str, *arguments: str, terminal: Terminal | None = None) -> Program:
    """A program of the pod's `sh`."""
    return Program(("sh", "-c", script, "sh", *arguments), terminal)


@asynccontextmanager
async def running(world: PodWorld, pod: PodName, program: Program) -> AsyncIterator[RunningProgram]:
    """A program that is left at the end."""
    started = await world.streams.run(pod, program)
    try:
        yield started
    finally:
        await started.close()


async def result_of(program: RunningProgram) -> tuple[bytes, bytes, ProgramEnd]:
    """Standard output, standard error and the end."""
    written: dict[Outlet, bytearray] = {outlet: bytearray() for outlet in Outlet}
    async for output in program.output():
        assert 0 < len(output.data) <= CHUNK_BYTES
        written[output.outlet] += output.data
    return bytes(written[Outlet.STDOUT]), bytes(written[Outlet.STDERR]), await program.wait()


async def ran(world: PodWorld, pod: PodName, program: Program) -> tuple[bytes, bytes, ProgramEnd]:
    """Run a program without input to its end."""
    async with running(world, pod, program) as started:
        if program.terminal is None:
            await started.close_input()
        return await result_of(started)


async def content_of(world: PodWorld, pod: PodName, file: str) -> str:
    """What a file of the pod holds; nothing if it is not there."""
    return (await ran(world, pod, sh('[ ! -e "$1" ] || cat "$1"', file)))[0].decode()


class Reader:
    """Reads a program's output in the background; `text` is what has come."""

    def __init__(self, program: RunningProgram) -> None:
        self.text = ""
        self._program = program
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for output in self._program.output():
            self.text += output.data.decode()

    async def has(self, text: str) -> None:
        """Wait until the output has a text."""

        def found() -> bool:
            if self._task.done() and text not in self.text:
                raise AssertionError(f"{text!r} did not come: {self.text!r}")
            return text in self.text

        await eventually(found)

    async def end(self) -> ProgramEnd:
        """Wait for the program's end."""
        await self._task
        return await self._program.wait()


async def is_steady(look: Callable[[], Awaitable[int]]) -> int:
    """Wait until a number that grows does not grow any more."""
    last, times = -1, 0
    while times < _STEADY:
        now = await look()
        last, times = (now, times + 1) if now == last and now > 0 else (now, 0)
    return last


def random_pieces(total: int, piece: int = 48 * 1024 + 7) -> list[bytes]:
    """Some bytes that differ, in pieces, as references to a few."""
    seen = [random.Random(number).randbytes(piece) for number in range(16)]
    pieces = [seen[number % len(seen)] for number in range(total // piece)]
    return [*pieces, seen[0][: total - len(pieces) * piece]]


async def echoing(world: PodWorld, pod: PodName) -> tuple[int, RunningProgram]:
    """The port of an echo server that answers, and the server."""
    port = own_port()
    server = await world.streams.run(pod, Program(world.echo_server(port)))

    async def answers() -> bool:
        try:
            connection = await world.streams.connect(pod, port)
        except PortClosedError:
            return False
        try:
            await connection.write(b"?")
            return await connection.read() == b"?"
        except (PortClosedError, InputClosedError):
            return False
        finally:
            await connection.close()

    await eventually(answers)
    return port, server


async def read_all(connection: PodConnection, limit: int) -> tuple[int, str]:
    """How much comes, up to a limit, and its SHA-256."""
    digest, size = hashlib.sha256(), 0
    while size < limit and (data := await connection.read()):
        assert len(data) <= CHUNK_BYTES
        digest.update(data)
        size += len(data)
    return size, digest.hexdigest()
