"""Questions as kube-scheduler sends them, on a kept connection: answered at once, in order, in time or not at all."""

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from pod_scheduling.ports.extender import Binding
from tests.integration.gpu_admission.conftest import Served, served
from tests.integration.gpu_admission.counting_extender import CountingExtender, pod
from tests.waiting import eventually_sync

BINDING = {"PodName": "p", "PodNamespace": "team-a", "PodUID": "u", "Node": "n1"}


def by_name(*names: str) -> dict[str, Any]:
    return {"Pod": pod(), "Nodes": None, "NodeNames": list(names)}


def question(path: str, said: object, *more: str) -> bytes:
    """As Go writes it."""
    body = json.dumps(said).encode()
    head = [
        f"POST {path} HTTP/1.1", "Host: 127.0.0.1:3456", "User-Agent: Go-http-client/1.1",
        f"Content-Length: {len(body)}", "Content-Type: application/json", "Accept-Encoding: gzip", *more,
    ]  # fmt: skip
    return "\r\n".join([*head, "", ""]).encode() + body


@dataclass
class Connection:
    """One that is kept, with what has come on it and was not read yet."""

    opened: socket.socket
    rest: bytes = b""

    def answer(self) -> tuple[int, dict[str, str], Any]:
        """The next answer: status, headers, body."""
        while b"\r\n\r\n" not in self.rest:
            self._more()
        head, _, self.rest = self.rest.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        length = int(headers["content-length"])
        while len(self.rest) < length:
            self._more()
        body, self.rest = self.rest[:length], self.rest[length:]
        return int(first.split()[1]), headers, json.loads(body)

    def closed(self) -> bool:
        """Whether it is closed by the other side, and nothing comes before that."""
        return not self.rest and self.opened.recv(1) == b""

    def _more(self) -> None:
        came = self.opened.recv(2**16)
        assert came, f"the connection was closed; {self.rest!r} had come"
        self.rest += came


@contextmanager
def connected(running: Served) -> Iterator[Connection]:
    with socket.create_connection(("127.0.0.1", running.port)) as opened:
        opened.settimeout(60)
        yield Connection(opened)


@dataclass
class SlowBinding(CountingExtender):
    """Binds when it is told to."""

    may_bind: asyncio.Event = field(default_factory=asyncio.Event)
    begun: int = 0

    async def bind(self, binding: Binding) -> None:
        self.begun += 1
        await self.may_bind.wait()
        await super().bind(binding)


@pytest.fixture
def slow() -> SlowBinding:
    return SlowBinding({"n1": 4, "n2": 0})


def test_one_pod_after_the_other_on_one_connection(running: Served, extender: CountingExtender) -> None:
    with connected(running) as connection:
        for _ in range(3):
            connection.opened.sendall(question("/scheduler/predicates", by_name("n1", "n2")))
            status, headers, found = connection.answer()
            assert (status, headers["content-type"], "connection" in headers) == (200, "application/json", False)
            assert set(headers) == {"date", "content-type", "content-length"}
            connection.opened.sendall(question("/scheduler/priorities", by_name(*found["NodeNames"])))
            assert [score["Host"] for score in connection.answer()[2]] == found["NodeNames"]
        for node, fits in (("n1", True), ("n2", False)):
            connection.opened.sendall(
                question("/scheduler/vpredicates", {"task": {"Pod": pod(gpus=2)}, "node": {"Name": node}})
            )
            assert (connection.answer()[2] == {}) is fits
        free = extender.free["n1"]
        connection.opened.sendall(question("/scheduler/bind", BINDING))
        assert connection.answer()[2] == {"Error": ""}
        assert extender.free["n1"] == free - 1


def test_what_comes_in_pieces_and_what_comes_together(running: Served) -> None:
    asked = question("/scheduler/predicates", by_name("n1"))
    with connected(running) as connection:
        for start in range(0, len(asked), 97):
            connection.opened.sendall(asked[start : start + 97])
        assert connection.answer()[2]["NodeNames"] == ["n1"]
        connection.opened.sendall(asked + question("/scheduler/priorities", by_name("n1")) + asked)
        assert connection.answer()[2]["NodeNames"] == ["n1"]
        assert connection.answer()[2][0]["Host"] == "n1"
        assert connection.answer()[2]["NodeNames"] == ["n1"]


def test_what_is_asked_behind_a_bind_is_answered_behind_it(slow: SlowBinding) -> None:
    with served(slow) as running, connected(running) as connection, connected(running) as other:
        unusual = question("/scheduler/priorities", by_name("n1"), "X-Other: 1")
        behind = question("/scheduler/predicates", by_name("n1")) + unusual
        connection.opened.sendall(question("/scheduler/bind", BINDING) + behind)
        eventually_sync(lambda: slow.begun == 1, 60)
        other.opened.sendall(question("/scheduler/predicates", by_name("n1")))  # who asks elsewhere does not wait
        assert other.answer()[2]["NodeNames"] == ["n1"]
        running.loop.call_soon_threadsafe(slow.may_bind.set)
        assert connection.answer()[2] == {"Error": ""}
        assert connection.answer()[2]["NodeNames"] == ["n1"]
        assert connection.answer()[2][0]["Host"] == "n1"


def test_a_bind_under_way_is_answered_before_it_ends(slow: SlowBinding) -> None:
    with served(slow) as running, connected(running) as connection:
        connection.opened.sendall(question("/scheduler/bind", BINDING))
        eventually_sync(lambda: slow.begun == 1, 60)
        running.stop()
        running.loop.call_soon_threadsafe(running.loop.call_later, 0.5, slow.may_bind.set)
        status, headers, found = connection.answer()
        assert (status, headers["connection"], found) == (200, "close", {"Error": ""})
        assert connection.closed()
        running.ended.result(60)


def test_who_goes_away_during_a_bind_is_bound_all_the_same(slow: SlowBinding) -> None:
    with served(slow) as running:
        with connected(running) as connection:
            connection.opened.sendall(question("/scheduler/bind", BINDING))
            eventually_sync(lambda: slow.begun == 1, 60)
        running.loop.call_soon_threadsafe(slow.may_bind.set)
        eventually_sync(lambda: slow.free["n1"] == 3, 60)
        with connected(running) as connection:
            connection.opened.sendall(question("/scheduler/predicates", by_name("n1")))
            assert connection.answer()[0] == 200


def test_while_binds_are_under_way_a_question_waits_for_its_turn(extender: CountingExtender) -> None:
    extender.is_busy = True
    with served(extender) as running, connected(running) as connection:
        connection.opened.sendall(question("/scheduler/predicates", by_name("n1")))
        assert connection.answer()[2]["NodeNames"] == ["n1"]
        assert not extender.is_busy


def test_a_body_that_does_not_come_is_not_waited_for(extender: CountingExtender) -> None:
    with served(extender, body_s=0.5) as running, connected(running) as connection:
        connection.opened.sendall(question("/scheduler/predicates", by_name("n1"))[:-1])
        status, headers, found = connection.answer()
        assert (status, headers["connection"]) == (408, "close")
        assert "0.5 s" in found["Error"]
        assert connection.closed()


def test_what_goes_wrong_is_told_on_the_kept_connection(running: Served, extender: CountingExtender) -> None:
    with connected(running) as connection:
        connection.opened.sendall(question("/scheduler/predicates", []))
        assert connection.answer()[::2] == (400, {**_no_answer(), "Error": "the body must be an object"})
        extender.synced = False
        connection.opened.sendall(question("/scheduler/priorities", by_name("n1")))
        assert connection.answer()[0] == 503
        extender.fails = True
        connection.opened.sendall(question("/scheduler/bind", BINDING))
        assert connection.answer()[0] == 500
        metrics = running.client().get("/metrics").text
        for call, outcome in (("filter", "bad_request"), ("prioritize", "not_synced"), ("bind", "error")):
            assert f'gpu_dev_admission_calls_total{{call="{call}",outcome="{outcome}"}} 1.0' in metrics


@pytest.mark.parametrize(
    ("more", "status"),
    [("Content-Encoding: gzip", 415), ("X-Other: 1", 200), ("Connection: close", 200), ("Expect: 100-continue", 100)],
)
def test_unusual_ones_are_answered_as_ever(running: Served, more: str, status: int) -> None:
    with connected(running) as connection:
        connection.opened.sendall(question("/scheduler/predicates", by_name("n1"), more))
        if status == 100:
            assert connection.opened.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
            status = 200
        assert connection.answer()[0] == status


def _no_answer() -> dict[str, None]:
    return dict.fromkeys(("Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes"))


def test_a_connection_is_closed_when_nothing_came_for_long_and_kept_while_it_is_used(
    extender: CountingExtender,
) -> None:
    asked = question("/scheduler/predicates", by_name("n1"))
    with served(extender, idle_s=4) as running, connected(running) as used, connected(running) as idle:
        begun = time.monotonic()
        for connection in (used, idle):
            connection.opened.sendall(asked)
            assert connection.answer()[0] == 200
        idle.opened.settimeout(0.2)
        while True:  # for longer than the idle one lives
            used.opened.sendall(asked)
            assert used.answer()[2]["NodeNames"] == ["n1"]
            with suppress(TimeoutError):
                assert idle.closed()
                break
        assert time.monotonic() - begun > 3.5
        used.opened.sendall(question("/scheduler/predicates", by_name("n1"), "X-Other: 1"))
        assert used.answer()[2]["NodeNames"] == ["n1"]


def test_the_body_of_an_unusual_one_is_no_question(running: Served) -> None:
    """What the server has answered before it has all come is not looked at for what it might contain."""
    within = question("/scheduler/predicates", by_name("n2"))
    head = (
        "POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(within) + 1}\r\n\r\n"
    )
    with connected(running) as connection:
        connection.opened.sendall(head.encode() + b" ")
        assert connection.answer()[0] == 404
        connection.opened.sendall(within)
        connection.opened.sendall(question("/scheduler/predicates", by_name("n1")))
        assert connection.answer()[2]["NodeNames"] == ["n1"]
