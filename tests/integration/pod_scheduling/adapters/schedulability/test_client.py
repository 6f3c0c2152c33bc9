"""The schedulability service asked over real HTTP: what counts as its answer, and what as none."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from pod_scheduling.adapters.schedulability.answers import QuestionShape
from pod_scheduling.adapters.schedulability.client import Service, open_schedulability
from pod_scheduling.domain.enforcement.booking_rulings import Standing
from pod_scheduling.domain.enforcement.remembered_standings import StandingQuestion
from pod_scheduling.ports.standings import QuestionRefusedError, SourceSilentError
from tests.network.receivers import Receiver, receiving
from tests.programs.webhook_process import new_pair, trusting, write_pair

TOKEN = "gpudev_very-secret"
ADA = StandingQuestion("ada@lab.org", "vision", "h100", 2)
END = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
OWN: dict[str, Any] = {
    "schedulable": True,
    "until": "2030-01-02T03:04:05.000Z",
    "gpu_type": "h100",
    "gpus": 2,
    "booking_id": "bkg-7",
    "reason": "Booking bkg-7 holds 2 h100 until its end.",
}
SEED: dict[str, Any] = {"schedulable": True, "until": "2030-01-02T04:04:05+01:00", "gpu": "NVIDIA H100 80GB HBM3"}


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


def answering(content: Any, status: int = 200, **headers: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, body=body, headers={"Content-Type": "application/json", **headers})

    return answer


async def asked(
    receiver: Receiver,
    shape: QuestionShape = QuestionShape.OWN,
    question: StandingQuestion = ADA,
    *,
    token: str | None = TOKEN,
    tls: ssl.SSLContext | None = None,
    limit_s: float = 5,
) -> Standing:
    context = tls or ssl.create_default_context()
    async with open_schedulability(Service(receiver.url("/ask"), shape, lambda: token, context, limit_s)) as client:
        return await client.ask(question)


async def silence(receiver: Receiver, **how: Any) -> str:
    with pytest.raises(SourceSilentError) as silent:
        await asked(receiver, **how)
    assert TOKEN not in str(silent.value)
    return str(silent.value)


async def test_our_own_service_is_asked_about_a_pod_that_is_not_there_yet(receiver: Receiver) -> None:
    receiver.answer = answering(OWN)
    standing = await asked(receiver)
    assert standing == Standing(schedulable=True, reason=OWN["reason"], until=END, booking_id="bkg-7")
    (got,) = receiver.got
    assert got.headers["authorization"] == f"Bearer {TOKEN}"
    assert got.json == {"user": "ada@lab.org", "namespace": "vision", "gpu_type": "h100", "gpus": 2, "pod": {}}
    receiver.answer = answering({**OWN, "schedulable": False, "until": None, "reason": "No\nbooking.", "new": 1})
    assert await asked(receiver) == Standing(schedulable=False, reason="No booking.", booking_id="bkg-7")


async def test_a_service_may_say_on_which_nodes(receiver: Receiver) -> None:
    for said, heard in ((["node1", "a.b-2"], ("node1", "a.b-2")), ([], ()), (None, None), (["n"] * 64, ("n",) * 64)):
        receiver.answer = answering({**OWN, "nodes": said})
        assert (await asked(receiver)).nodes == heard
    receiver.answer = answering({**SEED, "nodes": ["node1"]})
    assert (await asked(receiver, QuestionShape.SEED)).nodes is None


async def test_a_service_is_asked_as_of_old(receiver: Receiver) -> None:
    receiver.answer = answering(SEED)
    assert await asked(receiver, QuestionShape.SEED) == Standing(schedulable=True, reason="GPUs are booked.", until=END)
    (got,) = receiver.got
    assert got.json == {"user_email": "ada@lab.org", "namespace": "vision", "token": TOKEN}
    assert got.headers["authorization"] == f"Bearer {TOKEN}"
    for no in ({"schedulable": False}, {"schedulable": False, "until": None, "gpu": ""}):
        receiver.answer = answering(no)
        assert "ada@lab.org has no booking" in (await asked(receiver, QuestionShape.SEED)).reason


async def test_a_yes_that_is_about_something_else_is_a_no(receiver: Receiver) -> None:
    for shape, answer, told in (
        (QuestionShape.OWN, {**OWN, "gpu_type": "t4"}, "The booking is of t4, not of h100."),
        (QuestionShape.OWN, {**OWN, "gpus": 1}, "1 GPUs are booked; 2 are asked for."),
        (QuestionShape.SEED, {**SEED, "gpu": "Tesla T4"}, "The booking is of t4, not of h100."),
    ):
        receiver.answer = answering(answer)
        assert await asked(receiver, shape) == Standing(schedulable=False, reason=told)
    receiver.answer = answering({**OWN, "gpu_type": None, "gpus": None, "booking_id": None, "until": None})
    assert (await asked(receiver)).schedulable


@pytest.mark.parametrize(
    "content",
    [
        b"", b"null", b"[]", b"<html>", b'"yes"', b"\xff\xfe", b'{"schedulable": true', b"1" * 70_000,
        {}, {**OWN, "schedulable": "true"}, {**OWN, "schedulable": 1}, {**OWN, "until": "soon"},
        {**OWN, "until": "2030-01-02T03:04:05"}, {**OWN, "until": 1893553445},
        {**OWN, "until": "9999-12-31T23:59:59-12:00"}, {**OWN, "gpus": -1}, {**OWN, "gpus": "2"},
        {**OWN, "booking_id": "bkg-1, bkg-2"}, {**OWN, "booking_id": 7}, {**OWN, "reason": None},
        {**OWN, "nodes": "node1"}, {**OWN, "nodes": [""]}, {**OWN, "nodes": ["Node 1"]}, {**OWN, "nodes": ["n"] * 65},
        {**OWN, "nodes": ["n" * 254]}, {**OWN, "nodes": [1]},
        {**OWN, "reason": "x" * 3000}, {name: value for name, value in OWN.items() if name != "until"},
    ],
)  # fmt: skip
async def test_nonsense_is_silence(receiver: Receiver, content: Any) -> None:
    receiver.answer = answering(content)
    await silence(receiver)


@pytest.mark.parametrize(
    "content", [{}, {**SEED, "until": "2030-01-02"}, {**SEED, "gpu": 3}, {"schedulable": True, "gpu": None}, [SEED]]
)
async def test_nonsense_of_old_is_silence_too(receiver: Receiver, content: Any) -> None:
    receiver.answer = answering(content)
    await silence(receiver, shape=QuestionShape.SEED)


async def test_an_answer_has_an_end(receiver: Receiver) -> None:
    whole = json.dumps(OWN).encode()
    receiver.answer = answering(whole + b" " * (64 * 1024 - len(whole)))
    assert (await asked(receiver)).schedulable
    receiver.answer = answering(whole + b" " * (64 * 1024 + 1 - len(whole)))
    assert "more than 65536 bytes" in await silence(receiver)


async def test_redirects_lead_nowhere_and_the_token_goes_to_nobody_else(receiver: Receiver) -> None:
    async with receiving() as other:
        for status in (301, 302, 307, 308):
            receiver.answer = answering(OWN, status, Location=other.url("/ask"))
            assert "redirect" in await silence(receiver)
        assert other.got == []


async def test_refusals_and_breakdowns(receiver: Receiver) -> None:
    for status in (401, 403):
        receiver.answer = answering(OWN, status)
        assert "refused the token" in await silence(receiver)
    for status in (201, 204, 429, 500, 502, 503):
        receiver.answer = answering(OWN, status)
        assert str(status) in await silence(receiver)
    receiver.answer = answering(OWN, **{"Content-Encoding": "br"})
    assert "compressed" in await silence(receiver)
    for status in (400, 422):
        receiver.answer = answering(OWN, status)
        with pytest.raises(QuestionRefusedError, match=str(status)):
            await asked(receiver)


async def test_who_takes_long_or_sends_without_end_is_not_waited_for(receiver: Receiver) -> None:
    async def drips(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.01)

    async def never(_: web.Request) -> web.StreamResponse:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    for answer in (drips, never):
        receiver.answer = answer
        assert "did not answer within 0.3 s" in await silence(receiver, limit_s=0.3)


async def test_a_connection_that_was_closed_over_there_costs_no_answer() -> None:
    """The server answers once on each connection, and closes it without a word when the next question comes."""
    body = json.dumps(OWN).encode()
    answered = 0
    serving: list[asyncio.Task[None] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal answered
        serving.append(asyncio.current_task())
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        answered += 1
        await reader.read(1)
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    service = Service(f"http://127.0.0.1:{port}/", QuestionShape.OWN, lambda: TOKEN, ssl.create_default_context(), 5)
    async with server, open_schedulability(service) as client:
        for _ in range(5):
            assert (await client.ask(ADA)).schedulable
    assert answered == 5
    await asyncio.gather(*(task for task in serving if task is not None))


async def test_nobody_there(receiver: Receiver) -> None:
    service = Service("http://127.0.0.1:1/", QuestionShape.OWN, lambda: TOKEN, ssl.create_default_context(), 5)
    async with open_schedulability(service) as client:
        with pytest.raises(SourceSilentError, match="can't be reached"):
            await client.ask(ADA)


async def test_tls_is_verified(tmp_path: Path) -> None:
    pair = new_pair()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*write_pair(pair, tmp_path))
    async with receiving(context) as receiver:
        receiver.answer = answering(OWN)
        assert "can't be reached" in await silence(receiver, tls=trusting(new_pair()))
        assert "can't be reached" in await silence(receiver)
        assert receiver.got == []
        assert (await asked(receiver, tls=trusting(pair))).schedulable


async def test_a_token_that_can_not_be_one_is_sent_nowhere_and_told_nobody(receiver: Receiver) -> None:
    for token in ("", "two words", "line\nbreak", "é", "x" * 600):
        with pytest.raises(SourceSilentError) as silent:
            await asked(receiver, token=token)
        assert not token or token not in str(silent.value)
    assert receiver.got == []


@pytest.mark.parametrize("name", ["Ann", "oidc:ann", "-ann", "a" * 300, "a\nb"])
async def test_who_can_be_no_user_has_booked_nothing_and_is_not_asked_about(receiver: Receiver, name: str) -> None:
    standing = await asked(receiver, question=StandingQuestion(name, "vision", None, 1))
    assert not standing.schedulable
    assert "map it" in standing.reason
    assert receiver.got == []
