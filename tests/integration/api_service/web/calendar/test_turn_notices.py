"""A booking on the waitlist says whether its owner is notified of its turn, and how to be."""

from typing import Any

import httpx
import pytest

from reservation_core.ports.people.notices import NoticeRoutes
from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import asked, at, booked
from tests.integration.api_service.web.browsing import words
from tests.integration.api_service.web.conftest import SignedIn

NOWHERE = "You are not notified of it: you have no notification address. Choose how you are notified"
NO_KIND = "You are not notified of it: none of your notification addresses gets this kind of event."
NOTIFIED = "You are notified when its GPUs become free."


async def waiting(alice: httpx.AsyncClient, bob: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    """A booking of alice's on the waitlist."""
    await booked(bob, at(3), gpus=4, gpu_type="h100")
    answer = await alice.post("/v1/bookings", json=asked(at(3), gpus=1, gpu_type="h100", wait=True, **fields))
    assert answer.status_code == 202, answer.text
    made: dict[str, Any] = answer.json()
    return made


@pytest.mark.usefixtures("lab")
@pytest.mark.parametrize(("auto_accept", "kind"), [(False, "offered"), (True, "confirmed")])
async def test_nobody_is_said_to_be_notified_who_is_not(
    browsing: SignedIn, alice: httpx.AsyncClient, bob: httpx.AsyncClient, auto_accept: bool, kind: str
) -> None:
    made = await waiting(alice, bob, auto_accept=auto_accept)
    assert "notified" not in made["reason"]["detail"]
    browser = await browsing("alice")

    async def page() -> str:
        return words(await browser.get(f"/bookings/{made['id']}"))

    shown = await page()
    assert NOWHERE in shown
    await alice.post("/v1/notifications/targets", json={"channel": "slack", "address": "https://hooks.example.org/x"})
    assert NOTIFIED in (shown := await page())
    assert "not notified" not in shown
    await alice.put("/v1/notifications/preferences", json={"kinds": {kind: ["email"]}})
    assert NO_KIND in await page()
    others = words(await (await browsing("root")).get(f"/bookings/{made['id']}"))
    assert "notified" not in others, "it is not the administrator who waits"


@pytest.mark.usefixtures("lab")
async def test_an_address_of_mail_is_none_without_a_mail_server(
    browsing: SignedIn, alice: httpx.AsyncClient, bob: httpx.AsyncClient, runtime: Runtime
) -> None:
    made = await waiting(alice, bob)
    await alice.post("/v1/notifications/targets", json={"channel": "email", "address": "alice@example.org"})
    browser = await browsing("alice")
    assert NO_KIND in words(await browser.get(f"/bookings/{made['id']}")), "it is not confirmed yet"
    async with runtime.uow() as uow:
        await uow.notices.set_routes(NoticeRoutes(False, (), public=True))
    assert (await alice.get("/v1/notifications/preferences")).json()["unavailable"] == ["email"]
    assert NO_KIND in words(await browser.get(f"/bookings/{made['id']}"))
