"""Apps of jobs at host names of their own, through the whole server: a real app in a real pod."""

import asyncio
import hashlib
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from reservation_core.domain.model import PodName
from reservation_core.ports.sessions.pod_streams import Program
from reservation_core.runtime.wiring import Runtime
from tests.database.sql import sql
from tests.integration.api_service.callers import People
from tests.integration.api_service.served import Served
from tests.integration.api_service.sessions.test_programs import _connections
from tests.programs.ports import own_port
from tests.waiting import PATIENCE_S, eventually

SAMPLE = Path(__file__).parents[3] / "sessions" / "sample_app.py"
TicketOf = Callable[..., Any]


@dataclass
class AppAddress:
    """An app that runs: its host and port, and the server's address."""

    served: Served
    job: str
    port: int

    @property
    def host(self) -> str:
        return f"{self.job}-{self.port}.localhost:{self.served.base_url.rpartition(':')[2]}"

    def client(self, **headers: str) -> httpx.AsyncClient:
        """A browser's connections to the app."""
        return httpx.AsyncClient(
            base_url=self.served.base_url, headers={"Host": self.host, **headers}, timeout=PATIENCE_S, trust_env=False
        )


@pytest.fixture
async def app(served: Served, job: str, runtime: Runtime) -> AsyncIterator[AppAddress]:
    port = own_port()
    program = await runtime.pod_streams.run(PodName(job, 1, 0), Program((sys.executable, str(SAMPLE), str(port))))
    yield AppAddress(served, job, port)
    await program.close()


@pytest.fixture
def ticket_of(app: AppAddress, people: People) -> TicketOf:
    """`await ticket_of("alice")`: the answer to her wish for a ticket."""

    async def ask(who: str, port: int | None = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {people.secrets[who]}"}
        async with httpx.AsyncClient(
            base_url=app.served.base_url, headers=headers, trust_env=False, timeout=PATIENCE_S
        ) as http:
            return await http.post(f"/v1/jobs/{app.job}/app-tickets", json={"port": port or app.port})

    return ask


@pytest.fixture
async def inside(app: AppAddress, ticket_of: TicketOf) -> AsyncIterator[httpx.AsyncClient]:
    """Alice's browser at the app."""
    async with app.client() as http:
        await enter(http, (await ticket_of("alice")).json()["url"])

        async def answers() -> bool:
            return (await http.get("/headers")).status_code == 200

        await eventually(answers)
        yield http


async def enter(http: httpx.AsyncClient, url: str) -> httpx.Response:
    """Open a ticket's address, and keep the cookie as a browser does."""
    answer = await http.get(httpx.URL(url).raw_path.decode())
    if answer.status_code == 303:
        http.headers["Cookie"] = answer.headers["set-cookie"].partition(";")[0]
    return answer


async def test_a_ticket_is_good_once_for_its_own_app(
    app: AppAddress, ticket_of: TicketOf, runtime: Runtime, people: People
) -> None:
    answer = await ticket_of("alice")
    assert answer.status_code == 201
    url = answer.json()["url"]
    assert url.startswith(f"http://{app.host}/.gpu-dev/enter?ticket=")
    async with app.client(Host=app.host.replace(app.job, "job-other")) as http:
        assert (await enter(http, url)).status_code == 401  # another job's
    late = (await ticket_of("alice")).json()["url"]
    async with app.client() as http:
        assert (await http.get("/")).status_code == 401
        other = (await ticket_of("alice", 9)).json()["url"]
        assert (await enter(http, other)).status_code == 401  # another app's
        entered = await enter(http, url)
        assert entered.status_code == 303
        cookie = entered.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=lax" in cookie
        assert "domain" not in cookie
        assert (await enter(http, url)).status_code == 401
    async with runtime.uow() as uow:
        await sql(uow, "UPDATE app_passes SET expires_at = now() - interval '1 s' WHERE used_at IS NULL")
    async with app.client() as http:
        assert (await enter(http, late)).status_code == 401
    async with runtime.uow() as uow:
        stored = [bytes(row[0]) for row in await sql(uow, "SELECT digest FROM app_passes")]
    assert all(len(digest) == 32 for digest in stored)


async def test_one_users_right_is_not_anothers(
    inside: httpx.AsyncClient, app: AppAddress, ticket_of: TicketOf, people: People, runtime: Runtime
) -> None:
    user = people.principals["bob"].user_id
    async with runtime.uow() as uow:
        share = "INSERT INTO job_shares (reservation_id, user_id, created_at) VALUES (:job, :user, now())"
        await sql(uow, share, job=app.job, user=user)
    url = (await ticket_of("bob")).json()["url"]
    async with runtime.uow() as uow:
        await sql(uow, "DELETE FROM job_shares")
    async with app.client() as bob, inside.stream("GET", "/stream"):
        assert (await enter(bob, url)).status_code == 303
        assert (await bob.get("/headers")).status_code == 404


async def test_only_owners_and_those_it_is_shared_with_get_tickets(
    ticket_of: TicketOf, app: AppAddress, people: People, runtime: Runtime
) -> None:
    assert (await ticket_of("bob")).status_code == 404
    assert (await ticket_of("root")).status_code == 404  # administrators do not enter others' jobs
    async with runtime.uow() as uow:
        await sql(
            uow,
            "INSERT INTO job_shares (reservation_id, user_id, created_at) VALUES (:job, :user, now())",
            job=app.job, user=people.principals["bob"].user_id,
        )  # fmt: skip
    assert (await ticket_of("bob")).status_code == 201


async def test_requests_reach_the_app_without_what_is_ours(inside: httpx.AsyncClient, app: AppAddress) -> None:
    cookie = inside.headers["Cookie"]
    sent = {
        "Cookie": f"theirs=1; {cookie}; gpu_dev_session=x; __Host-gpu_dev_session=y; last=2",
        "Authorization": "Bearer gpudev_secret",
        "X-Forwarded-For": "8.8.8.8",
        "X-Custom": "kept",
        "Connection": "close, X-Hop",
        "X-Hop": "gone",
    }
    answer = await inside.post("/headers?a=1&a=%2F&b", headers=sent, content=b"x")
    told = answer.json()
    assert told["path"] == "/headers?a=1&a=%2F&b"
    got = {name.lower(): value for name, value in told["headers"]}
    assert got["cookie"] == "theirs=1; last=2"
    assert "authorization" not in got
    assert got["x-custom"] == "kept"
    assert "x-hop" not in got
    assert (got["host"], got["x-forwarded-host"]) == (app.host, app.host)
    assert (got["x-forwarded-for"], got["x-forwarded-proto"]) == ("127.0.0.1", "http")
    theirs = await inside.get("/headers", headers={"Authorization": "token of-the-app"})
    assert ["Authorization", "token of-the-app"] in theirs.json()["headers"]


async def test_answers_come_back_without_cookies_for_other_hosts(inside: httpx.AsyncClient) -> None:
    answer = await inside.get("/cookies")
    assert answer.headers.get_list("set-cookie") == ["mine=1; Path=/", "plain=2; Path=/"]
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert "frame-ancestors 'self'" in answer.headers["content-security-policy"]
    led = await inside.get("/lead", follow_redirects=False)
    assert (led.status_code, led.headers["location"]) == (302, "/headers")
    head = await inside.head("/headers")
    assert (head.status_code, head.content) == (200, b"")


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_bodies_of_any_size_pass_both_ways(inside: httpx.AsyncClient, framing: str) -> None:
    block, blocks = bytes(range(256)) * 4096, 64
    digest = hashlib.sha256()
    for _ in range(blocks):
        digest.update(block)

    async def body() -> AsyncIterator[bytes]:
        for _ in range(blocks):
            yield block

    size = len(block) * blocks
    headers = {"Content-Length": str(size)} if framing == "length" else {}
    sent = await inside.post("/take", content=body(), headers={**headers, "Expect": "100-continue"})
    assert sent.json() == {"sha256": digest.hexdigest(), "size": size, "framing": framing}
    came = hashlib.sha256()
    query = f"/give?size={size}" + ("&length" if framing == "length" else "")
    async with inside.stream("GET", query) as answer:
        assert ("content-length" in answer.headers) == (framing == "length")
        async for part in answer.aiter_bytes():
            came.update(part)
    assert came.hexdigest() == digest.hexdigest()


async def test_a_slow_reader_makes_the_app_wait(inside: httpx.AsyncClient) -> None:
    size = 2**28
    async with inside.stream("GET", f"/give?size={size}") as answer:
        parts = answer.aiter_raw()
        await anext(parts)
        before = -1
        while before != (now := (await inside.get("/given")).json()):
            before = now
            await asyncio.sleep(0.5)
        assert now < 2**25, f"the app could write {now} bytes that nobody reads"


async def test_an_answer_before_the_body_and_one_that_breaks_off(inside: httpx.AsyncClient) -> None:
    refused = await inside.post("/refuse", content=b"x" * 100)
    assert (refused.status_code, refused.text) == (413, "too large")
    with pytest.raises(httpx.RemoteProtocolError):
        await inside.get("/break")


async def test_a_browser_that_leaves_ends_the_apps_stream(inside: httpx.AsyncClient) -> None:
    async def counted(number: int) -> bool:
        return bool((await inside.get("/streams")).json() == number)

    async with inside.stream("GET", "/stream") as answer:
        lines = answer.aiter_lines()  # a name: once it is dropped, the answer is closed
        await anext(lines)
        await eventually(lambda: counted(1))
    await eventually(lambda: counted(0))


async def test_web_sockets_pass_whatever_their_messages_size(inside: httpx.AsyncClient, app: AppAddress) -> None:
    port = int(app.served.base_url.rpartition(":")[2])
    headers = {"Cookie": inside.headers["Cookie"]}
    where: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": port,
        "proxy": None,
        "max_size": None,
        "open_timeout": PATIENCE_S,
    }
    url, origin = f"ws://{app.host}/socket", f"http://{app.host}"
    async with connect(
        url,
        origin=origin,
        additional_headers=headers,
        subprotocols=["echo"],
        **where,  # type: ignore[arg-type,list-item]
    ) as socket:
        assert socket.subprotocol == "echo"
        large = "x" * 5_000_000
        for message in ("hello", b"\0\1\2", large):
            await socket.send(message)
            assert await socket.recv() == message
    for wrong in (f"http://job-other-1.localhost:{port}", f"http://localhost:{port}", "null"):
        with pytest.raises(InvalidStatus, match="403"):
            await connect(url, origin=wrong, additional_headers=headers, **where)  # type: ignore[arg-type]
    with pytest.raises(InvalidStatus, match="401"):
        await connect(url, origin=origin, **where)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://localhost:1"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200),
        ({"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
    ],
)
async def test_other_sites_ask_for_nothing(inside: httpx.AsyncClient, headers: dict[str, str], status: int) -> None:
    assert (await inside.get("/headers", headers=headers)).status_code == status
    if status == 200:
        moved = {**headers, "Sec-Fetch-Site": "cross-site"}
        assert (await inside.post("/take", headers=moved, content=b"")).status_code == 403


async def test_one_connection_is_listed_while_an_app_is_used(
    inside: httpx.AsyncClient, app: AppAddress, runtime: Runtime
) -> None:
    await asyncio.gather(*(inside.get("/headers") for _ in range(20)))
    async with runtime.uow() as uow:
        rows = list(await sql(uow, "SELECT way, user_id FROM connections"))
    assert [row[0] for row in rows] == ["app"]


@pytest.mark.parametrize("change", ["token", "share", "job"])
async def test_an_app_is_left_when_the_right_to_it_ends(
    change: str, app: AppAddress, ticket_of: TicketOf, people: People, runtime: Runtime
) -> None:
    bob = people.principals["bob"]
    async with runtime.uow() as uow:
        await sql(
            uow,
            "INSERT INTO job_shares (reservation_id, user_id, created_at) VALUES (:job, :user, now())",
            job=app.job, user=bob.user_id,
        )  # fmt: skip
    async with app.client() as http:
        await enter(http, (await ticket_of("bob")).json()["url"])

        async def status() -> int:
            return (await http.get("/headers")).status_code

        async def answers() -> bool:
            return await status() == 200

        await eventually(answers)
        ends = {
            "token": "UPDATE tokens SET revoked_at = now() WHERE id = :token",
            "share": "DELETE FROM job_shares WHERE user_id = :user",
            "job": "UPDATE reservations SET status = 'succeeded', finished_at = now() WHERE id = :job",
        }
        values = {"token": {"token": bob.token_id}, "share": {"user": bob.user_id}, "job": {"job": app.job}}
        async with http.stream("GET", "/stream") as open_stream:
            lines = open_stream.aiter_lines()
            await anext(lines)
            async with runtime.uow() as uow:
                await sql(uow, ends[change], **values[change])
            await _connections(app.served).refresh()
            with pytest.raises(httpx.RemoteProtocolError):
                async for _ in lines:
                    pass
        assert await status() == {"token": 401, "share": 404, "job": 409}[change]


async def test_hosts_without_an_app_are_told_apart(app: AppAddress, inside: httpx.AsyncClient) -> None:
    port = app.served.base_url.rpartition(":")[2]
    for host in (
        "nothing",
        f"{app.job}-0",
        f"{app.job}-70000",
        f"{app.job}-x",
        f"x.{app.job}-{app.port}",
        f"{app.job}-9.x",
    ):
        async with app.client(Host=f"{host}.localhost:{port}") as http:
            answer = await http.get("/v1/jobs")
            assert answer.status_code == 404
            assert "No app has this address" in answer.text
    async with app.client(Host=f"localhost:{port}") as http:
        assert (await http.get("/healthz")).status_code == 200
    closed = own_port()
    async with app.client(Host=f"{app.job}-{closed}.localhost:{port}") as http:
        answer = await http.get("/")
        assert answer.status_code == 401
        assert f"http://localhost:{port}/jobs/{app.job}" in answer.text


async def test_a_port_where_nobody_listens_is_said(app: AppAddress, ticket_of: TicketOf) -> None:
    closed = own_port()
    elsewhere = AppAddress(app.served, app.job, closed)
    async with elsewhere.client() as http:
        await enter(http, (await ticket_of("alice", closed)).json()["url"])
        answer = await http.get("/")
        assert answer.status_code == 502
        assert f"Nothing listens at port {closed}" in answer.text


async def test_tickets_end_after_a_minute(app: AppAddress, ticket_of: TicketOf, runtime: Runtime) -> None:
    async with runtime.uow() as uow:
        now = runtime.clock.now()
        await ticket_of("alice")
        row = (await sql(uow, "SELECT expires_at FROM app_passes")).one()
    assert row[0] - now < timedelta(seconds=90)
