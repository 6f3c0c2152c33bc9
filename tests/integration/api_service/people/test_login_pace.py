"""How often one may try to sign in: by where one is, by whose word; and what X-Forwarded-For can't do about it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from api_service.app import create_app
from api_service.server import serve
from reservation_core.runtime.reading.sign_in import open_sign_in
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.people.newcomers import by_id_token
from tests.people.sign_in_world import SignInWorld
from tests.waiting import PATIENCE_S

TOO_MANY = "urn:gpu-dev:problem:too_many_sign_ins"
NOBODY = by_id_token("e30.e30.e30")
PROXY, HOME, OFFICE = "10.0.0.1", "203.0.113.5", "198.51.100.9"


class Door:
    """A server, and whoever comes to it from where they like."""

    def __init__(self, app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self._app = app
        self._now = 1000.0
        monkeypatch.setattr(app.state.services.sign_in_pace, "_now", lambda: self._now)

    def later(self, seconds: float) -> None:
        self._now += seconds

    async def post(self, address: str, *, body: Any = None, forwarded: str | None = None) -> httpx.Response:
        headers = {} if forwarded is None else {"X-Forwarded-For": forwarded}
        transport = httpx.ASGITransport(self._app, client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
            return await client.post("/v1/login", json=NOBODY if body is None else body, headers=headers)

    async def metrics(self) -> str:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self._app), base_url="http://api") as client:
            return (await client.get("/metrics")).text


@asynccontextmanager
async def door(
    runtime: Runtime, world: SignInWorld, monkeypatch: pytest.MonkeyPatch, *proxies: str, **changed: Any
) -> AsyncIterator[Door]:
    """Three tries at once from an address, one a second after that."""
    auth = world.settings.model_copy(update={"address_per_s": 1.0, "address_burst": 3, **changed})
    settings = ApiSettings(auth=auth, trusted_proxies=proxies)
    app = create_app(runtime, settings, open_sign_in(settings, runtime, world.network))
    async with app.router.lifespan_context(app):
        yield Door(app, monkeypatch)


async def test_one_address_is_let_through_so_often(
    runtime: Runtime, world: SignInWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with door(runtime, world, monkeypatch) as at:
        assert [(await at.post(HOME)).status_code for _ in range(4)] == [401, 401, 401, 429]
        refused = await at.post(HOME)
        assert (refused.json()["type"], refused.headers["retry-after"]) == (TOO_MANY, "1")
        assert refused.headers["content-type"] == "application/problem+json"
        assert "from your address" in refused.json()["detail"]
        assert (await at.post(OFFICE)).status_code == 401
        at.later(1)
        assert [(await at.post(HOME)).status_code for _ in range(2)] == [401, 429]
        # An invalid proof counts as well, and is not even read once it is too often.
        assert [(await at.post(OFFICE, body={})).status_code for _ in range(4)] == [422, 422, 422, 429]
        text = await at.metrics()
        for line in (
            'gpu_dev_sign_ins_total{method="oidc",outcome="refused"} 5.0',
            'gpu_dev_sign_ins_total{method="unknown",outcome="too_many"} 4.0',
            'gpu_dev_sign_ins_total{method="unknown",outcome="malformed"} 3.0',
        ):
            assert line in text, line


async def test_saying_to_be_elsewhere_is_of_no_use(
    runtime: Runtime, world: SignInWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with door(runtime, world, monkeypatch) as at:
        with capture_logs() as logs:
            tries = [await at.post(HOME, forwarded=f"192.0.2.{number}") for number in range(6)]
        assert [attempt.status_code for attempt in tries] == [401, 401, 401, 429, 429, 429]
        # The operator of a server behind a proxy is warned, once.
        assert [log["event"] for log in logs if log["log_level"] == "warning"] == ["sign_ins_share_a_bucket"]
    async with door(runtime, world, monkeypatch, "10.0.0.0/8") as at:
        # Nor is it through the proxy, which writes behind it who asked.
        tries = [await at.post(PROXY, forwarded=f"192.0.2.{number}, {HOME}") for number in range(4)]
        assert [attempt.status_code for attempt in tries] == [401, 401, 401, 429]
        # Nor as a proxy of ours, in front or in the middle.
        assert (await at.post(PROXY, forwarded=f"10.0.0.9, {HOME}")).status_code == 429
        assert (await at.post(PROXY, forwarded=f"192.0.2.1, 10.0.0.9, {HOME}")).status_code == 429
        # And past the proxy it is nobody's word.
        assert [(await at.post(OFFICE, forwarded=HOME)).status_code for _ in range(4)] == [401, 401, 401, 429]


async def test_behind_a_proxy_that_is_known_everybody_has_a_bucket_of_their_own(
    runtime: Runtime, world: SignInWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with door(runtime, world, monkeypatch, "10.0.0.0/8") as at:
        for client in (HOME, OFFICE, "2001:db8::1"):
            assert [(await at.post(PROXY, forwarded=client)).status_code for _ in range(4)] == [401, 401, 401, 429]
        # The rest of a network of the new kind is the same somebody.
        assert (await at.post(PROXY, forwarded="2001:db8::ffff:2")).status_code == 429


async def test_many_addresses_can_not_make_us_ask_without_end(
    runtime: Runtime, world: SignInWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with door(runtime, world, monkeypatch, voucher_per_s=0.5, voucher_burst=4) as at:
        tries = [await at.post(f"192.0.2.{number}") for number in range(6)]
        assert [attempt.status_code for attempt in tries] == [401, 401, 401, 401, 429, 429]
        assert (tries[-1].json()["type"], tries[-1].headers["retry-after"]) == (TOO_MANY, "2")
        assert "by oidc" in tries[-1].json()["detail"]
        # Other words are others' matter, and what nobody would be asked for needs no bucket.
        for number in range(6):
            aws = {"method": "aws", "http_method": "GET", "url": "https://evil.example/", "headers": {}}
            assert (await at.post(f"192.0.2.{100 + number}", body=aws)).status_code == 401
        assert 'gpu_dev_sign_ins_total{method="oidc",outcome="too_many"} 2.0' in await at.metrics()


async def test_the_server_itself_believes_no_header(runtime: Runtime, world: SignInWorld) -> None:
    """Over TCP: what the web server says of who is connected is who is connected."""
    auth = world.settings.model_copy(update={"address_per_s": 0.01, "address_burst": 3})
    settings = ApiSettings(auth=auth)
    app = create_app(runtime, settings, open_sign_in(settings, runtime, world.network))
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(app, "127.0.0.1:0", stop=stop, ready=ready.set_result))
    try:
        async with httpx.AsyncClient(base_url=await ready, timeout=PATIENCE_S) as client:
            statuses = [
                (await client.post("/v1/login", json=NOBODY, headers={"X-Forwarded-For": f"192.0.2.{number}",
                                   "Forwarded": f"for=192.0.2.{number}", "X-Real-IP": f"192.0.2.{number}"})).status_code
                for number in range(5)
            ]  # fmt: skip
    finally:
        stop.set()
        await serving
    assert statuses == [401, 401, 401, 429, 429]


def test_settings_have_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_DEV_TRUSTED_PROXIES", "10.0.0.0/8, fd00::/8")
    assert ApiSettings().trusted_proxies == ("10.0.0.0/8", "fd00::/8")
    for name, value in (
        ("GPU_DEV_TRUSTED_PROXIES", "0.0.0.0/0"),
        ("GPU_DEV_TRUSTED_PROXIES", "proxy.example.org"),
        ("GPU_DEV_AUTH__ADDRESS_PER_S", "0"),
        ("GPU_DEV_AUTH__ADDRESS_BURST", "0"),
        ("GPU_DEV_AUTH__VOUCHER_PER_S", "10001"),
        ("GPU_DEV_AUTH__VOUCHER_BURST", "100001"),
    ):
        with monkeypatch.context() as changed:
            changed.setenv(name, value)
            with pytest.raises(ValidationError):
                ApiSettings()
