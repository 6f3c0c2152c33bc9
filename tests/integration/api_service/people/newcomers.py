"""Servers that let people in by proofs, and clients of these without a token."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from api_service.app import create_app
from reservation_core.runtime.reading.sign_in import open_sign_in
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.wiring import Runtime
from tests.people.sign_in_world import SignInWorld


@asynccontextmanager
async def served(runtime: Runtime, world: SignInWorld, **changed: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A server with the world's settings and these, and a client without a token."""
    settings = ApiSettings(auth=world.settings.model_copy(update=changed))
    app = create_app(runtime, settings, open_sign_in(settings, runtime, world.network))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as client,
    ):
        yield client


def by_id_token(token: str) -> dict[str, Any]:
    """The body of a sign-in with one."""
    return {"method": "oidc", "id_token": token}
