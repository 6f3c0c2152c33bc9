"""Readers that take nothing hold up nobody who leaves."""

import asyncio
import socket

import pytest

from reservation_core.adapters.local.sessions import pod_streams
from reservation_core.adapters.local.sessions.pod_streams import LocalPodConnection
from tests.waiting import PATIENCE_S


async def test_a_port_that_takes_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_streams, "_PATIENCE_S", 0.1)
    ours, theirs = socket.socketpair()
    with theirs:
        connection = LocalPodConnection(*await asyncio.open_connection(sock=ours))
        writing = asyncio.create_task(connection.write(bytes(10_000_000)))
        await asyncio.sleep(0)
        writing.cancel()
        await asyncio.wait_for(connection.close(), PATIENCE_S)
