"""How often passes to apps are looked up: seldom, and at once when the right to a job may have ended."""

import asyncio

import httpx
import pytest

from api_service.apps import known_passes
from reservation_core.adapters.postgres.sessions.app_passes import AppPasses
from reservation_core.runtime.wiring import Runtime
from tests.database.sql import sql
from tests.integration.api_service.sessions.test_apps import AppAddress, app, enter, inside, ticket_of
from tests.integration.api_service.sessions.test_programs import _connections

__all__ = ["app", "inside", "ticket_of"]


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes are looked up for each request, until a test says otherwise."""
    monkeypatch.setattr(known_passes, "KNOWN_S", 0)


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The digests that were looked up."""
    digests: list[bytes] = []
    find = AppPasses.find

    async def counted(self: AppPasses, digest: bytes, *others: object) -> object:
        digests.append(digest)
        return await find(self, digest, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(AppPasses, "find", counted)
    return digests


async def _statuses(inside: httpx.AsyncClient, number: int) -> set[int]:
    answers = await asyncio.gather(*(inside.get("/headers") for _ in range(number)))
    return {answer.status_code for answer in answers}


async def test_a_pass_is_looked_up_once_in_some_seconds(
    inside: httpx.AsyncClient, lookups: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_passes, "KNOWN_S", 600)
    for _ in range(3):
        assert await _statuses(inside, 10) == {200}
    assert len(lookups) == 1
    monkeypatch.setattr(known_passes, "KNOWN_S", 0)
    inside.headers["Cookie"] = inside.headers["Cookie"].replace("=", "=x", 1)
    lookups.clear()
    assert await _statuses(inside, 3) == {401}
    assert len(lookups) == 3


async def test_a_pass_is_good_for_its_own_app_alone(
    inside: httpx.AsyncClient, app: AppAddress, lookups: list[bytes]
) -> None:
    cookie = inside.headers["Cookie"]
    other = AppAddress(app.served, app.job, app.port + 1 if app.port < 65_535 else 1)
    for elsewhere in (other, AppAddress(app.served, "job-other", app.port)):
        async with elsewhere.client(Cookie=cookie) as http:
            assert (await http.get("/")).status_code == 401
    assert len(lookups) >= 2


async def test_a_pass_is_no_ticket_and_expires(inside: httpx.AsyncClient, app: AppAddress, runtime: Runtime) -> None:
    secret = inside.headers["Cookie"].partition("=")[2]
    assert (await enter(inside, f"http://{app.host}/.gpu-dev/enter?ticket={secret}")).status_code == 401
    assert await _statuses(inside, 1) == {200}
    async with runtime.uow() as uow:
        await sql(uow, "UPDATE app_passes SET expires_at = now()")
    assert await _statuses(inside, 1) == {401}


async def test_a_pass_is_looked_up_again_when_its_connection_has_ended(
    inside: httpx.AsyncClient, app: AppAddress, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_passes, "KNOWN_S", 600)
    assert await _statuses(inside, 5) == {200}
    async with runtime.uow() as uow:
        await sql(uow, "UPDATE tokens SET revoked_at = now()")
    await _connections(app.served).refresh()
    assert await _statuses(inside, 5) == {401}


async def test_a_failed_lookup_is_not_remembered(
    inside: httpx.AsyncClient, lookups: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object) -> object:
        raise ConnectionRefusedError

    find = AppPasses.find
    monkeypatch.setattr(AppPasses, "find", fails)
    assert (await inside.get("/headers")).status_code == 503
    monkeypatch.setattr(AppPasses, "find", find)
    monkeypatch.setattr(known_passes, "KNOWN_S", 600)
    assert (await inside.get("/headers")).status_code == 200


def test_few_passes_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_passes, "_MOST_KNOWN", 2)

    async def fill() -> int:
        async def find(digest: bytes, _: object) -> None:
            await asyncio.Future()

        passes = known_passes.KnownPasses(find)  # type: ignore[arg-type]
        for number in range(10):
            passes.get(bytes([number]), None)  # type: ignore[arg-type]
        return len(passes._known)

    assert asyncio.run(fill()) <= 2
