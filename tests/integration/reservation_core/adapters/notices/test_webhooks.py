"""Webhooks against a real server: what arrives, what counts as taken, and where nothing ever goes."""

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpcore
import pytest
from aiohttp import web

from reservation_core.adapters.notices.guarded_network import resolve
from reservation_core.adapters.notices.webhooks import PostRules, SlackSender, WebhookSender
from reservation_core.contracts.notices import NoticeBody
from reservation_core.domain.network.egress import egress_rules
from reservation_core.domain.notices.kinds import NoticeChannel
from reservation_core.ports.people.notices import NotDeliveredError, UndeliverableError
from tests.clocks import SettableClock
from tests.integration.reservation_core.adapters.notices.notices import NOTICE, SECRET, destination
from tests.network.receivers import Receiver, certificates, documented_check, receiving

TLS = ssl.create_default_context()
UNREACHED = (
    "No connection could be made: nothing answers there, or notifications may not go there. They go to public addresses"
    " over https, and to what an administrator lists in GPU_DEV_NOTICES__ALLOW."
)


def rules(*allow: str, timeout_s: float = 5, **given: Any) -> PostRules:
    return PostRules(egress_rules(allow, public=True), timeout_s, **{"tls": TLS, **given})


HERE = rules("127.0.0.0/8")


def sender(given: PostRules = HERE) -> WebhookSender:
    return WebhookSender(given, SettableClock())


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as found:
        yield found


async def test_a_notice_arrives_whole_and_signed(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    await sender().send(destination(receiver.url("/a/b?c=d")), NOTICE)
    [got] = receiver.got
    assert (got.path, got.delivery) == ("/a/b?c=d", NOTICE.id)
    assert got.headers["content-type"] == "application/json"
    body = NoticeBody.model_validate(got.json)
    assert (body.id, body.kind, body.text, body.user) == (NOTICE.id, "ended", NOTICE.text, "ada")
    assert body.reservation is not None
    assert body.reservation.id == "job-1"
    signed = got.headers["x-gpu-dev-signature"]
    verified = documented_check()
    at = SettableClock().now().timestamp()
    for now, secret, raw, good in (
        (at, SECRET, got.body, True),
        (at + 299, SECRET, got.body, True),
        (at + 301, SECRET, got.body, False),
        (at, SECRET, got.body + b" ", False),
        (at, SECRET + "x", got.body, False),
    ):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        assert verified(secret, signed, raw) is good
    assert SECRET not in str(got)


async def test_slack_gets_text_that_mentions_nobody(receiver: Receiver) -> None:
    notice = replace(NOTICE, text="Your job job-1 (<!channel> & <https://evil.example|here>) has ended.")
    await SlackSender(HERE).send(destination(receiver.url(), NoticeChannel.SLACK), notice)
    [got] = receiver.got
    escaped = "Your job job-1 (&lt;!channel&gt; &amp; &lt;https://evil.example|here&gt;) has ended."
    assert got.json == {"text": f"{NOTICE.subject}\n{escaped}"}
    assert "x-gpu-dev-signature" not in got.headers


@pytest.mark.parametrize("status", [200, 201, 204])
async def test_taken(receiver: Receiver, status: int) -> None:
    receiver.statuses = [status]
    await sender().send(destination(receiver.url()), NOTICE)
    assert (len(receiver.got), receiver.statuses) == (1, [])


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
async def test_not_taken_this_time(receiver: Receiver, status: int) -> None:
    receiver.statuses = [status]
    with pytest.raises(NotDeliveredError, match=str(status)):
        await sender().send(destination(receiver.url()), NOTICE)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410])
async def test_never_taken(receiver: Receiver, status: int) -> None:
    receiver.statuses = [status]
    with pytest.raises(UndeliverableError, match=str(status)):
        await sender().send(destination(receiver.url()), NOTICE)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(receiver: Receiver, status: int) -> None:
    async def elsewhere(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers={"Location": receiver.url("/secret")})

    receiver.answer = elsewhere
    with pytest.raises(UndeliverableError, match="redirect"):
        await sender().send(destination(receiver.url()), NOTICE)
    assert [got.path for got in receiver.got] == ["/hook"]


async def test_silence_ends_in_time(receiver: Receiver) -> None:
    async def silent(_request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    receiver.answer = silent
    with pytest.raises(NotDeliveredError, match="within"):
        await sender(rules("127.0.0.1", timeout_s=0.3)).send(destination(receiver.url()), NOTICE)


async def test_an_answer_that_drips_for_ever_ends_in_time(receiver: Receiver) -> None:
    """Each byte comes soon enough; only the whole takes too long."""

    async def dripping(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x")
            await asyncio.sleep(0.02)

    receiver.answer = dripping
    with pytest.raises(NotDeliveredError, match="within"):
        await sender(rules("127.0.0.1", timeout_s=0.5)).send(destination(receiver.url()), NOTICE)


async def test_an_endless_answer_is_not_read_to_its_end(receiver: Receiver) -> None:
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while sent < 1000 * 2**20:
            await response.write(b"x" * 2**16)
            sent += 2**16
        return response

    receiver.answer = endless
    await sender(rules("127.0.0.1", timeout_s=20)).send(destination(receiver.url()), NOTICE)
    assert sent < 100 * 2**20


async def test_nobody_there_is_said_without_addresses(receiver: Receiver) -> None:
    port = receiver.port
    del receiver.port
    async with receiving() as gone:
        port = gone.port
    with pytest.raises(NotDeliveredError) as caught:
        await sender().send(destination(f"http://127.0.0.1:{port}/"), NOTICE)
    assert str(caught.value) == UNREACHED


# --- where nothing goes


INSIDE = [
    "http://127.0.0.1:{port}/", "http://localhost:{port}/", "http://127.1:{port}/", "http://2130706433:{port}/",
    "http://0x7f000001:{port}/", "http://0177.0.0.1:{port}/", "http://0.0.0.0:{port}/", "http://[::1]:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/", "http://[::]:{port}/", "https://127.0.0.1:{port}/", "https://localhost:{port}/",
    "http://LOCALHOST:{port}/", "http://localhost.:{port}/",
]  # fmt: skip


@pytest.mark.parametrize("url", INSIDE)
async def test_this_machine_is_never_reached(receiver: Receiver, url: str) -> None:
    with pytest.raises(NotDeliveredError) as caught:
        await sender(rules()).send(destination(url.format(port=receiver.port)), NOTICE)
    assert receiver.got == []
    assert str(caught.value) == UNREACHED


@pytest.mark.parametrize("address", ["169.254.169.254", "10.0.0.1", "fd00::1", "::ffff:10.0.0.1", "224.0.0.1"])
async def test_a_name_that_means_something_inside_is_not_reached(address: str) -> None:
    async def inside(_host: str, _port: int) -> list[str]:
        return [address]

    with pytest.raises(NotDeliveredError) as caught:
        await sender(rules(resolve=inside)).send(destination("https://hooks.example.org/"), NOTICE)
    assert str(caught.value) == UNREACHED


async def test_a_name_that_means_nothing_is_the_same_answer() -> None:
    """Else whoever may add a target could ask for every name inside, one after the other."""

    async def nothing(_host: str, _port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    with pytest.raises(NotDeliveredError) as caught:
        await sender(rules(resolve=nothing)).send(destination("https://hooks.example.org/"), NOTICE)
    assert str(caught.value) == UNREACHED


async def test_one_private_address_among_public_ones_is_enough() -> None:
    async def mixed(_host: str, _port: int) -> list[str]:
        return ["8.8.8.8", "127.0.0.1"]

    with pytest.raises(NotDeliveredError, match="may not go there"):
        await sender(rules(resolve=mixed)).send(destination("https://hooks.example.org/"), NOTICE)


async def test_a_name_that_changes_its_mind_is_reached_where_it_was_checked(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rebinding: public when it is checked, this machine when it is connected to."""
    answers = [["8.8.8.8"], ["127.0.0.1"], ["127.0.0.1"]]
    connected: list[str] = []

    async def changing(_host: str, _port: int) -> list[str]:
        return answers.pop(0)

    async def connect(_self: object, host: str, *_rest: object) -> None:
        connected.append(host)
        raise httpcore.ConnectError("nobody there")

    monkeypatch.setattr(httpcore.AnyIOBackend, "connect_tcp", connect)
    with pytest.raises(NotDeliveredError):
        await sender(rules(resolve=changing)).send(destination("https://hooks.example.org/"), NOTICE)
    assert connected == ["8.8.8.8"]


async def test_without_tls_only_where_it_is_allowed(receiver: Receiver) -> None:
    async def public(_host: str, _port: int) -> list[str]:
        return ["8.8.8.8"]

    with pytest.raises(NotDeliveredError, match="https"):
        await sender(rules(resolve=public)).send(destination("http://hooks.example.org/"), NOTICE)
    await sender(rules("localhost")).send(destination(receiver.url(host="localhost")), NOTICE)
    assert len(receiver.got) == 1


async def test_proxies_of_the_environment_are_not_used(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    await sender().send(destination(receiver.url()), NOTICE)
    assert len(receiver.got) == 1


async def test_tls_is_spoken_to_the_name_and_must_be_trusted(tmp_path: Path) -> None:
    made = certificates(tmp_path)
    trusting = ssl.create_default_context(cafile=str(made.ca_file))
    async with receiving(made.server) as receiver:
        await sender(rules("localhost", tls=trusting)).send(destination(receiver.url(host="localhost")), NOTICE)
        assert len(receiver.got) == 1
        with pytest.raises(NotDeliveredError, match="not trusted"):
            await sender(rules("localhost")).send(destination(receiver.url(host="localhost")), NOTICE)
        with pytest.raises(NotDeliveredError, match="not trusted"):  # the certificate is another name's
            await sender(rules("127.0.0.1", tls=trusting)).send(destination(receiver.url()), NOTICE)
        assert len(receiver.got) == 1


async def test_the_systems_resolver_answers_addresses() -> None:
    assert set(await resolve("localhost", 80)) <= {"127.0.0.1", "::1"}
