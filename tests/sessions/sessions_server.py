"""A server of sessions in place of ours: real WebSockets, real programs, pipes and pseudo-terminals, of one job."""

import asyncio
import fcntl
import json
import os
import pty
import re
import signal
import struct
import termios
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from tests.unit.gpu_dev.examples import job_json
from tests.waiting import PATIENCE_S

JOB = "job-7f3k9q2m"
TOKEN = "secret"
PROTOCOL = "v5.channel.k8s.io"
_CHUNK = 64 * 1024
_PROBLEM = "application/problem+json"


def problem(status: HTTPStatus, detail: str, code: str = "test") -> Response:
    body = {"type": f"urn:gpu-dev:problem:{code}", "title": status.phrase, "status": status, "detail": detail}
    return answer(status, body, _PROBLEM)


def answer(status: HTTPStatus, body: Any, kind: str = "application/json") -> Response:
    text = json.dumps(body).encode()
    headers = Headers({"Content-Type": kind, "Content-Length": str(len(text)), "Connection": "close"})
    return Response(status, status.phrase, headers, text)


@dataclass
class KeptTerminal:
    """A program in a pseudo-terminal that outlives its connection."""

    master: int
    process: asyncio.subprocess.Process
    shown: bytearray = field(default_factory=bytearray)


class SessionsServer(threading.Thread):
    """Serves until `stop`. `asked` are the paths with queries of all WebSockets."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.asked: list[str] = []
        self.refusals: dict[str, Response] = {}
        self.job: dict[str, Any] = {"status": "running", "queue_position": None, "estimated_start_at": None}
        self.kept: KeptTerminal | None = None
        self.terminal_key = ""
        """The key that it gives to terminals; empty: it keeps none."""
        self.ssh_port = 0
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._up = threading.Event()
        self._server: Server | None = None
        self._port = 0

    def __enter__(self) -> "SessionsServer":
        self.start()
        assert self._up.wait(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self.join(PATIENCE_S)
        self._loop.close()

    def run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._open())
        self._up.set()
        self._loop.run_forever()

    def go_down(self) -> None:
        """Break all connections, and accept none."""
        self._do(self._break_off())

    def come_back(self) -> None:
        self._do(self._open())

    def close_all(self, code: int, reason: str) -> None:
        """Close all WebSockets in order, with a code and a reason."""

        async def close() -> None:
            assert self._server is not None
            for one in list(self._server.connections):
                await one.close(code, reason)

        self._do(close())

    def _do(self, what: Any) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(PATIENCE_S)

    async def _open(self) -> None:
        self._server = await serve(
            self._serve_one,
            "127.0.0.1",
            self._port,
            process_request=self._request,
            process_response=self._give_key,
            select_subprotocol=lambda _connection, offered: PROTOCOL if PROTOCOL in offered else None,  # type: ignore[arg-type,return-value]
            compression=None,
            max_queue=4,
            ping_interval=None,
        )
        self._port = next(iter(self._server.sockets)).getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"

    async def _break_off(self) -> None:
        assert self._server is not None
        self._server.close(close_connections=False)
        for one in list(self._server.connections):
            one.transport.abort()
        await self._server.wait_closed()

    async def _close(self) -> None:
        await self._break_off()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)  # transports that were aborted close their sockets now
        if self.kept is not None:
            with suppress(ProcessLookupError):
                self.kept.process.kill()
            await self.kept.process.wait()
            self._loop.remove_reader(self.kept.master)
            os.close(self.kept.master)

    def _request(self, connection: ServerConnection, request: Request) -> Response | None:
        path = urlsplit(request.path).path
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return problem(HTTPStatus.UNAUTHORIZED, "The token is not valid.")
        if path in self.refusals:
            return self.refusals[path]
        if "Upgrade" in request.headers:
            self.asked.append(request.path)
            return None
        job = json.loads(job_json(id=JOB, **self.job))
        match path:
            case "/v1/users/me":
                me = {"name": job["user"], "role": "user", "created_at": job["created_at"], "disabled_at": None}
                return answer(HTTPStatus.OK, me)
            case "/v1/jobs":
                return answer(HTTPStatus.OK, {"items": [job], "next_cursor": None})
            case _ if path == f"/v1/jobs/{JOB}":
                return answer(HTTPStatus.OK, job)
        return problem(HTTPStatus.NOT_FOUND, f"There is no {path}.")

    def _give_key(self, _connection: ServerConnection, _request: Request, response: Response) -> None:
        if self.terminal_key:
            response.headers["Gpu-Dev-Terminal"] = self.terminal_key

    async def _serve_one(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        url = urlsplit(connection.request.path)
        query = parse_qs(url.query)
        with suppress(ConnectionClosed):
            if forward := re.fullmatch(rf"/v1/jobs/{JOB}/forward/(\d+)", url.path):
                await _forward(connection, int(forward[1]))
            elif url.path == "/v1/ssh":
                await _forward(connection, self.ssh_port)
            elif query.get("attach"):
                assert self.kept is not None
                await connection.send(b"\x01" + bytes(self.kept.shown))
                await self._terminal(connection, self.kept, query)
            elif query.get("tty"):
                self.kept = await _in_terminal(query.get("command", ["sh"]))
                await self._terminal(connection, self.kept, query)
            else:
                await _through_pipes(connection, query.get("command", ["sh"]))

    async def _terminal(self, connection: ServerConnection, kept: KeptTerminal, query: dict[str, list[str]]) -> None:
        _resize(kept, int(query["columns"][0]), int(query["rows"][0]))

        async def show() -> None:
            while (chunk := await _read_master(kept.master)) is not None:
                kept.shown += chunk
                await connection.send(b"\x01" + chunk)
            await connection.send(b"\x03" + json.dumps(_status(await kept.process.wait())).encode())

        showing = asyncio.create_task(show())
        typing = asyncio.create_task(self._type(connection, kept))
        await asyncio.wait({showing, typing}, return_when=asyncio.FIRST_COMPLETED)
        for task in (showing, typing):
            task.cancel()
        await asyncio.gather(showing, typing, return_exceptions=True)

    async def _type(self, connection: ServerConnection, kept: KeptTerminal) -> None:
        async for message in connection:
            assert isinstance(message, bytes)
            if message[0] == 0:
                await asyncio.to_thread(os.write, kept.master, message[1:])
            elif message[0] == 4:
                size = json.loads(message[1:])
                _resize(kept, size["Width"], size["Height"])


async def _in_terminal(command: list[str]) -> KeptTerminal:
    master, slave = pty.openpty()
    # Not preexec_fn: beside other threads, Python code in a forked child may wait for ever, and this loop with it.
    process = await asyncio.create_subprocess_exec(
        "setsid", "--ctty", *command, stdin=slave, stdout=slave, stderr=slave, env={**os.environ, "PS1": "job$ "}
    )
    os.close(slave)
    return KeptTerminal(master, process)


async def _read_master(master: int) -> bytes | None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(master, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(master)
    try:
        return os.read(master, _CHUNK) or None
    except OSError:
        return None


def _resize(kept: KeptTerminal, columns: int, rows: int) -> None:
    fcntl.ioctl(kept.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


async def _through_pipes(connection: ServerConnection, command: list[str]) -> None:
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe, limit=_CHUNK)
    except OSError as error:
        await connection.send(b"\x02" + f"{command[0]}: {error.strerror}\n".encode())
        await connection.send(b"\x03" + json.dumps(_status(127)).encode())
        return

    async def show(channel: bytes, stream: asyncio.StreamReader) -> None:
        while chunk := await stream.read(_CHUNK):
            await connection.send(channel + chunk)

    async def feed() -> None:
        stdin = process.stdin
        assert stdin is not None
        with suppress(ConnectionError):
            async for message in connection:
                assert isinstance(message, bytes)
                if message == b"\xff\x00":
                    stdin.close()
                elif message[0] == 0:
                    stdin.write(message[1:])
                    await stdin.drain()

    assert process.stdout is not None
    assert process.stderr is not None
    feeding = asyncio.create_task(feed())
    showing = asyncio.gather(show(b"\x01", process.stdout), show(b"\x02", process.stderr))
    gone = asyncio.create_task(connection.wait_closed())
    await asyncio.wait({showing, gone}, return_when=asyncio.FIRST_COMPLETED)
    if gone.done():
        process.send_signal(signal.SIGHUP)
        for descriptor in (1, 2):  # one that nobody reads would keep the wait from ending
            process._transport.get_pipe_transport(descriptor).close()  # type: ignore[attr-defined]
    code = await process.wait()
    for task in (feeding, showing, gone):
        task.cancel()
    await asyncio.gather(feeding, showing, gone, return_exceptions=True)
    await connection.send(b"\x03" + json.dumps(_status(code)).encode())


def _status(code: int) -> dict[str, Any]:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    exit_code = code if code > 0 else 128 - code
    cause = {"reason": "ExitCode", "message": str(exit_code)}
    return {"status": "Failure", "reason": "NonZeroExitCode", "message": "ended", "details": {"causes": [cause]}}


async def _forward(connection: ServerConnection, port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def up() -> None:
        try:
            async for message in connection:
                assert isinstance(message, bytes)
                if message:
                    writer.write(message)
                    await writer.drain()
                else:
                    writer.write_eof()
        finally:
            writer.transport.abort()  # the client is gone

    async def down() -> None:
        while chunk := await reader.read(_CHUNK):
            await connection.send(chunk)
        await connection.send(b"")

    lifting = asyncio.create_task(up())
    with suppress(ConnectionError, ConnectionClosed):
        await down()
        await lifting
    lifting.cancel()
    await asyncio.gather(lifting, return_exceptions=True)
    writer.close()
