"""The application over a real database, and callers of every kind."""

import asyncio
import pickle
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fastapi import FastAPI
from pytest_postgresql.executors import NoopExecutor

from api_service.app import create_app
from reservation_core.domain.simulation.comparison import Comparison, Question, compare
from reservation_core.domain.statuses import Role
from reservation_core.ports.people.identities import Principal
from reservation_core.runtime.settings.components import ApiSettings, StandaloneSettings
from reservation_core.runtime.simulation.messages import ANSWER, QUESTION
from reservation_core.runtime.simulation.simulator import Simulator
from reservation_core.runtime.wiring import Runtime, open_runtime
from tests.conftest import copied_database, url_of
from tests.database.pools import PATIENT_S
from tests.integration.api_service.bookings import calendars
from tests.integration.api_service.callers import People

if TYPE_CHECKING:
    from tests.people.sign_in_world import SignInWorld


@pytest.fixture(autouse=True)
def next_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test counts its hours from."""
    monkeypatch.setattr(calendars, "next_hour", calendars.hour_to_come())


@pytest.fixture
def settings() -> ApiSettings:
    """What the tests run with; the token cache is on, as in earnest."""
    return ApiSettings(max_body_bytes=64 * 1024, database_patience_s=PATIENT_S)


@pytest.fixture(scope="session")
def everybody(migrated_server: NoopExecutor, session_folder: Path) -> Iterator[tuple[str, bytes]]:
    """A database with everybody who may call, for others to be copies of; and People as bytes, as tests add to them."""
    with copied_database(migrated_server, migrated_server.template_dbname) as name:
        made = _people(url_of(migrated_server, name), session_folder / "home of people")
        with ThreadPoolExecutor(1) as thread:  # this one may belong to an event loop
            yield name, pickle.dumps(thread.submit(lambda: asyncio.run(made)).result())


@pytest.fixture
def database_url(request: pytest.FixtureRequest, migrated_server: NoopExecutor) -> Iterator[str]:
    """A fresh database, with everybody in it where the test has people."""
    template = migrated_server.template_dbname
    if "people" in request.fixturenames:
        template, _ = request.getfixturevalue("everybody")
    with copied_database(migrated_server, template) as name:
        yield url_of(migrated_server, name)


@pytest.fixture
def people(everybody: tuple[str, bytes], database_url: str) -> People:
    """Everybody who may call, made without the API: they are in the test's database."""
    _, made = everybody
    found: People = pickle.loads(made)
    return found


async def _people(database_url: str, home: Path) -> People:
    """Make them. Their tokens outlive the tests."""
    async with open_runtime(StandaloneSettings(home=home, local_gpus="h100:4"), database_url) as runtime:
        return await _made_people(runtime)


async def _made_people(runtime: Runtime) -> People:
    now = runtime.clock.now()
    secrets: dict[str, str | None] = {"anonymous": None, "unknown": "gpudev_never-was"}
    principals = {}
    async with runtime.uow() as uow:

        async def add(name: str, user: str, *, expires: datetime | None = None, **more: Any) -> None:
            secret = secrets[name] = runtime.ids.new_secret()
            digest, user_id = runtime.ids.digest(secret), principals[user].user_id
            await uow.identities.create_token(runtime.ids.new_id("tok"), user_id, name, digest, expires, now, **more)

        for name, role in (("alice", Role.USER), ("bob", Role.USER), ("root", Role.ADMIN)):
            user = await uow.identities.create_user(name, role, now - timedelta(days=1))
            secret = secrets[name] = runtime.ids.new_secret()
            token = await uow.identities.create_token(
                runtime.ids.new_id("tok"), user.id, name, runtime.ids.digest(secret), None, now
            )
            principals[name] = Principal(user.id, name, role, token.id, None)
        for name, expires in (("expired", now - timedelta(seconds=1)), ("revoked", None)):
            secret = secrets[name] = runtime.ids.new_secret()
            token = await uow.identities.create_token(
                runtime.ids.new_id("tok"),
                principals["alice"].user_id,
                name,
                runtime.ids.digest(secret),
                expires,
                now - timedelta(hours=1),
            )
            if name == "revoked":
                await add("child of revoked", "alice", made_with=token.id)
                await uow.identities.revoke_token(token.id, None, now)
        await add("child", "alice", made_with=principals["alice"].token_id)
        await add(
            "session",
            "alice",
            session=True,
            session_from=principals["alice"].token_id,
            expires=now + timedelta(days=1),
        )
    return People(secrets, principals)


@pytest.fixture
async def app(runtime: Runtime, settings: ApiSettings) -> AsyncIterator[FastAPI]:
    """The application with its background work running."""
    made = create_app(runtime, settings)
    async with made.router.lifespan_context(made):
        yield made


@pytest.fixture
async def calling(app: FastAPI, people: People) -> AsyncIterator[Callable[[str], httpx.AsyncClient]]:
    """A client by kind of caller."""
    async with AsyncExitStack() as stack:
        clients: dict[str, httpx.AsyncClient] = {}

        def client(who: str) -> httpx.AsyncClient:
            if who not in clients:
                secret = people.secrets[who]
                headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
                # Exceptions must come out as answers: nothing may be left to the test client.
                transport = httpx.ASGITransport(app, raise_app_exceptions=True)
                clients[who] = httpx.AsyncClient(transport=transport, base_url="http://api", headers=headers)
                stack.push_async_callback(clients[who].aclose)
            return clients[who]

        yield client


@pytest.fixture
def alice(calling: Callable[[str], httpx.AsyncClient]) -> httpx.AsyncClient:
    """A user."""
    return calling("alice")


@pytest.fixture
def bob(calling: Callable[[str], httpx.AsyncClient]) -> httpx.AsyncClient:
    """Another user."""
    return calling("bob")


@pytest.fixture
def root(calling: Callable[[str], httpx.AsyncClient]) -> httpx.AsyncClient:
    """An administrator."""
    return calling("root")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator["SignInWorld"]:
    """Those who vouch for people."""
    from tests.people.sign_in_world import sign_in_world

    async with sign_in_world(tmp_path) as running:
        yield running


@pytest.fixture
async def newcomer(runtime: Runtime, world: "SignInWorld") -> AsyncIterator[httpx.AsyncClient]:
    """Somebody without a token, at a server that believes those."""
    from tests.integration.api_service.people.newcomers import served

    async with served(runtime, world) as client:
        yield client


@pytest.fixture
def simulated_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulations run in this process, by the same messages: a process of their own takes a second, see its tests."""

    async def answer(_simulator: Simulator, question: Question) -> Comparison:
        asked = QUESTION.validate_json(QUESTION.dump_json(question))
        return ANSWER.validate_json(ANSWER.dump_json(await asyncio.to_thread(compare, asked)))

    monkeypatch.setattr(Simulator, "compare", answer)
