"""Wrong tokens are slowed by address, wherever they are sent; right ones from the same address go on working."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from fastapi import FastAPI

from api_service.access import token_pace
from api_service.app import create_app
from reservation_core.runtime.settings.auth import AuthSettings
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.callers import People

BURST = 3
TOO_MANY = "urn:gpu-dev:problem:too_many_wrong_tokens"
HOME, OFFICE, PROXY = "192.0.2.1", "198.51.100.7", "10.0.0.9"
WRONG = {"Authorization": "Bearer gpudev_wrong"}


class Door:
    """The API as clients at different addresses reach it, on a clock that stands still."""

    def __init__(self, app: FastAPI, people: People, monkeypatch: pytest.MonkeyPatch) -> None:
        self.app = app
        self.people = people
        self.now = 1000.0
        monkeypatch.setattr(app.state.services.token_pace, "_now", lambda: self.now)

    async def get(self, address: str, path: str = "/v1/jobs", **headers: str) -> httpx.Response:
        transport = httpx.ASGITransport(self.app, client=(address, 5000))
        async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
            return await client.get(path, headers=headers)

    async def wrong(self, address: str, times: int, path: str = "/v1/jobs", **headers: str) -> list[int]:
        return [(await self.get(address, path, **(WRONG | headers))).status_code for _ in range(times)]

    async def right(self, address: str, who: str = "alice") -> int:
        return (await self.get(address, Authorization=f"Bearer {self.people.secrets[who]}")).status_code


@asynccontextmanager
async def door(
    runtime: Runtime, people: People, monkeypatch: pytest.MonkeyPatch, *proxies: str, cache_s: float = 2.0
) -> AsyncIterator[Door]:
    auth = AuthSettings(wrong_tokens_per_s=0.5, wrong_tokens_burst=BURST)
    app = create_app(runtime, ApiSettings(auth=auth, trusted_proxies=proxies, token_cache_s=cache_s))
    async with app.router.lifespan_context(app):
        yield Door(app, people, monkeypatch)


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/users/me", "/v1/nothing", "/v1/jobs/job-00000000/logs"])
async def test_wrong_tokens_are_429_after_a_few(
    runtime: Runtime, people: People, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    async with door(runtime, people, monkeypatch) as at:
        assert await at.wrong(HOME, BURST + 2, path) == [401] * BURST + [429] * 2
        answer = await at.get(HOME, path, **WRONG)
        assert (answer.json()["type"], answer.headers["retry-after"]) == (TOO_MANY, "2")
        assert await at.wrong(OFFICE, 1, path) == [401]
        at.now += 2
        assert await at.wrong(HOME, 2, path) == [401, 429]


async def test_right_tokens_pass_from_the_same_address(
    runtime: Runtime, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that nobody has seen yet, and those that are looked up again."""
    async with door(runtime, people, monkeypatch, cache_s=0) as at:
        assert await at.right(HOME) == 200
        assert (await at.wrong(HOME, BURST + 5))[-1] == 429
        for _ in range(BURST + 5):
            assert await at.right(HOME) == 200
            assert await at.right(HOME, "bob") == 200
        assert await at.wrong(HOME, 1) == [429]


async def test_nobody_waits_for_long_behind_the_guesses_of_others(
    runtime: Runtime, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with door(runtime, people, monkeypatch) as at:
        monkeypatch.setattr(token_pace, "_PATIENCE_S", 0.01)
        await at.wrong(HOME, BURST)
        pace = at.app.state.services.token_pace
        async with pace._look_ups, pace._look_ups:
            assert await at.right(HOME) == 429
            assert await at.right(OFFICE, "bob") == 200
        assert await at.right(HOME) == 200


async def test_right_tokens_are_not_counted(runtime: Runtime, people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    async with door(runtime, people, monkeypatch, cache_s=0) as at:
        for _ in range(BURST + 5):
            assert await at.right(HOME) == 200
        assert await at.wrong(HOME, BURST + 1) == [401] * BURST + [429]


@pytest.mark.parametrize("who", ["expired", "revoked"])
async def test_tokens_that_are_over_are_wrong_ones(
    runtime: Runtime, people: People, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    async with door(runtime, people, monkeypatch) as at:
        assert [await at.right(HOME, who) for _ in range(BURST + 1)] == [401] * BURST + [429]


async def test_a_request_without_a_token_is_no_guess(
    runtime: Runtime, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with door(runtime, people, monkeypatch) as at:
        for _ in range(BURST + 3):
            assert (await at.get(HOME)).status_code == 401
        assert await at.wrong(HOME, 1) == [401]


async def test_calendar_addresses_are_slowed_and_right_ones_pass(
    runtime: Runtime, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with door(runtime, people, monkeypatch) as at:
        transport = httpx.ASGITransport(at.app, client=(HOME, 5000))
        headers = {"Authorization": f"Bearer {people.secrets['alice']}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://api", headers=headers) as alice:
            path = (await alice.post("/v1/bookings/feed")).json()["path"]
        wrong = "/v1/bookings.ics?token=gpudev_wrong"
        statuses = [(await at.get(HOME, wrong)).status_code for _ in range(BURST + 1)]
        assert statuses == [401] * BURST + [429]
        assert (await at.get(HOME, path)).status_code == 200
        assert await at.wrong(HOME, 1) == [429], "all kinds of tokens count together"


async def test_sessions_of_pages_are_slowed(runtime: Runtime, people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    async with door(runtime, people, monkeypatch) as at:
        # Which cookie it is depends on TLS; the pages read one of these.
        cookie = "gpu_dev_session=gpudev_wrong; __Host-gpu_dev_session=gpudev_wrong"
        answers = [await at.get(HOME, "/account", Cookie=cookie, Accept="text/html") for _ in range(BURST + 1)]
        assert [answer.status_code for answer in answers] == [303] * BURST + [429]
        assert "retry-after" in answers[-1].headers
        assert (await at.get(HOME, "/account", Accept="text/html")).status_code == 303, (
            "without a cookie it is no guess"
        )


async def test_behind_known_proxies_each_client_counts_by_itself(
    runtime: Runtime, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with door(runtime, people, monkeypatch, "10.0.0.0/8") as at:
        for client in (HOME, OFFICE):
            forwarded = {"X-Forwarded-For": client}
            assert await at.wrong(PROXY, BURST + 1, **forwarded) == [401] * BURST + [429]
    async with door(runtime, people, monkeypatch) as at:
        forwarded = [{"X-Forwarded-For": f"192.0.2.{number}"} for number in range(BURST + 1)]
        statuses = [(await at.wrong(PROXY, 1, **headers))[0] for headers in forwarded]
        assert statuses == [401] * BURST + [429], "nobody believes what a client says of itself"


async def test_the_counts_take_bounded_memory(
    runtime: Runtime, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api_service.access.token_pace.MOST_ADDRESSES", 5)
    async with door(runtime, people, monkeypatch) as at:
        for number in range(20):
            await at.wrong(f"192.0.2.{number}", 1)
        assert len(at.app.state.services.token_pace._failures) <= 6
