"""A session that was signed out at one server makes nothing lasting at another, which remembers it for a moment."""

from collections.abc import Awaitable, Callable

import httpx
import pytest

from api_service.app import create_app
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import execute
from tests.integration.api_service.web.browsing import Browser


@pytest.mark.parametrize(("path", "fields"), [("/account/tokens", {"name": "stolen"}), ("/calendar/feed", {})])
async def test_a_session_that_ended_elsewhere_makes_no_token_and_no_calendar_address(
    runtime: Runtime,
    settings: ApiSettings,
    browsing: Callable[[str], Awaitable[Browser]],
    path: str,
    fields: dict[str, str],
) -> None:
    alice = await browsing("alice")
    second = create_app(runtime, settings)
    elsewhere = httpx.AsyncClient(
        transport=httpx.ASGITransport(second), base_url="http://pages", cookies=alice.client.cookies
    )
    async with second.router.lifespan_context(second), elsewhere:
        form = {"csrf_token": await Browser(elsewhere).token("/account"), **fields}
        await alice.send("/sign-out")
        assert (await elsewhere.post(path, data=form)).status_code == 403
    assert (await execute(runtime, "SELECT * FROM tokens WHERE name = 'stolen'")).all() == []
    assert (await execute(runtime, "SELECT * FROM calendar_feeds")).all() == []
