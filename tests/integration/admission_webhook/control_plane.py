"""A control plane to ask: the API over real HTTP on a real database, with people who book and a service's token."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from api_service.app import create_app
from api_service.server import serve
from reservation_core.domain.statuses import Role
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import add_nodes, booked_now

NOBODY_CAN_SAY = "nobody can say now whether"
"""How a refusal begins where the control plane did not answer in the short time that a review has."""
PATIENCE_S = 120
"""For how long one asks again while that is the answer: on a busy machine it is slower than a review waits."""


@dataclass(frozen=True)
class ControlPlane:
    """Where it is, and the tokens of those who call it."""

    url: str
    tokens: dict[str, str]

    def client(self, name: str) -> httpx.AsyncClient:
        """A client of somebody's."""
        headers = {"Authorization": f"Bearer {self.tokens[name]}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, trust_env=False, timeout=PATIENCE_S)

    async def book(self, name: str, **what: Any) -> dict[str, Any]:
        """A booking that begins now."""
        async with self.client(name) as client:
            return await booked_now(client, **what)


@asynccontextmanager
async def control_plane(runtime: Runtime) -> AsyncIterator[ControlPlane]:
    """With ann@lab.org, bob and cyd, who book, and `gate`, a service; four H100 and four T4."""
    people = {"ann@lab.org": Role.USER, "bob": Role.USER, "cyd": Role.USER, "gate": Role.SERVICE}
    now = runtime.clock.now()
    tokens = {}
    async with runtime.uow() as uow:
        for name, role in people.items():
            user = await uow.identities.create_user(name, role, now)
            tokens[name] = runtime.ids.new_secret()
            digest = runtime.ids.digest(tokens[name])
            await uow.identities.create_token(runtime.ids.new_id("tok"), user.id, name, digest, None, now)
    await add_nodes(runtime, node1=("h100", 4), node2=("t4", 4))
    stop = asyncio.Event()
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    app = create_app(runtime, ApiSettings())
    serving = asyncio.create_task(serve(app, "127.0.0.1:0", stop=stop, ready=listening.set_result))
    try:
        yield ControlPlane((await listening).rstrip("/"), tokens)
    finally:
        stop.set()
        await serving
