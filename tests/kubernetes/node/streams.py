"""The part of a kubelet that API servers pass exec, attach and portforward on to, over WebSockets.

A program whose connection ends runs on, its input at an end and its output read by nobody, as on containerd. Ports are
those of this machine.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import Callable

import aiohttp
from aiohttp import web

from tests.kubernetes.api_client import JsonObject
from tests.kubernetes.node.containers import Container, ProcessContainer

FindContainer = Callable[[str, str], Container | str | None]

EXEC_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_FORWARD = ("v4.channel.k8s.io",)
_PIECE = 32 * 1024
_STDIN, _STDOUT, _STDERR, _STATUS, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255
# Becomes the command of its arguments, its session's terminal being its standard input.
_IN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


def add_streams(app: web.Application, find: FindContainer) -> "Streams":
    """Serve the streams of the containers that `find` finds."""
    streams = Streams(find)
    app.router.add_get("/exec/{namespace}/{pod}/{container}", streams.exec)
    app.router.add_get("/portForward/{namespace}/{pod}", streams.forward)
    app.on_shutdown.append(streams.end)
    return streams


class Streams:
    """The streams that are open, and the programs that were left."""

    def __init__(self, find: FindContainer) -> None:
        self._find = find
        self._open: set[web.WebSocketResponse] = set()
        self._left: set[asyncio.Task[None]] = set()

    async def exec(self, request: web.Request) -> web.StreamResponse:
        """Run a command, with the container's variables, in its folder."""
        container = self._running(request)
        wanted = request.query
        socket = await self._accept(request, EXEC_PROTOCOLS)
        if wanted.get("tty") == "1":
            program: _Program = _TerminalProgram(socket)
        else:
            program = _PipedProgram(socket, has_input=wanted.get("input") == "1")
        try:
            await program.start(container, [_seen_inside(word, container) for word in wanted.getall("command")])
        except OSError as problem:
            why = "permission denied" if isinstance(problem, PermissionError) else "executable file not found in $PATH"
            command = wanted.getall("command")[0]
            await _send(
                socket, _STATUS, json.dumps(_failure(f'exec failed: exec: "{command}": {why}: unknown')).encode()
            )
            return await self._over(socket)
        container.adopt(program.pid)
        feeding = asyncio.create_task(program.feed())
        running = asyncio.create_task(program.run())
        self._left.add(running)
        running.add_done_callback(self._left.discard)
        running.add_done_callback(lambda _: container.release(program.pid))
        await asyncio.wait({feeding, running}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
            with contextlib.suppress(ConnectionError):
                await _send(socket, _STATUS, json.dumps(_end(running.result())).encode())
        return await self._over(socket)

    async def forward(self, request: web.Request) -> web.StreamResponse:
        """Connect to one port of this machine."""
        self._running(request)
        port = int(request.query["port"])
        socket = await self._accept(request, _FORWARD)
        for channel in (0, 1):
            await _send(socket, channel, b"")
            await _send(socket, channel, struct.pack("<H", port))
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=_PIECE)
        except OSError as problem:
            why = f"error forwarding port {port} to pod {request.match_info['pod']}: {problem}"
            await _send(socket, 1, why.encode())
            return await self._over(socket)

        async def feed() -> None:
            async for message in socket:
                if isinstance(message.data, bytes) and message.data[:1] == b"\0":
                    writer.write(message.data[1:])
                    await writer.drain()

        async def answer() -> None:
            while data := await reader.read(_PIECE):
                await _send(socket, 0, data)

        both = {asyncio.create_task(feed()), asyncio.create_task(answer())}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            writer.close()
        return await self._over(socket)

    async def cut(self) -> None:
        """End all connections; programs run on."""
        for socket in [*self._open]:
            await socket.close()

    async def end(self, _app: web.Application) -> None:
        """Cut all connections, and forget programs that were left."""
        await self.cut()
        for task in self._left:
            task.cancel()
        await asyncio.gather(*self._left, return_exceptions=True)

    def _running(self, request: web.Request) -> ProcessContainer:
        found = self._find(request.match_info["namespace"], request.match_info["pod"])
        if found is None:
            raise web.HTTPNotFound(text="pod does not exist")
        if not isinstance(found, ProcessContainer) or found.log.over:
            raise web.HTTPInternalServerError(text="container not found")
        return found

    async def _accept(self, request: web.Request, protocols: tuple[str, ...]) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=protocols, timeout=1, compress=False)
        await socket.prepare(request)
        self._open.add(socket)
        return socket

    async def _over(self, socket: web.WebSocketResponse) -> web.WebSocketResponse:
        self._open.discard(socket)
        await socket.close()
        return socket


def _seen_inside(word: str, container: ProcessContainer) -> str:
    """Process 1 of a container, as a word that signals it names it: there are no PID namespaces here."""
    return re.sub(r"^(kill -\w+) 1$", rf"\1 {container.first_process}", word)


class _Program:
    """A process whose streams are the channels of a WebSocket."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self.socket = socket
        self.process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    async def start(self, container: ProcessContainer, command: list[str]) -> None:
        """Raises OSError."""
        raise NotImplementedError

    async def feed(self) -> None:
        """Pass on what comes until the connection ends."""
        async for message in self.socket:
            if not isinstance(message.data, bytes):
                continue
            channel, data = message.data[0], message.data[1:]
            if channel == _STDIN and data:
                await self.take(data)
            elif channel == _RESIZE:
                size = json.loads(data)
                self.resize(size["Height"], size["Width"])
            elif channel == _CLOSE and data == bytes([_STDIN]) and self.socket.ws_protocol == "v5.channel.k8s.io":
                self.close_input()
        self.close_input()

    async def run(self) -> int:
        """Pass its output on until it ends; its exit code."""
        raise NotImplementedError

    async def take(self, data: bytes) -> None:
        raise NotImplementedError

    def resize(self, rows: int, columns: int) -> None:
        """Of a terminal."""

    def close_input(self) -> None:
        """Of a program with pipes."""

    async def pass_on(self, channel: int, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            await _send(self.socket, channel, data)


class _PipedProgram(_Program):
    def __init__(self, socket: web.WebSocketResponse, *, has_input: bool) -> None:
        super().__init__(socket)
        self._has_input = has_input

    async def start(self, container: ProcessContainer, command: list[str]) -> None:
        pipe, none = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        self.process = await asyncio.create_subprocess_exec(
            *command,
            stdin=pipe if self._has_input else none,
            stdout=pipe,
            stderr=pipe,
            limit=_PIECE,
            cwd=container.cwd,
            env=container.env,
            start_new_session=True,
        )

    async def take(self, data: bytes) -> None:
        assert self.process is not None
        if self.process.stdin is not None:
            with contextlib.suppress(ConnectionError):
                self.process.stdin.write(data)
                await self.process.stdin.drain()

    def close_input(self) -> None:
        assert self.process is not None
        if self.process.stdin is not None:
            self.process.stdin.close()

    async def run(self) -> int:
        assert self.process is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        await asyncio.gather(self._read(_STDOUT, self.process.stdout), self._read(_STDERR, self.process.stderr))
        return await self.process.wait()

    async def _read(self, channel: int, output: asyncio.StreamReader) -> None:
        while data := await output.read(_PIECE):
            await self.pass_on(channel, data)


class _TerminalProgram(_Program):
    def __init__(self, socket: web.WebSocketResponse) -> None:
        super().__init__(socket)
        self._main, self._other = pty.openpty()
        os.set_blocking(self._main, False)

    async def start(self, container: ProcessContainer, command: list[str]) -> None:
        try:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", "-c", _IN_TERMINAL),
                *command,
                stdin=self._other,
                stdout=self._other,
                stderr=self._other,
                cwd=container.cwd,
                env=container.env,
                start_new_session=True,
            )
        except OSError:
            os.close(self._main)
            raise
        finally:
            os.close(self._other)

    async def take(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._main, data) :]
            except BlockingIOError:
                await _ready(
                    self._main, asyncio.get_running_loop().add_writer, asyncio.get_running_loop().remove_writer
                )
            except OSError:
                return

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    async def run(self) -> int:
        assert self.process is not None
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    data = os.read(self._main, _PIECE)
                except BlockingIOError:
                    await _ready(self._main, loop.add_reader, loop.remove_reader)
                except OSError:  # nobody has the other end open any more
                    return await self.process.wait()
                else:
                    await self.pass_on(_STDOUT, data)
        finally:
            main, self._main = self._main, -1
            os.close(main)


async def _ready(fd: int, add: Callable[[int, Callable[[], None]], object], remove: Callable[[int], object]) -> None:
    ready = asyncio.Event()
    add(fd, ready.set)
    try:
        await ready.wait()
    finally:
        remove(fd)


async def _send(socket: web.WebSocketResponse, channel: int, data: bytes) -> None:
    try:
        await socket.send_bytes(bytes([channel]) + data)
    except (aiohttp.ClientError, RuntimeError) as problem:
        raise ConnectionError(str(problem)) from problem


def _end(code: int) -> JsonObject:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    code = 128 - code if code < 0 else code
    cause = {"reason": "ExitCode", "message": str(code)}
    return {
        "metadata": {},
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "details": {"causes": [cause]},
    }


def _failure(why: str) -> JsonObject:
    message = f"Internal error occurred: {why}"
    return {"metadata": {}, "status": "Failure", "reason": "InternalError", "message": message, "code": 500}
