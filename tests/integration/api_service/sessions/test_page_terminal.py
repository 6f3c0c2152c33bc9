"""The terminal of a job's page: browsers send its cookie with WebSockets of any site, so the site counts."""

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin, Subprotocol

from api_service.web.routes.sessions.terminal import KEY
from reservation_core.domain.model import PodName
from reservation_core.ports.sessions.pod_streams import Program, Terminal
from reservation_core.runtime.wiring import Runtime
from tests.database.sql import sql
from tests.integration.api_service.callers import People
from tests.integration.api_service.served import Served
from tests.integration.api_service.sessions.conftest import SUBPROTOCOL, results
from tests.waiting import PATIENCE_S


@pytest.fixture
async def cookie(served: Served, people: People) -> str:
    """What alice's browser sends after she signed in."""
    async with httpx.AsyncClient(base_url=served.base_url, timeout=PATIENCE_S) as browser:
        answer = await browser.post("/sign-in", data={"token": people.secrets["alice"] or ""})
        assert answer.status_code == 303, answer.text
        return "; ".join(f"{name}={value}" for name, value in browser.cookies.items())


async def opened(served: Served, job: str, cookie: str, origin: str | None, query: str = "") -> bytes | int:
    """What a shell in the page's terminal prints, or the status of a refusal."""
    address = f"{served.base_url.replace('http', 'ws')}/jobs/{job}/terminal{query}"
    try:
        async with connect(
            address,
            origin=None if origin is None else Origin(origin),
            additional_headers={"Cookie": cookie},
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            proxy=None,
            open_timeout=PATIENCE_S,
        ) as socket:
            assert bytes(await socket.recv(decode=False))[0] == KEY
            await socket.send(b"\0echo in-$((1+1)); exit\n")
            return (await results(socket))[0]
    except InvalidStatus as refused:
        return refused.response.status_code


async def test_pages_of_other_sites_open_no_terminal(served: Served, job: str, cookie: str) -> None:
    for origin in ("https://elsewhere.test", f"http://{job}-80.localhost", "null", None):
        assert await opened(served, job, cookie, origin) == 403
    shown = await opened(served, job, cookie, served.base_url)
    assert isinstance(shown, bytes)
    assert b"in-2" in shown


async def test_a_page_comes_back_to_its_own_users_terminals_alone(
    served: Served, job: str, cookie: str, runtime: Runtime
) -> None:
    pod, command = PodName(job, 1, 0), ("sh", "-c", 'echo "at $0"; exec sh', "hers")
    hers = await runtime.pod_streams.run(pod, Program(command, Terminal(), person="alice"))
    others = await runtime.pod_streams.run(pod, Program(("sh", "-c", "echo theirs; cat"), Terminal(), person="bob"))
    shown = await opened(served, job, cookie, served.base_url, "?attach=true")
    assert isinstance(shown, bytes)
    assert b"at hers" in shown
    assert b"in-2" in shown
    assert (await hers.wait()).exit_code == 0
    (other,) = await runtime.pod_streams.terminals(pod)
    for query in ("?attach=true", f"?attach=true&terminal={other.key}"):
        anew = await opened(served, job, cookie, served.base_url, query)
        assert isinstance(anew, bytes)
        assert b"in-2" in anew
        assert b"theirs" not in anew
    for program in (hers, others):
        await program.close()


async def test_a_session_without_the_scope_opens_no_terminal(
    served: Served, job: str, cookie: str, runtime: Runtime
) -> None:
    async with runtime.uow() as uow:
        await sql(uow, "UPDATE tokens SET scopes = '{read}'")
    assert await opened(served, job, cookie, served.base_url) == 403
