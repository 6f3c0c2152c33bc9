"""A session that was signed out at one server makes no token at another, which still remembers it for a moment."""

import re
from collections.abc import Awaitable, Callable

import httpx

from api_service.app import create_app
from reservation_core.runtime.settings import ApiSettings
from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.people import People
from tests.integration.api_service.web.browsing import Browser


async def test_a_session_that_ended_elsewhere_makes_no_token(
    runtime: Runtime, settings: ApiSettings, people: People, browsing: Callable[[str], Awaitable[Browser]]
) -> None:
    alice = await browsing("alice")
    second = create_app(runtime, settings)
    async with (
        second.router.lifespan_context(second),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(second), base_url="http://pages", cookies=alice.client.cookies
        ) as client,
    ):
        page = await Browser(client).get("/account")
        found = re.search(r'name="csrf_token" value="([0-9a-f]+)"', page)
        assert found is not None
        await alice.send("/sign-out")
        await client.post("/account/tokens", data={"csrf_token": found[1], "name": "stolen"})
    async with runtime.uow() as uow:
        made = await uow.identities.tokens(people.principals["alice"].user_id, after=None, limit=50)
    assert "stolen" not in [token.name for token in made]
