"""Preview of the users whom rules would affect, before the rules are stored."""

import httpx
import pytest

from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import add_nodes, at, booked, execute
from tests.integration.api_service.callers import submitted

DRY = {"dry_run": "true"}


@pytest.fixture(autouse=True)
async def lab(runtime: Runtime) -> None:
    """`a` has four h100."""
    await add_nodes(runtime, a=("h100", 4))


async def test_whom_rules_would_affect_is_told_and_nothing_is_stored(
    root: httpx.AsyncClient, alice: httpx.AsyncClient, bob: httpx.AsyncClient, runtime: Runtime
) -> None:
    await root.post("/v1/projects", json={"name": "vision"})
    await root.put("/v1/projects/vision/members/alice")
    large = await booked(alice, gpus=3, project="vision")
    small = await booked(bob, gpus=1)
    later = await booked(bob, at(3), gpus=2)
    waits = await submitted(bob, gpus=4)
    before = (await execute(runtime, "SELECT (SELECT count(*) FROM events), (SELECT revision FROM policy_state)")).one()
    answer = await root.put("/v1/policy/default", json={"max_gpus": 2}, params=DRY)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {
        "scope": "default",
        "rules": answer.json()["rules"],
        "users": {"count": 2, "names": ["alice", "bob"]},
        "projects": {"count": 1, "names": ["vision"]},
        "running": {"count": 0, "names": []},
        "waiting": {"count": 1, "names": [waits["id"]]},
        "bookings": {"count": 1, "names": [large["id"]]},
        "broken_rules": {"max_gpus": 2},
    }
    assert answer.json()["rules"]["max_gpus"] == 2
    after = (await execute(runtime, "SELECT (SELECT count(*) FROM events), (SELECT revision FROM policy_state)")).one()
    assert tuple(after) == tuple(before)
    assert (await root.get("/v1/policy/default")).status_code == 404
    # No job or booking is affected by what holds already, nor by what allows more.
    assert (await root.put("/v1/policy/default", json={"max_gpus": 1})).status_code == 200
    again = await root.put("/v1/policy/default", json={"max_gpus": 2}, params=DRY)
    assert again.json()["broken_rules"] == {}
    tighter = await root.put("/v1/policy/user:bob", json={"max_open_bookings": 1}, params=DRY)
    assert tighter.json()["bookings"] == {"count": 2, "names": sorted([small["id"], later["id"]])}


async def test_a_preview_is_refused_as_the_change_is(root: httpx.AsyncClient, alice: httpx.AsyncClient) -> None:
    rules = {"max_gpus": 2}
    assert (await alice.put("/v1/policy/default", json=rules, params=DRY)).status_code == 403
    assert (await root.put("/v1/policy/user:nobody", json=rules, params=DRY)).status_code == 404
    assert (await root.put("/v1/policy/default", json={"max_gpus": -1}, params=DRY)).status_code == 422
    assert (await root.put("/v1/policy/default", json=rules)).headers["etag"] == '"1"'
    stale = await root.put("/v1/policy/default", json=rules, params=DRY, headers={"If-Match": '"7"'})
    assert stale.status_code == 412


async def test_names_are_bounded(root: httpx.AsyncClient, runtime: Runtime) -> None:
    for _ in range(101):
        await submitted(root, gpus=4)
    found = (await root.put("/v1/policy/default", json={"max_gpus": 2}, params=DRY)).json()
    assert (found["waiting"]["count"], len(found["waiting"]["names"]), found["users"]["count"]) == (101, 100, 1)
