"""The webhook's memory while many bodies come at once and don't end, and who is answered meanwhile."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from reservation_core.adapters.certificates.pairs import Pair
from tests.integration.admission_webhook.mapped_pods import pod
from tests.programs.webhook_process import (
    WebhookProcess,
    admission_review,
    client_of,
    new_pair,
    trusting,
    webhook_process,
    write_pair,
)
from tests.waiting import eventually

MIB = 2**20
LARGEST = 3 * MIB


@pytest.fixture(scope="module")
def pair() -> Pair:
    return new_pair()


@pytest.fixture
def webhook(tmp_path: Path, pair: Pair) -> Iterator[WebhookProcess]:
    write_pair(pair, tmp_path)
    with webhook_process(tmp_path, GPU_DEV_WEBHOOK__BODY_S="300") as webhook:
        yield webhook


@asynccontextmanager
async def connected(webhook: WebhookProcess, context: ssl.SSLContext) -> AsyncIterator["Sender"]:
    reader, writer = await asyncio.open_connection("127.0.0.1", webhook.port, ssl=context)
    try:
        yield Sender(reader, writer)
    finally:
        writer.transport.abort()


class Sender:
    """A client that begins a request of the largest size, and does not end it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def begin(self, size: int = LARGEST) -> None:
        """All of the body but its last byte, as far as it is taken."""
        head = f"POST /mutate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
        self._writer.write(head.encode() + b" " * (size - 1))
        await self._writer.drain()

    async def end(self) -> tuple[int, str]:
        """Send the last byte; the answer's status and its head."""
        self._writer.write(b" ")
        return await self.answer()

    async def answer(self) -> tuple[int, str]:
        """Wait for the answer."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        return int(head.split()[1]), head


def review(text: str) -> bytes:
    """A review of a pod with a map that makes it as long as `text`."""
    given = pod("a-0")
    given["metadata"]["annotations"]["other"] = text
    return json.dumps(admission_review(given)).encode()


def memory_mib(webhook: WebhookProcess) -> float:
    return float(psutil.Process(webhook.process.pid).memory_info().rss / MIB)


async def test_unfinished_bodies_take_bounded_memory_and_nobodys_turn(webhook: WebhookProcess, pair: Pair) -> None:
    """100 of 3 MiB would be 300 MiB and more."""
    before = memory_mib(webhook)
    context = trusting(pair)
    headers = {"Content-Type": "application/json"}
    async with asyncio.timeout(200):
        with client_of(webhook, pair) as client:

            def send(content: bytes) -> httpx.Response:
                return client.post("/mutate", content=content, headers=headers)

            async with begun(webhook, context, 100) as senders:
                answers = [asyncio.create_task(sender.answer()) for sender in senders]
                # Seven have room (24 MiB); each of the others is told so, and when to come again.
                await eventually(lambda: sum(answer.done() for answer in answers) >= 90, timeout=100)
                told = [answer.result() for answer in answers if answer.done()]
                assert {status for status, _ in told} == {503}
                assert all("retry-after: 1\r\n" in head for _, head in told)
                assert memory_mib(webhook) - before < 160
                assert client.get("/health").status_code == 200
                assert client.get("/ready").status_code == 200
                small = await asyncio.to_thread(send, review("x"))
                assert small.json()["response"]["allowed"] is True
                assert (await asyncio.to_thread(send, review("x" * 2 * MIB))).status_code == 503
                for answer in answers:
                    answer.cancel()
                await asyncio.gather(*answers, return_exceptions=True)

            async def room_again() -> bool:
                return (await asyncio.to_thread(send, review("x" * 2 * MIB))).status_code == 200

            await eventually(room_again)
            assert 'gpu_dev_webhook_reviews_total{outcome="busy"} 9' in client.get("/metrics").text


@asynccontextmanager
async def begun(webhook: WebhookProcess, context: ssl.SSLContext, count: int) -> AsyncIterator[list[Sender]]:
    """Senders that begin as soon as they are connected: the webhook waits for a request's head for ten seconds."""
    opened = [connected(webhook, context) for _ in range(count)]

    async def begin(sender: AbstractAsyncContextManager[Sender]) -> Sender:
        connection = await sender.__aenter__()
        await connection.begin()
        return connection

    try:
        yield await asyncio.gather(*(begin(sender) for sender in opened))
    finally:
        for sender in opened:
            await sender.__aexit__(None, None, None)


async def test_who_gets_room_is_read_to_the_end(webhook: WebhookProcess, pair: Pair) -> None:
    async with connected(webhook, trusting(pair)) as sender, asyncio.timeout(60):
        await sender.begin()
        status, _ = await sender.end()
        assert status == 400  # all of it came, and it is blanks


async def test_a_body_that_does_not_come_is_not_waited_for(tmp_path: Path, pair: Pair) -> None:
    write_pair(pair, tmp_path)
    with webhook_process(tmp_path, GPU_DEV_WEBHOOK__BODY_S="1") as webhook:
        async with connected(webhook, trusting(pair)) as sender, asyncio.timeout(60):
            await sender.begin(1000)
            status, head = await sender.answer()
            assert status == 408
            assert "connection: close\r\n" in head
