"""An HTTP proxy before an API server that makes it behave badly on demand.

Rules are tried in the order in which they were given; the first that matches a request, and has not been used up,
decides. A partition comes before all rules. Every public method may be called from any thread.
"""

import asyncio
import re
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import aiohttp
from aiohttp import web
from yarl import URL

from tests.kubernetes.api_client import break_off
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.background import Background
from tests.kubernetes.node.passed_websockets import pass_on
from tests.network.stream_server import some_rounds, stop_listening

_REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "content-encoding", "host", "upgrade", "te"}


class Harm(Enum):
    """The harm to a request that a rule matches."""

    ANSWER = "answer with the rule's code; the server never sees the request"
    DROP_REQUEST = "close the connection; the server never sees the request"
    DROP_ANSWER = "pass the request on, then close the connection: a timeout after success"
    ANSWER_INSTEAD = "pass the request on, then answer with the rule's code: a 504 after success"
    DELAY = "pass the request on after `seconds`"
    HANG = "never answer; the server never sees the request"
    HANG_AFTER = "pass the request on, and never answer"
    STALL_STREAM = "pass the answer on for `lines` lines, then nothing more, and leave the connection open"
    CUT_STREAM = "pass the answer on for `lines` lines (0: its head only), then close the connection"
    ERROR_EVENT = "pass a watch on for `lines` events, then send an ERROR event with the rule's code, and end"


class Partition(Enum):
    """How the server can't be reached at all."""

    REFUSED = "connections are refused"
    HUNG = "connections are taken, and nothing moves on any of them"


@dataclass(slots=True)
class Rule:
    """Matches `method` (`*` for any) and a regular expression that occurs in path and query, `times` times at most."""

    harm: Harm
    method: str = "*"
    path: str = ""
    code: int = 500
    times: int | None = None
    after: int = 0
    retry_after_s: int | None = None
    seconds: float = 0.0
    lines: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    seen: int = 0
    used: int = 0

    def takes(self, request: web.BaseRequest) -> bool:
        """Whether this request is to be harmed; counts it."""
        if self.method not in ("*", request.method) or not re.search(self.path, request.path_qs):
            return False
        if any(value not in request.headers.get(key, "") for key, value in self.headers.items()):
            return False
        self.seen += 1
        if self.seen <= self.after or (self.times is not None and self.used >= self.times):
            return False
        self.used += 1
        return True

    def status(self) -> dict[str, object]:
        """The Status that is answered, as an API server words it."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": f"injected: {_REASONS.get(self.code, 'Unknown')}",
            "reason": _REASONS.get(self.code, "Unknown"),
            "code": self.code,
            **({"details": {"retryAfterSeconds": self.retry_after_s}} if self.retry_after_s is not None else {}),
        }


@dataclass(frozen=True, slots=True)
class Seen:
    """A request that came: when (monotonic seconds), what, and the code that was answered (0: none)."""

    at: float
    method: str
    path: str
    code: int


class FaultProxy(Background):
    """Plain HTTP on `url`; credentials pass through. `requests` is all that came, in the order of their answers."""

    def __init__(self, server: ApiServer) -> None:
        super().__init__("fault proxy")
        self.requests: list[Seen] = []
        self.port = 0
        self._server = server
        self._rules: list[Rule] = []
        self._partition: Partition | None = None
        self._whole = asyncio.Event()
        self._streams: dict[int, web.BaseRequest] = {}
        self._runner: web.ServerRunner | None = None
        self._listening: asyncio.Server | None = None
        self._upstream: aiohttp.ClientSession | None = None

    @property
    def url(self) -> str:
        """Where it listens; the same after a partition."""
        return f"http://127.0.0.1:{self.port}"

    def kubeconfig(self, token: str | None = None, name: str = "proxied") -> Path:
        """A kubeconfig that goes through the proxy, the administrator's unless a token is given."""
        return self._server.kubeconfig_with(token or self._server.admin_token, name, url=self.url)

    def inject(self, harm: Harm, method: str = "*", path: str = "", **rule: object) -> Rule:
        """Add a rule; the answer's `used` says how often it struck."""
        added = Rule(harm, method, path, **rule)  # type: ignore[arg-type]
        self._rules.append(added)
        return added

    def behave(self) -> None:
        """Forget all rules and end a partition."""
        self._rules.clear()
        if self._partition is not None:
            self.heal()

    def cut_watches(self) -> int:
        """Close every stream (watches, followed logs) that is open now; answers how many there were."""
        return self.call(self._cut_streams())

    def partition(self, how: Partition) -> None:
        """Nothing gets through from now on, on old connections as on new ones."""
        self.call(self._part(how))

    def heal(self) -> None:
        """End the partition."""
        self.call(self._heal())

    async def _live(self) -> None:
        ca = self._server.ca
        context = True if ca is None else ssl.create_default_context(cadata=ca.decode())
        self._whole.set()
        connector = aiohttp.TCPConnector(ssl=context, limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as upstream:
            self._upstream = upstream
            self._runner = web.ServerRunner(web.Server(self._handle, access_log=None), shutdown_timeout=0.1)
            await self._runner.setup()
            try:
                await self._listen()
                self._is_up()
                await asyncio.Event().wait()
            finally:
                await self._stop_listening()
                await self._cut_streams()
                await self._runner.cleanup()
        await some_rounds()  # connections that were cut are closed then

    async def _listen(self) -> None:
        assert self._runner is not None
        assert self._runner.server is not None
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(self._runner.server, "127.0.0.1", self.port, reuse_address=True)
        self.port = int(self._listening.sockets[0].getsockname()[1])

    async def _stop_listening(self) -> None:
        if self._listening is not None:
            await stop_listening(self._listening)
            self._listening = None

    async def _part(self, how: Partition) -> None:
        self._partition = how
        self._whole.clear()
        if how is Partition.REFUSED:
            assert self._runner is not None
            await self._stop_listening()
            await self._cut_streams()
            assert self._runner.server is not None
            for connection in [*self._runner.server.connections]:
                connection.force_close()
                if connection.transport is not None:
                    connection.transport.abort()

    async def _heal(self) -> None:
        how, self._partition = self._partition, None
        if how is Partition.REFUSED:
            await self._listen()
        self._whole.set()

    async def _cut_streams(self) -> int:
        streams = [*self._streams.values()]
        for request in streams:
            _abort(request)
        return len(streams)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        if not self._whole.is_set():
            await _hang(request)
        rule = next((rule for rule in self._rules if rule.takes(request)), None)
        code = 0
        try:
            response = await self._harmed(request, body, rule)
            code = response.status
        finally:
            self.requests.append(Seen(time.monotonic(), request.method, request.path_qs, code))
        return response

    async def _harmed(self, request: web.BaseRequest, body: bytes, rule: Rule | None) -> web.StreamResponse:
        match rule.harm if rule is not None else None:
            case Harm.ANSWER:
                assert rule is not None
                return _answer(rule)
            case Harm.DROP_REQUEST:
                _abort(request)
                raise ConnectionResetError
            case Harm.HANG:
                await _hang(request)
            case Harm.DELAY:
                assert rule is not None
                await asyncio.sleep(rule.seconds)
            case Harm.DROP_ANSWER | Harm.ANSWER_INSTEAD | Harm.HANG_AFTER:
                assert rule is not None
                async with self._asked(request, body) as answer:
                    await answer.read()
                if rule.harm is Harm.ANSWER_INSTEAD:
                    return _answer(rule)
                if rule.harm is Harm.HANG_AFTER:
                    await _hang(request)
                _abort(request)
                raise ConnectionResetError
            case None | Harm.CUT_STREAM | Harm.STALL_STREAM | Harm.ERROR_EVENT:
                pass
        return await self._pass_on(request, body, rule)

    def _asked(self, request: web.BaseRequest, body: bytes) -> "aiohttp.client._RequestContextManager":
        assert self._upstream is not None
        headers = {key: value for key, value in request.headers.items() if key.lower() not in _HOP}
        url = self._server.url + request.path_qs
        return self._upstream.request(request.method, url, data=body or None, headers=headers, allow_redirects=False)

    async def _pass_on(self, request: web.BaseRequest, body: bytes, rule: Rule | None) -> web.StreamResponse:
        if request.headers.get("Upgrade", "").lower() == "websocket":
            assert self._upstream is not None
            target = URL(self._server.url + request.path_qs, encoded=True)
            headers = {"Authorization": request.headers.get("Authorization", "")}
            return await pass_on(request, self._upstream, target, headers)
        streams = "watch=" in request.query_string or "follow=" in request.query_string
        cut = rule is not None and rule.harm in (Harm.CUT_STREAM, Harm.STALL_STREAM, Harm.ERROR_EVENT)
        async with self._asked(request, body) as answer:
            headers = {key: value for key, value in answer.headers.items() if key.lower() not in _HOP}
            if not streams and not cut:
                content = await answer.read()
                if not self._whole.is_set():
                    await _hang(request)
                return web.Response(status=answer.status, headers=headers, body=content)
            response = web.StreamResponse(status=answer.status, headers=headers)
            await response.prepare(request)
            self._streams[id(request)] = request
            leaving = asyncio.create_task(_left(request, answer))
            try:
                left = rule.lines if rule is not None and cut else None
                while left is None or left > 0:
                    chunk = await (answer.content.readany() if left is None else answer.content.readline())
                    if not chunk:
                        break
                    await self._whole.wait()  # a hung partition loses nothing, as TCP would
                    await response.write(chunk)
                    left = None if left is None else left - 1
                if rule is not None and rule.harm is Harm.ERROR_EVENT:
                    event = web.json_response({"type": "ERROR", "object": rule.status()}).body
                    await response.write(bytes(event) + b"\n")  # type: ignore[arg-type]
                elif rule is not None and rule.harm is Harm.STALL_STREAM:
                    await _hang(request)
                elif cut:
                    _abort(request)
                await response.write_eof()
            except (ConnectionError, aiohttp.ClientError):
                _abort(request)
            finally:
                leaving.cancel()
                break_off(answer)
                self._streams.pop(id(request), None)
            return response


def _answer(rule: Rule) -> web.Response:
    headers = {} if rule.retry_after_s is None else {"Retry-After": str(rule.retry_after_s)}
    return web.json_response(rule.status(), status=rule.code, headers=headers)


def _abort(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()


async def _left(request: web.BaseRequest, answer: aiohttp.ClientResponse) -> None:
    """When the reader of a stream has gone, let go of the server's end too."""
    while request.transport is not None and not request.transport.is_closing():
        await asyncio.sleep(0.1)
    break_off(answer)
    answer.close()


async def _hang(request: web.BaseRequest) -> None:
    """Until the other side gives up."""
    while request.transport is not None and not request.transport.is_closing():
        await asyncio.sleep(0.05)
    raise ConnectionResetError
