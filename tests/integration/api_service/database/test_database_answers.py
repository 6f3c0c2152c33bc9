"""Whatever the database answers: every route × each class of SQLSTATE that passes, and connections that are dead.

Made from the application's routes: none is left out. The errors come by PostgreSQL's own protocol, in the server's
place; connections go through a proxy on which they stall, are half open, or are reset.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI
from starlette.routing import Route, WebSocketRoute

from api_service.app import create_app
from api_service.web.page_list import WEB_ROUTES
from reservation_core.domain.statuses import Role
from reservation_core.domain.sync.frames import framed
from reservation_core.ports.jobs.unknown_pods import UnknownPod
from reservation_core.runtime.reading.sign_in import open_sign_in
from reservation_core.runtime.sealing_keys import ensure_key_file
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.wiring import Runtime, open_runtime
from reservation_core.usecases.nodes.update_inventory import update_inventory
from tests.database.postgres_proxy import PostgresProxy
from tests.integration.api_service.bookings.calendars import asked, at
from tests.integration.api_service.callers import JOB, PUBLIC_KEY, submitted
from tests.integration.api_service.people.newcomers import by_id_token
from tests.integration.api_service.test_access import CALLS, PAGES, WEB_SOCKETS
from tests.integration.api_service.web.browsing import Browser
from tests.people.sign_in_world import SignInWorld, sign_in_world
from tests.waiting import PATIENCE_S, eventually

# One at least of every class that passes, and those that were seen to be answered with 500.
SQLSTATES = [
    "08006", "25006", "40001", "40P01", "53100", "53200", "53300", "55P03", "57014", "57P01", "57P03", "58030",
    "XX000", "XX001",
]  # fmt: skip
# They ask no database. (Metrics say that it does not answer.)
NEVER_UNAVAILABLE = {"/healthz", "/metrics", "/openapi.json", "/docs"}
PAGES_WITHOUT_DATABASE = {
    ("GET", "/"), ("GET", "/static/{digest}/{name}"), ("GET", "/sign-in"), ("GET", "/sign-in/start"),
    ("GET", "/sign-in/done"), ("GET", "/signed-in"), ("GET", "/session"), ("POST", "/sign-out"), ("POST", "/zone"),
    ("GET", "/calendar/bookings"), ("GET", "/calendar/check"), ("GET", "/calendar/feed"),
    ("GET", "/calendar/feed/remove"), ("GET", "/jobs/cancel"), ("POST", "/jobs/cancel"),
    ("POST", "/jobs/{job_id}/open"), ("GET", "/search"), ("GET", "/shortcuts"), ("GET", "/admin/nodes/{node}/cordon"),
    ("GET", "/admin/nodes/{node}/fence"), ("GET", "/admin/pods/{pod}/end"),
    ("GET", "/admin/projects/{project}/members/{user}/remove"),
}  # fmt: skip
POD = "job-nobody-1-0"
_PART = re.compile(r"\{(\w+)(?::\w+)?\}")


@dataclass(frozen=True)
class Server:
    """An application whose database is behind a proxy, an administrator's client, and things for every route."""

    app: FastAPI
    runtime: Runtime
    proxy: PostgresProxy
    client: httpx.AsyncClient
    browser: Browser
    things: dict[str, str]

    def address(self, path: str) -> str:
        """A route's address, with a thing that is there for each of its parts."""
        return _PART.sub(lambda found: self.things.get(found[1], "x"), path)


@asynccontextmanager
async def _server(proxy: PostgresProxy, home: Path, world: SignInWorld, **changed: Any) -> AsyncIterator[Server]:
    home.mkdir(exist_ok=True)
    settings = ApiSettings(
        home=home, local_gpus="h100:4", secrets_key_file=ensure_key_file(home), database_pool=5, token_cache_s=60,
        auth=world.settings, **changed,
    )  # fmt: skip
    async with AsyncExitStack() as stack:
        runtime = await stack.enter_async_context(open_runtime(settings, proxy.url))
        app = create_app(runtime, settings, open_sign_in(settings, runtime, world.network))
        await stack.enter_async_context(app.router.lifespan_context(app))
        secret = await _administrator(runtime)
        transport = httpx.ASGITransport(app)
        headers = {"Authorization": f"Bearer {secret}"}
        client = httpx.AsyncClient(transport=transport, base_url="http://api", headers=headers)
        pages = httpx.AsyncClient(transport=transport, base_url="http://pages", headers={"Accept": "text/html"})
        await stack.enter_async_context(client)
        await stack.enter_async_context(pages)
        assert (await pages.post("/sign-in", data={"token": secret})).status_code == 303
        things = await _things(runtime, client)
        yield Server(app, runtime, proxy, client, Browser(pages), {**things, "secret": secret})


async def _administrator(runtime: Runtime) -> str:
    now = runtime.clock.now()
    secret = runtime.ids.new_secret()
    async with runtime.uow() as uow:
        user = await uow.identities.create_user("root", Role.ADMIN, now)
        token = runtime.ids.new_id("tok")
        await uow.identities.create_token(token, user.id, "root", runtime.ids.digest(secret), None, now)
    return secret


async def _things(runtime: Runtime, client: httpx.AsyncClient) -> dict[str, str]:
    await update_inventory(runtime.uow, runtime.cluster, runtime.clock)
    pod = UnknownPod(POD, "job-nobody", None, None, "The ledger has no reservation of this name.", runtime.clock.now())
    async with runtime.uow() as uow:
        await uow.unknown_pods.report([pod])
        [node] = await uow.inventory.nodes(after=None, limit=1)
    for name in ("alice", "bob"):
        assert (await client.post("/v1/users", json={"name": name})).is_success
    assert (await client.post("/v1/projects", json={"name": "vision"})).is_success
    assert (await client.put("/v1/projects/vision/members/alice")).is_success
    assert (await client.put("/v1/policy/project:vision", json={"max_gpus": 9})).is_success
    job = await submitted(client)
    token = (await client.post("/v1/tokens", json={"name": "spare"})).json()
    hook = {"channel": "webhook", "address": "https://hooks.example.org/root"}
    target = (await client.post("/v1/notifications/targets", json=hook)).json()
    booking = (await client.post("/v1/bookings", json=asked(at(5), duration=60, wait=True))).json()
    key = (await client.post("/v1/keys", json={"public_key": PUBLIC_KEY})).json()
    await client.put("/v1/secrets/HF_TOKEN", json={"value": "v"})
    feed = (await client.post("/v1/bookings/feed")).json()["path"].partition("token=")[2]
    return {
        "job_id": job["id"],
        "booking_id": booking["id"],
        "token_id": token["id"],
        "token": token["id"],
        "key_id": key["id"],
        "key": key["id"],
        "secret": "HF_TOKEN",
        "project": "vision",
        "scope": "project:vision",
        "user": "alice",
        "target_id": target["id"],
        "target": target["id"],
        "window_id": "mnt-zzzzzzzz",
        "window": "mnt-zzzzzzzz",
        "name": "bob",
        "queue": "gpu_jobs",
        "node": node.name,
        "index": "0",
        "pod": POD,
        "feed": feed,
    }


@pytest.fixture
def proxy(database_url: str) -> Any:
    """A way to this test's database."""
    with PostgresProxy(database_url) as running:
        yield running


@pytest.fixture
async def server(proxy: PostgresProxy, tmp_path: Path, world: SignInWorld) -> AsyncIterator[Server]:
    """As in earnest, but that it has five connections and remembers tokens for a minute."""
    async with _server(proxy, tmp_path / "home", world) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def _for_all_errors(
    module_database_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Server, SignInWorld]]:
    folder = tmp_path_factory.mktemp("database-answers")
    with PostgresProxy(module_database_url) as proxy:
        async with sign_in_world(folder) as world, _server(proxy, folder / "home", world) as running:
            yield running, world


@pytest_asyncio.fixture(loop_scope="module")
async def shared(_for_all_errors: tuple[Server, SignInWorld]) -> AsyncIterator[tuple[Server, SignInWorld]]:
    """The same, one for all SQLSTATEs: each leaves it well. Some of its things are gone, which no error asks for."""
    yield _for_all_errors
    server, _ = _for_all_errors
    server.proxy.heal()
    await eventually(lambda: _is_ready(server))


Sending = Callable[[], Awaitable[httpx.Response]]


_BYTES = {"Content-Type": "application/octet-stream"}


def rest_requests(server: Server) -> dict[tuple[str, str], Sending]:
    """A request for each operation of REST, such that it needs the database. Fails when one is missing."""
    login = {}
    more = {("POST", "/v1/login"): login}
    found: dict[tuple[str, str], Sending] = {}
    for route in server.app.router.routes:
        if isinstance(route, WebSocketRoute) or route.path in WEB_SOCKETS:
            continue
        assert isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}:
            if route.path in PAGES or route.path in NEVER_UNAVAILABLE:
                continue
            call = CALLS.get((method, route.path))
            address = server.address(route.path) + ("" if call is None else call.query)
            if route.path == "/v1/bookings.ics":
                address += f"?token={server.things['feed']}"
            body = more.get((method, route.path)) if call is None else call.body
            if route.path == "/v1/tokens/renew":
                body = {"token": server.things["secret"]}
            if route.path == "/v1/maintenance" and method == "POST":
                body = {**body, "node": server.things["node"]}

            def send(method: str = method, address: str = address, body: Any = body) -> Awaitable[httpx.Response]:
                if address == "/v1/uploads":
                    chunk = framed(sha256(b"chunk").digest(), b"chunk")
                    return server.client.request(method, address, content=chunk, headers=_BYTES)
                return server.client.request(method, address, json=body)

            found[method, route.path] = send
    assert found.keys() >= {call for call in CALLS if call[1] not in WEB_SOCKETS}
    return found


def assert_unavailable(answer: httpx.Response, which: object) -> None:
    """What a client is told of a database that will be back: 503, why, and when to come again."""
    assert answer.status_code == 503, (which, answer.status_code, answer.text[:500])
    assert int(answer.headers["retry-after"]) >= 1, which
    if answer.headers["content-type"].startswith("text/html"):
        return
    assert answer.headers["content-type"] == "application/problem+json", which
    assert answer.json()["type"] == "urn:gpu-dev:problem:database_unavailable", which


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("sqlstate", SQLSTATES)
async def test_every_operation_says_503_and_works_again(shared: tuple[Server, SignInWorld], sqlstate: str) -> None:
    server, world = shared
    requests = rest_requests(server)
    del requests["POST", "/v1/login"]
    await server.client.get("/v1/users/me")  # from now on the token is known
    server.proxy.answer(sqlstate)
    for which, send in requests.items():
        assert_unavailable(await send(), which)
    proof = by_id_token(world.issuer.token(world.issuer.claims(server.runtime.clock.now())))
    assert_unavailable(await server.client.post("/v1/login", json=proof), "login")
    for path in NEVER_UNAVAILABLE:
        assert (await server.client.get(path)).status_code == 200, path
    await eventually(lambda: _metric(server, "gpu_dev_database_up 0.0"))
    await eventually(lambda: _not_ready_says_since_when(server))
    assert (await _stranger(server)).status_code == 503

    server.proxy.heal()
    await eventually(lambda: _is_ready(server))
    for which, send in requests.items():
        if not which[1].endswith("/events"):  # this one lasts as long as its job
            assert (await send()).status_code < 500, which
    assert (await server.client.post("/v1/login", json=proof)).status_code == 201
    assert (await server.client.post("/v1/jobs", json=JOB)).status_code == 202


async def _stranger(server: Server) -> httpx.Response:
    """Somebody whose token is not known yet."""
    return await server.client.get("/v1/jobs", headers={"Authorization": "Bearer gpudev_never-seen"})


async def _metric(server: Server, line: str) -> bool:
    return line in (await server.client.get("/metrics")).text


async def _not_ready_says_since_when(server: Server) -> bool:
    """What fails, since when, and why."""
    answer = await server.client.get("/readyz")
    return answer.status_code == 503 and "failing since 20" in answer.json()["detail"]


async def _is_ready(server: Server) -> bool:
    return (await server.client.get("/readyz")).status_code == 200


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("sqlstate", SQLSTATES)
async def test_every_page_says_503_and_works_again(shared: tuple[Server, SignInWorld], sqlstate: str) -> None:
    server, _ = shared
    token = await server.browser.token("/jobs")
    client = server.browser.client
    form = {"csrf_token": token, "by": "1h", "title": "mine", "start": "2030-01-01T00:00", "duration": "1h"}
    form |= {"gpus": "1", "name": "carol", "user": "carol", "scope": "default", "zone": "UTC", "channel": "slack"}
    form |= {"address": "https://hooks.example.org/x", "command": "true", "reason": "Fans.", "role": "user"}
    form |= {"node": server.things["node"], "code": "code-00000000", "token": server.things["secret"]}
    form |= {"booking": server.things["booking_id"], "length": "1h"}
    routes = [
        (method, route.path)
        for route in server.app.router.routes
        if isinstance(route, Route) and route.path in PAGES
        for method in (route.methods or set()) - {"HEAD"}
        if (method, route.path) not in PAGES_WITHOUT_DATABASE
    ]

    parts = {route.path: {"HX-Request": "true"} for route in WEB_ROUTES if route.part_of is not None}

    async def send(method: str, path: str, **fields: str) -> httpx.Response:
        query = "?topics=job:" + server.things["job_id"] if path == "/live" else ""
        sent = form | fields if method == "POST" else None
        return await client.request(method, server.address(path) + query, data=sent, headers=parts.get(path))

    server.proxy.answer(sqlstate)
    for which in routes:
        # With fields that are wrong a form is drawn again, without the database.
        wrong = {"gpus": "", "max_gpus": "8"} if which[1].startswith("/admin/policy") else {}
        assert_unavailable(await send(*which, **wrong), which)

    server.proxy.heal()
    await eventually(lambda: _is_ready(server))
    assert (await client.get("/jobs")).status_code == 200


async def test_what_fails_at_the_commit_is_unavailable_too(server: Server) -> None:
    """Of a disk that is full, or of a serialisation, one may hear with the last word only."""
    requests = rest_requests(server)
    del requests["POST", "/v1/login"]
    await server.client.get("/v1/users/me")
    refused = set()
    for sqlstate in ("53100", "40001"):
        server.proxy.answer(sqlstate, only=b"COMMIT")
        for which, send in requests.items():
            if which[1].endswith("/events"):
                continue
            answer = await send()
            assert answer.status_code < 500 or answer.status_code == 503, (which, answer.text)
            if answer.status_code == 503:
                assert_unavailable(answer, which)
                refused.add(which)
    # All that writes, but for what is a statement of its own.
    assert {method for method, _ in refused} >= {"POST", "PUT", "PATCH", "DELETE"}
    assert len(refused) > len(requests) / 2
    server.proxy.heal()
    assert (await server.client.post("/v1/tokens", json={"name": "again"})).status_code == 201


KINDS: dict[str, Callable[[Server], Awaitable[httpx.Response]]] = {
    "submit": lambda server: server.client.post("/v1/jobs", json=JOB),
    "write": lambda server: server.client.post("/v1/tokens", json={"name": "one"}),
    "read": lambda server: server.client.get(f"/v1/jobs/{server.things['job_id']}"),
    "list": lambda server: server.client.get("/v1/jobs"),
    "page": lambda server: server.browser.client.get("/jobs"),
    "feed": lambda server: server.client.get(f"/v1/bookings.ics?token={server.things['feed']}"),
    "stranger": lambda server: _stranger(server),
}


async def _ask_all(server: Server) -> dict[str, httpx.Response]:
    """One of each kind at once; what never comes back fails the test."""
    async with asyncio.timeout(PATIENCE_S):
        answers = await asyncio.gather(*(ask(server) for ask in KINDS.values()))
    return dict(zip(KINDS, answers, strict=True))


async def _all_served(server: Server) -> bool:
    return all(answer.status_code < 500 for answer in (await _ask_all(server)).values())


@pytest.mark.parametrize("how", [PostgresProxy.stall, PostgresProxy.half_open, PostgresProxy.reset])
async def test_connections_that_are_dead_hold_nobody_up(server: Server, how: Callable[[PostgresProxy], None]) -> None:
    await eventually(lambda: _all_served(server))
    how(server.proxy)
    for which, answer in (await _ask_all(server)).items():
        assert answer.status_code < 500 or answer.status_code == 503, (which, answer.text)
        if answer.status_code == 503:
            assert_unavailable(answer, which)
    await eventually(lambda: _all_served(server))


async def test_a_database_that_is_silent_altogether_holds_nobody_up(server: Server) -> None:
    await eventually(lambda: _all_served(server))
    server.proxy.stall(new=True)
    for _ in range(2):  # the second time no connection is left
        for which, answer in (await _ask_all(server)).items():
            assert_unavailable(answer, which)
    server.proxy.heal()
    await eventually(lambda: _all_served(server))
