"""Everybody who looks at one view of the calendar shares its free counts, and nothing else."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from reservation_core.adapters.postgres.bookings.bookings import Bookings
from reservation_core.runtime.settings.components import ApiSettings, Holders
from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import add_nodes, at, booked
from tests.integration.api_service.web.browsing import Browser
from tests.integration.api_service.web.conftest import SignedIn


@pytest.fixture(autouse=True)
async def lab(runtime: Runtime) -> None:
    """A node of four GPUs."""
    await add_nodes(runtime, titan=("h100", 4))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows with each read of all GPUs."""
    read, counted = Bookings.cards, list[str]()

    async def cards(self: Bookings, *given: Any, **more: Any) -> Any:
        counted.append("read")
        return await read(self, *given, **more)

    monkeypatch.setattr(Bookings, "cards", cards)
    return counted


async def look(browser: Browser) -> dict[str, Any]:
    response = await browser.client.get(f"/calendar/events?by=node&from={at(20):%Y-%m-%d}")
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def least(found: dict[str, Any]) -> int:
    return min(count for _, _, count, _ in found["free"]["titan"])


def drawn(found: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """Title, whose it is, and whether it can be dragged, of each entry."""
    return sorted((event["title"], event["classNames"][1], "startEditable" in event) for event in found["events"])


async def test_counts_are_shared_and_each_sees_what_is_theirs(
    browsing: SignedIn, alice: httpx.AsyncClient, bob: httpx.AsyncClient, settings: ApiSettings, reads: list[str]
) -> None:
    settings.holders = Holders.SELF
    await booked(alice, at(30), gpu_type="h100", title="plans of alice")
    await booked(bob, at(31), gpu_type="h100", title="plans of bob")
    browsers = [await browsing(who) for who in ("alice", "bob", "root", "alice")]
    reads.clear()
    alices, bobs, roots, again = await asyncio.gather(*(look(browser) for browser in browsers))
    one_by_one = [await look(browser) for browser in browsers]
    assert len(reads) == 1
    assert drawn(alices) == drawn(again) == [("plans of alice", "mine", True), ("taken", "others", False)]
    assert drawn(bobs) == [("plans of bob", "mine", True), ("taken", "others", False)]
    assert drawn(roots) == [("alice", "others", False), ("bob", "others", False)]
    for found, other in ((alices, "bob"), (bobs, "alice"), (roots, "plans")):
        assert other not in json.dumps(found)
    for found, before in zip(one_by_one, (alices, bobs, roots, again), strict=True):
        assert (drawn(found), found["free"]) == (drawn(before), alices["free"])
    # Each sees more as soon as the policy says so.
    settings.holders = Holders.EVERYONE
    assert [title for title, *_ in drawn(await look(browsers[0]))] == ["bob", "plans of alice"]


async def test_every_change_is_seen_by_the_next_who_looks(
    browsing: SignedIn, alice: httpx.AsyncClient, root: httpx.AsyncClient, reads: list[str]
) -> None:
    browser, other = await browsing("alice"), await browsing("bob")
    assert least(await look(browser)) == 4

    made = await booked(alice, at(30), gpus=3, gpu_type="h100")
    assert least(await look(other)) == 1

    address, etag = f"/v1/bookings/{made['id']}", (await alice.get(f"/v1/bookings/{made['id']}")).headers["etag"]
    moved = await alice.patch(address, json={"start": at(40).isoformat()}, headers={"If-Match": etag})
    assert moved.status_code == 200, moved.text
    before = await look(other)
    assert least(before) == 1
    assert [event["start"] for event in before["events"]] == [f"{at(40):%Y-%m-%dT%H:%M:%S}"]

    assert (await alice.delete(address)).status_code == 200
    assert least(await look(other)) == 4

    assert (await root.post("/v1/nodes/titan/cordon", json={"reason": "A fan is loud."})).status_code == 200
    assert least(await look(browser)) == 0
    assert (await root.post("/v1/nodes/titan/uncordon")).status_code == 200
    assert least(await look(browser)) == 4

    window = {"node": "titan", "start": at(50).isoformat(), "duration": "PT1H", "reason": "Fans."}
    assert (await root.post("/v1/maintenance", json=window)).status_code == 201
    assert least(await look(browser)) == 0

    # Nothing changes any more, and nothing is read again.
    reads.clear()
    assert (await look(browser))["free"] == (await look(other))["free"]
    assert not reads
