"""Calls to the API server: when they end, where they go, and what is told of those that come to nothing."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from yarl import URL

from reservation_core.adapters.kubernetes.api_server import http_pool
from reservation_core.adapters.kubernetes.api_server.errors import ApiServerError
from reservation_core.ports.cluster import ClusterUnavailableError
from tests.integration.reservation_core.adapters.kubernetes.api_server.worlds import (
    GOOD,
    Unanswered,
    World,
    answer,
    bind,
    in_both_worlds,
    pool_of,
)
from tests.integration.reservation_core.adapters.kubernetes.conftest import transport_to
from tests.kubernetes.kubeconfigs import write_kubeconfig
from tests.network.scripted_http import Asked, scripted_server
from tests.waiting import eventually


@in_both_worlds
async def test_silence_is_waited_for_no_longer_than_an_attempt_may_take(world: World) -> None:
    server = world.server

    async def silence(_: Asked, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    transport = world.way(2)
    server.usual = silence
    unanswered = Unanswered()
    with pytest.raises(ClusterUnavailableError, match=r"no answer in time|not done within 5 s"):
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
    deep = b"[" * 100_000
    server.answers = [
        answer(status, code=404),
        b"HTTP/1.1 418 Teapot\r\nContent-Length: 3\r\n\r\n<a>",
        b"HTTP/1.1 422 Deep\r\nContent-Length: %d\r\n\r\n%s" % (len(deep), deep),
    ]
    with pytest.raises(ApiServerError, match="404 NotFound: no such pod"):
        await bind(transport)
    for code in ("418", "422"):
        with pytest.raises(ApiServerError, match=code):
            await bind(transport)
    assert server.connections == 1


@pytest.mark.parametrize(("code", "told"), [(500, 1), (502, 1), (503, 1), (504, 1), (429, 0), (401, 0)])
@in_both_worlds
async def test_who_answers_for_the_server_that_it_failed_may_speak_too_early(
    world: World, code: int, told: int
) -> None:
    transport, server = world.transport, world.server
    unanswered = Unanswered()
    server.answers = [answer({}, code=code)]
    assert await bind(transport, unanswered) == {"said": "good"}
    assert (unanswered.times, len(server.asked)) == (told, 2)


@in_both_worlds
async def test_what_was_lost_before_a_refusal_is_told(world: World) -> None:
    transport, server = world.transport, world.server

    async def cut(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    unanswered = Unanswered()
    server.answers = [cut, answer({}, code=404)]
    with pytest.raises(ApiServerError, match="404"):
        await bind(transport, unanswered)
    assert unanswered.times == 1


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


@in_both_worlds
async def test_a_token_of_several_lines_that_comes_later_is_not_sent_either(world: World) -> None:
    server = world.server
    transport = world.way(60)
    await bind(transport)
    write_kubeconfig(world.folder / "another", server.url, "one\n\ntwo: secret", ca=world.ca)
    server.answers = [answer({}, code=401)]
    with pytest.raises(ClusterUnavailableError, match="more than one line"):
        await bind(transport)
    async with transport.stream("/a", idle_s=60) as chunks:
        assert await anext(chunks) == b'{"said": "good"}'
    await bind(transport)
    assert {request.headers["authorization"] for request in server.asked} == {"Bearer token"}
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
