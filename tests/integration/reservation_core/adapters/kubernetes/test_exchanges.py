"""What is asked over connections of our own: whatever a server does with them, nobody gets another's answer."""

import asyncio
import gc
import inspect
import json
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvloop
from yarl import URL

from reservation_core.adapters.kubernetes import http_pool
from reservation_core.adapters.kubernetes.api_errors import ApiError
from reservation_core.adapters.kubernetes.credentials import Credentials
from reservation_core.adapters.kubernetes.transport import Transport
from reservation_core.ports.cluster import ClusterUnavailableError
from tests.integration.reservation_core.adapters.kubernetes.conftest import transport_to
from tests.kubernetes.kubeconfigs import write_kubeconfig
from tests.scripted_http import Asked, ScriptedServer, scripted_server
from tests.waiting import eventually

Certificate = tuple[Path, Path]

PATH = "/api/v1/namespaces/a/pods/b/binding"
HUGE_BYTES = 100 * 2**20


def answer(said: object, *more: str, code: int = 200) -> bytes:
    """An answer with a length."""
    body = json.dumps(said).encode()
    lines = [f"HTTP/1.1 {code} Said", "Content-Type: application/json", f"Content-Length: {len(body)}", *more]
    return "\r\n".join([*lines, "", ""]).encode() + body


def chunked(*chunks: bytes, trailer: str = "") -> bytes:
    """An answer without one."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return (
        head
        + b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in (*chunks, b""))[:-2]
        + trailer.encode()
        + b"\r\n"
    )


GOOD = answer({"said": "good"})


@dataclass(frozen=True)
class World:
    """A server, and a way to it on which nobody has to hurry."""

    server: ScriptedServer
    transport: Transport
    folder: Path
    ca: Path | None

    def way(self, timeout_s: float, limit_s: float | None = None, token: str = "token") -> Transport:
        """Another way to the same server; who asks for it closes it."""
        config = write_kubeconfig(self.folder / "another", self.server.url, token, ca=self.ca)
        return Transport(Credentials(config, None, {}), timeout_s, limit_s)


async def _in_a_world(
    test: Callable[..., Awaitable[None]], folder: Path, certificate: Certificate, given: dict[str, Any], *, tls: bool
) -> None:
    context, ca = None, None
    if tls:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*certificate)
        ca = certificate[0]
    async with scripted_server(GOOD, context) as server:
        transport = transport_to(write_kubeconfig(folder / "config", server.url, "token", ca=ca), 60)
        try:
            await test(World(server, transport, folder, ca), **given)
        finally:
            await transport.close()


def in_both_worlds(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test, whose first parameter is a world, without TLS on asyncio's event loop, and with it on uvloop's."""

    def run(uv: bool, tmp_path: Path, certificate: Certificate, **given: Any) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop if uv else asyncio.new_event_loop) as runner:
            runner.run(_in_a_world(test, tmp_path, certificate, given, tls=uv))
        gc.collect()  # what outlives the event loop is told as a ResourceWarning, which is an error

    own = [*inspect.signature(run).parameters.values()][:3]
    given = [*inspect.signature(test).parameters.values()][1:]
    run.__signature__ = inspect.Signature([*own, *given])  # type: ignore[attr-defined]
    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return pytest.mark.parametrize("uv", [False, True], ids=["plain", "tls"])(run)


class Unanswered:
    """Counts."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


async def bind(transport: Transport, unanswered: Unanswered | None = None) -> dict[str, Any]:
    """A question that is not to be asked twice without a word."""
    return await transport.request("POST", PATH, query={"timeout": "4s"}, body={"a": "b"}, unanswered=unanswered)


@in_both_worlds
async def test_one_after_the_other_takes_one_connection(world: World) -> None:
    transport, server = world.transport, world.server
    for _ in range(20):
        assert await bind(transport) == {"said": "good"}
    assert server.connections == 1
    assert {(each.method, each.target, each.body) for each in server.asked} == {
        ("POST", PATH + "?timeout=4s", b'{"a":"b"}')
    }
    assert {each.headers["authorization"] for each in server.asked} == {"Bearer token"}


@in_both_worlds
async def test_who_asks_at_the_same_time_does_not_wait(world: World) -> None:
    transport, server = world.transport, world.server
    together = asyncio.Event()

    async def wait(_: Asked, writer: asyncio.StreamWriter) -> None:
        if len(server.asked) == 8:
            together.set()
        await together.wait()
        writer.write(GOOD)

    server.usual = wait
    await asyncio.gather(*(bind(transport) for _ in range(8)))
    assert server.connections == 8
    await asyncio.gather(*(bind(transport) for _ in range(8)))
    assert server.connections == 8


@in_both_worlds
async def test_everybody_gets_his_own_answer(world: World) -> None:
    transport, server = world.transport, world.server

    async def echo(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(answer({"to": json.loads(asked.body)["of"]}))

    server.usual = echo

    async def ask(number: int) -> None:
        assert await transport.request("POST", "/a", body={"of": number}) == {"to": number}

    for _ in range(20):
        asking = [asyncio.create_task(ask(number)) for number in range(20)]
        await asyncio.sleep(0)
        for task in asking[::3]:
            task.cancel()  # with nothing sent, or with an answer on its way
        told = await asyncio.gather(*asking, return_exceptions=True)
        assert {type(each) for each in told} <= {type(None), asyncio.CancelledError}


@pytest.mark.parametrize(
    "said",
    [
        chunked(b'{"said"', b": ", b'"good"}'),
        chunked(b'{"said": "good"}', trailer="X-Checked: yes\r\n"),
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" + GOOD,
        answer({"said": "good"}, "transfer-ENCODING:  ", "X-Odd:\t \xe4 ").replace(b"transfer-ENCODING:  \r\n", b""),
    ],
    ids=["chunks", "trailer", "announced", "odd"],
)
@pytest.mark.parametrize("slowly", [False, True])
@in_both_worlds
async def test_an_answer_is_whole_however_it_comes(world: World, said: bytes, slowly: bool) -> None:
    transport, server = world.transport, world.server

    async def tell(_: Asked, writer: asyncio.StreamWriter) -> None:
        for at in range(len(said)):
            writer.write(said[at : at + 1])
            await asyncio.sleep(0)

    server.answers = [tell if slowly else said] * 2
    for _ in range(2):
        assert await bind(transport) == {"said": "good"}
    assert server.connections == 1


@pytest.mark.parametrize(
    "said",
    [
        b'HTTP/1.1 200 OK\r\n\r\n{"said": "good"}',
        b'HTTP/1.0 200 OK\r\nContent-Length: 16\r\n\r\n{"said": "good"}',
        answer({"said": "good"}, "Connection: close"),
    ],
    ids=["endless", "old", "closing"],
)
@in_both_worlds
async def test_a_connection_that_ends_with_its_answer_is_not_used_again(world: World, said: bytes) -> None:
    transport, server = world.transport, world.server

    async def tell(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        if b"Length" not in said:
            writer.close()
        await asyncio.sleep(0)

    server.answers = [tell]
    unanswered = Unanswered()
    for _ in range(2):
        assert await bind(transport, unanswered) == {"said": "good"}
    assert (server.connections, unanswered.times, len(server.asked)) == (2, 0, 2)


@in_both_worlds
async def test_an_answer_of_a_hundred_megabytes_is_whole(world: World) -> None:
    transport, server = world.transport, world.server
    head, tail = b'{"said": "', b'"}'

    async def tell(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for part in (head, *[b"x" * 2**20] * (HUGE_BYTES // 2**20), tail):
            writer.write(b"%x\r\n%s\r\n" % (len(part), part))
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    server.answers = [tell]
    said = await transport.request("GET", "/api/v1/pods")
    assert len(said["said"]) == HUGE_BYTES


async def cut(_: Asked, writer: asyncio.StreamWriter) -> None:
    """Nothing, and the connection's end."""
    writer.transport.abort()


async def cut_in_the_head(_: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Le")
    writer.close()


async def cut_in_the_body(_: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(GOOD[:-1])
    writer.close()


async def cut_in_the_chunks(_: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(chunked(b'{"said": "good"}')[:-5])
    writer.close()


BROKEN = {
    "cut": cut,
    "cut in the head": cut_in_the_head,
    "cut in the body": cut_in_the_body,
    "cut in the chunks": cut_in_the_chunks,
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "no number": b"HTTP/1.1 OK\r\n\r\n",
    "another protocol": b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\nother",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 16\r\nContent-Length: 15\r\n\r\n" + b'{"said": "good"}',
    "length and chunks": chunked(b"{}").replace(b"\r\n\r\n", b"\r\nContent-Length: 2\r\n\r\n", 1),
    "an endless head": b"HTTP/1.1 200 OK\r\n" + b"X-More: and more\r\n" * 10_000,
}


@pytest.mark.parametrize("warm", [True, False], ids=["used", "new"])
@pytest.mark.parametrize("how", BROKEN)
@in_both_worlds
async def test_an_answer_that_is_none_is_told_and_asked_for_again(world: World, how: str, warm: bool) -> None:
    transport, server = world.transport, world.server
    unanswered = Unanswered()
    if warm:
        await bind(transport)
    server.answers = [BROKEN[how]]
    assert await bind(transport, unanswered) == {"said": "good"}
    assert unanswered.times == 1
    assert server.connections == 2
    assert len(server.asked) == 2 + warm


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "POST", "PATCH"])
@in_both_worlds
async def test_what_does_no_harm_twice_is_asked_at_once_where_the_server_ended_a_used_connection(
    world: World, method: str
) -> None:
    transport, server = world.transport, world.server
    unanswered = Unanswered()
    await bind(transport)
    server.answers = [cut]
    await transport.request(method, "/a", body={}, unanswered=unanswered)
    assert unanswered.times == (method in ("POST", "PATCH"))
    assert [each.connection for each in server.asked] == [1, 1, 2]


@in_both_worlds
async def test_an_answer_that_broke_off_is_told_whatever_was_asked(world: World) -> None:
    transport, server = world.transport, world.server
    unanswered = Unanswered()
    await bind(transport)
    server.answers = [cut_in_the_body]
    await transport.request("GET", "/a", unanswered=unanswered)
    assert unanswered.times == 1


@in_both_worlds
async def test_a_connection_that_the_server_ended_meanwhile_is_not_asked(world: World) -> None:
    transport, server = world.transport, world.server
    unanswered = Unanswered()
    for _ in range(5):
        await bind(transport, unanswered)
        [writer] = server.open
        writer.close()
        await eventually(lambda: not any(each.reusable for each in pool_of(transport)._idle))
    assert (unanswered.times, len(server.asked), server.connections) == (0, 5, 5)


def pool_of(transport: Transport) -> http_pool.HttpPool:
    """Its connections of now."""
    connection = transport._connection
    assert connection is not None
    assert connection._pool is not None
    return connection._pool


@in_both_worlds
async def test_an_answer_too_many_is_not_that_to_the_next_question(world: World) -> None:
    transport, server = world.transport, world.server
    unanswered = Unanswered()
    server.answers = [GOOD + answer({"said": "another"}), GOOD + b"HT"]
    for _ in range(3):
        assert await bind(transport, unanswered) == {"said": "good"}
    assert (server.connections, len(server.asked), unanswered.times) == (3, 3, 0)


@in_both_worlds
async def test_what_comes_though_nobody_asked_ends_the_connection(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_pool, "_KEPT_S", 3600)
    transport, server = world.transport, world.server
    kept = asyncio.Event()

    async def too_much(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(GOOD)
        await kept.wait()
        writer.write(answer({"said": "another"}))

    server.answers = [too_much]
    assert await bind(transport) == {"said": "good"}
    assert pool_of(transport)._idle
    kept.set()
    await eventually(lambda: not pool_of(transport)._open)
    assert await bind(transport) == {"said": "good"}
    assert server.connections == 2


@pytest.mark.parametrize("begun", [b"", GOOD[:-1]], ids=["before the head", "in the body"])
@in_both_worlds
async def test_the_answer_to_a_question_that_was_given_up_is_nobodys(world: World, begun: bytes) -> None:
    transport, server = world.transport, world.server
    given_up = asyncio.Event()

    async def late(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(begun)
        await given_up.wait()
        writer.write(answer({"said": "another"}))

    await bind(transport)
    server.answers = [late]
    asking = asyncio.create_task(bind(transport))
    await eventually(lambda: len(server.asked) == 2)
    if begun:
        await eventually(lambda: any(each.answer_began for each in pool_of(transport)._open))
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    given_up.set()
    for _ in range(3):
        assert await bind(transport) == {"said": "good"}
    assert [each.connection for each in server.asked] == [1, 1, 2, 2, 2]
    await eventually(lambda: len(server.open) == 1)


@in_both_worlds
async def test_silence_is_waited_for_no_longer_than_an_attempt_may_take(world: World) -> None:
    server = world.server

    async def silence(_: Asked, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    transport = world.way(0.5)
    server.usual = silence
    unanswered = Unanswered()
    with pytest.raises(ClusterUnavailableError, match=r"no answer in time|not done within 1.25 s"):
        await bind(transport, unanswered)
    assert unanswered.times > 0
    await transport.close()


@in_both_worlds
async def test_a_body_that_stops_is_waited_for_no_longer_either(world: World) -> None:
    server = world.server

    async def stop(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(GOOD[:-1])
        await asyncio.Event().wait()

    transport = world.way(0.5)
    server.usual = stop
    with pytest.raises(ClusterUnavailableError, match=r"no answer in time|not done within 1.25 s"):
        await bind(transport)
    await transport.close()


@in_both_worlds
async def test_a_call_ends_at_its_limit_though_an_attempt_might_take_longer(world: World) -> None:
    server = world.server

    async def silence(_: Asked, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    transport = world.way(3600, 0.5)
    server.usual = silence
    with pytest.raises(ClusterUnavailableError, match=r"not done within 0.5 s"):
        await bind(transport)
    await transport.close()


@in_both_worlds
async def test_a_long_pause_that_is_asked_for_ends_at_the_limit_too(world: World) -> None:
    server = world.server
    transport = world.way(3600, 0.5)
    server.usual = answer({}, "Retry-After: 1000", code=429)
    with pytest.raises(ClusterUnavailableError, match=r"not done within 0.5 s"):
        await bind(transport)
    assert len(server.asked) <= 1
    await transport.close()


@pytest.fixture
def short_keeping(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that are put by are soon too old."""
    monkeypatch.setattr(http_pool, "_KEPT_S", 0.05)


@in_both_worlds
async def test_what_is_not_used_is_not_kept(world: World, short_keeping: None) -> None:
    transport, server = world.transport, world.server
    for _ in range(2):
        await asyncio.gather(*(bind(transport) for _ in range(5)))
        await eventually(lambda: not server.open)
        assert not pool_of(transport)._open
        assert not pool_of(transport)._idle


@in_both_worlds
async def test_an_answer_without_a_body_is_complete_with_its_head(world: World) -> None:
    transport, server = world.transport, world.server
    server.answers = [b"HTTP/1.1 204 No Content\r\n\r\n"]
    with pytest.raises(ClusterUnavailableError, match="not a JSON object"):
        await bind(transport)
    await bind(transport)
    assert server.connections == 1


@in_both_worlds
async def test_an_error_is_what_the_server_calls_it(world: World) -> None:
    transport, server = world.transport, world.server
    status = {"kind": "Status", "reason": "NotFound", "message": "no such pod"}
    server.answers = [answer(status, code=404), b"HTTP/1.1 418 Teapot\r\nContent-Length: 3\r\n\r\n<a>"]
    with pytest.raises(ApiError, match="404 NotFound: no such pod"):
        await bind(transport)
    with pytest.raises(ApiError, match="418"):
        await bind(transport)
    assert server.connections == 1


@pytest.mark.parametrize("code", [301, 302, 307, 308])
@in_both_worlds
async def test_where_the_server_sends_us_we_go(world: World, code: int) -> None:
    transport, server = world.transport, world.server
    elsewhere = answer({}, "Location: /elsewhere", code=code)
    server.answers = [elsewhere, elsewhere]
    assert await transport.request("GET", "/a") == {"said": "good"}
    assert server.asked[-1].target == "/elsewhere"
    assert server.asked[-1].headers["authorization"] == "Bearer token"


@in_both_worlds
async def test_a_name_and_password_in_the_address_are_used(world: World) -> None:
    server = world.server
    config = write_kubeconfig(
        world.folder / "config", server.url.replace("//", "//somebody:secret@"), "token", ca=world.ca
    )
    config.write_text(config.read_text().replace("token: token", "{}"))
    transport = transport_to(config)
    await bind(transport)
    assert server.asked[0].headers["authorization"] == "Basic c29tZWJvZHk6c2VjcmV0"
    await transport.close()


@in_both_worlds
async def test_a_token_of_several_lines_is_told_and_not_sent(world: World) -> None:
    server = world.server
    transport = world.way(60, token="one\n\ntwo: secret")
    for _ in range(2):
        with pytest.raises(ClusterUnavailableError, match="more than one line") as told:
            await bind(transport)
        assert "secret" not in str(told.value)
    assert not server.asked
    await transport.close()


async def test_an_address_that_refuses_is_passed_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def found(_: object, host: str, port: int, **rules: int) -> list[Any]:
        asked.append(host)
        return [(2, 1, 6, "", (address, port)) for address in ("127.0.0.2", "127.0.0.1")]

    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "getaddrinfo", found)
    async with scripted_server(GOOD) as server:
        url = server.url.replace("127.0.0.1", "server.example")
        transport = transport_to(write_kubeconfig(tmp_path / "config", url, "token"), 60)
        assert await bind(transport) == {"said": "good"}
        await transport.close()
    assert asked == ["server.example"]
    assert server.asked[0].headers["host"] == URL(url).authority


@in_both_worlds
async def test_nobody_there_is_told_and_nothing_was_sent(world: World) -> None:
    transport = transport_to(write_kubeconfig(world.folder / "config", "http://127.0.0.1:1", "token"))
    unanswered = Unanswered()
    with pytest.raises(ClusterUnavailableError, match=r"no connection to 127.0.0.1:1"):
        await bind(transport, unanswered)
    assert unanswered.times == 0
    await transport.close()
