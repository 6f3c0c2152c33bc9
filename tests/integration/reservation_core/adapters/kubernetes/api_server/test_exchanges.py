"""Requests over connections of our own: whatever a server does with them, nobody gets another's answer."""

import asyncio
import json
import socket
import struct

import pytest

from reservation_core.adapters.kubernetes.api_server import http_pool
from reservation_core.adapters.kubernetes.api_server.http_exchange import BrokenConnectionError
from tests.integration.reservation_core.adapters.kubernetes.api_server.worlds import (
    GOOD,
    PATH,
    Unanswered,
    World,
    answer,
    bind,
    chunked,
    in_both_worlds,
    pool_of,
)
from tests.network.scripted_http import Asked
from tests.waiting import eventually

HUGE_BYTES = 100 * 2**20


@in_both_worlds
async def test_one_after_the_other_takes_one_connection(world: World) -> None:
    transport, server = world.transport, world.server
    for _ in range(20):
        assert await bind(transport) == {"said": "good"}
    assert server.connections == 1
    assert {(request.method, request.target, request.body) for request in server.asked} == {
        ("POST", PATH + "?timeout=4s", b'{"a":"b"}')
    }
    assert {request.headers["authorization"] for request in server.asked} == {"Bearer token"}


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
        assert {type(outcome) for outcome in told} <= {type(None), asyncio.CancelledError}


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


async def reset_in_an_endless_body(asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + GOOD.partition(b"\r\n\r\n")[2][:-1])
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


BROKEN = {
    "cut": cut,
    "cut in the head": cut_in_the_head,
    "cut in the body": cut_in_the_body,
    "cut in the chunks": cut_in_the_chunks,
    "reset in an endless body": reset_in_an_endless_body,
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
    assert [request.connection for request in server.asked] == [1, 1, 2]


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
        await eventually(lambda: not any(exchange.reusable for exchange in pool_of(transport)._idle))
    assert (unanswered.times, len(server.asked), server.connections) == (0, 5, 5)


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
async def test_the_answer_to_a_question_that_was_given_up_is_nobodys(
    world: World, begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_pool, "_KEPT_S", 3600)
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
        await eventually(lambda: any(connection.answer_began for connection in pool_of(transport)._open))
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    given_up.set()
    for _ in range(3):
        assert await bind(transport) == {"said": "good"}
    assert [request.connection for request in server.asked] == [1, 1, 2, 2, 2]
    await eventually(lambda: len(server.open) == 1)


@in_both_worlds
async def test_connections_that_are_closed_together_end_at_once_and_no_other_is_opened(world: World) -> None:
    transport, server = world.transport, world.server

    async def silence(_: Asked, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    await asyncio.gather(*(bind(transport) for _ in range(3)))
    server.usual = silence
    pool, question = pool_of(transport), b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"
    asking = asyncio.create_task(pool.ask("GET", question))
    await eventually(lambda: len(server.asked) == 4)
    pool.close()
    with pytest.raises(BrokenConnectionError):
        await asking
    await eventually(lambda: not pool._open)
    with pytest.raises(http_pool.NotConnectedError):
        await pool.ask("GET", question)
    assert len(server.asked) == 4
