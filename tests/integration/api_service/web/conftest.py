"""Browsers without scripts: cookies, forms and redirects over the real application."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import httpx
import pytest
from fastapi import FastAPI

from tests.integration.api_service.callers import People
from tests.integration.api_service.web.browsing import Browser

SignedIn = Callable[[str], Awaitable[Browser]]


@pytest.fixture
async def browsing(app: FastAPI, people: People) -> AsyncIterator[SignedIn]:
    """A browser of somebody who has signed in; of nobody for `anonymous`."""
    async with AsyncExitStack() as stack:

        async def browser(who: str) -> Browser:
            client = httpx.AsyncClient(
                transport=httpx.ASGITransport(app), base_url="http://pages", headers={"Accept": "text/html"}
            )
            await stack.enter_async_context(client)
            opened = Browser(client)
            secret = people.secrets[who]
            if secret is not None:
                response = await opened.client.post("/sign-in", data={"token": secret})
                assert response.status_code == 303, response.text
            return opened

        yield browser
