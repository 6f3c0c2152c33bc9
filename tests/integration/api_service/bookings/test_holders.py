"""By whom cards are held and booked is told to whom the operator chooses, by every route alike."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from reservation_core.runtime.settings.components import ApiSettings, Holders
from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import add_nodes, asked, at, booked, booked_now, execute, ledger
from tests.integration.api_service.callers import People, submitted

MODES = list(Holders)
SHOWN = {
    # Whether bob, who is in a project with alice, and dave, who is in none, see her name.
    Holders.EVERYONE: (True, True),
    Holders.MEMBERS: (True, False),
    Holders.SELF: (False, False),
}


@pytest.fixture(params=MODES)
def holders(request: pytest.FixtureRequest) -> Holders:
    """Each choice there is."""
    found: Holders = request.param
    return found


@pytest.fixture
def settings(holders: Holders) -> ApiSettings:
    """As the operator chose."""
    return ApiSettings(holders=holders)


@pytest.fixture
async def dave(runtime: Runtime, people: People) -> None:
    """Somebody who is in no project; alice and bob are in one."""
    now = runtime.clock.now()
    async with runtime.uow() as uow:
        user = await uow.identities.create_user("dave", people.principals["bob"].role, now)
        secret = people.secrets["dave"] = runtime.ids.new_secret()
        digest = runtime.ids.digest(secret)
        await uow.identities.create_token(runtime.ids.new_id("tok"), user.id, None, digest, None, now)
        await uow.projects.create("vision", None, now)
        for name in ("alice", "bob"):
            await uow.projects.add_member("vision", people.principals[name].user_id)


@pytest.fixture
async def hers(dave: None, runtime: Runtime, alice: httpx.AsyncClient) -> dict[str, Any]:
    """What alice holds: a booking in its slot, with a card; another ahead; and a place on the waitlist."""
    await add_nodes(runtime, a=("h100", 1))
    held = await booked_now(alice, title="secret plan")
    ahead = await booked(alice, at(9), title="secret plan")
    waits = (await alice.post("/v1/bookings", json=asked(at(9), wait=True, title="secret plan"))).json()
    await execute(
        runtime, "UPDATE reservations SET status = 'active', started_at = now() WHERE id = :id", id=held["id"]
    )
    return {"held": held, "ahead": ahead, "waits": waits}


Calling = Callable[[str], httpx.AsyncClient]


async def test_bookings(hers: dict[str, Any], calling: Calling, holders: Holders) -> None:
    for who, shown in (("bob", SHOWN[holders][0]), ("dave", SHOWN[holders][1]), ("alice", True), ("root", True)):
        items = (await calling(who).get("/v1/bookings")).json()["items"]
        taking = [gpu for gpu in items if gpu["id"] in (hers["held"]["id"], hers["ahead"]["id"])]
        assert [gpu["user"] for gpu in taking] == ["alice" if shown else None] * 2, who
        assert all(gpu["allocations"] and gpu["start"] and gpu["end"] for gpu in taking)
        theirs = who in ("alice", "root")
        assert all((gpu["title"] == "secret plan") == theirs for gpu in taking)
        # The list of one user's bookings tells no more than their names do.
        narrowed = (await calling(who).get("/v1/bookings", params={"user": "alice"})).json()["items"]
        assert bool(narrowed) == shown, who
        assert (await calling(who).get(f"/v1/bookings/{hers['ahead']['id']}")).status_code == (200 if theirs else 404)


async def test_one_sees_ones_own_whatever_the_choice(hers: dict[str, Any], calling: Calling) -> None:
    mine = (await calling("alice").get("/v1/bookings", params={"user": "alice"})).json()["items"]
    assert {gpu["user"] for gpu in mine} == {"alice"}
    assert {gpu["id"] for gpu in mine} == {gpu["id"] for gpu in hers.values()}


async def test_cards(hers: dict[str, Any], calling: Calling, holders: Holders) -> None:
    for who, shown in (("bob", SHOWN[holders][0]), ("dave", SHOWN[holders][1]), ("alice", True), ("root", True)):
        [card] = (await calling(who).get("/v1/gpus")).json()["items"]
        told = (hers["held"]["id"], "alice") if shown else (None, None)
        assert (card["holder"]["id"], card["holder"]["user"]) == told, who
        assert card["holder"]["yours"] == (who == "alice")
        assert card["free_at"] is not None


async def test_what_has_no_holders_names_none(hers: dict[str, Any], calling: Calling, holders: Holders) -> None:
    """Whatever the choice: how much is free, the nodes, the line, usage and maintenance are not about persons."""
    paths = ("/v1/availability", "/v1/nodes", "/v1/queue", "/v1/usage", "/v1/maintenance", "/v1/jobs")
    slots = "/v1/bookings/slots?gpus=1&duration=PT1H"
    for who in ("bob", "dave"):
        for path in (*paths, slots):
            answer = await calling(who).get(path)
            assert answer.status_code == 200, path
            assert "alice" not in answer.text
            assert "secret plan" not in answer.text


async def test_the_waitlist_and_events_are_ones_own(hers: dict[str, Any], calling: Calling, holders: Holders) -> None:
    waits = hers["waits"]["id"]
    for who in ("bob", "dave"):
        waiting = (await calling(who).get("/v1/bookings", params={"status": "waiting"})).json()["items"]
        assert waiting == []
        for path in (f"/v1/bookings/{waits}/accept", f"/v1/bookings/{waits}/decline"):
            answer = await calling(who).post(path)
            assert answer.status_code == 404
            assert "alice" not in answer.text
        assert (await calling(who).get("/v1/jobs/job-abc/events")).status_code == 404


async def test_what_became_of_a_workload_is_told_to_whom_it_is(
    hers: dict[str, Any], calling: Calling, holders: Holders, runtime: Runtime
) -> None:
    await execute(
        runtime,
        "UPDATE reservations SET reason_code = 'workload_refused' WHERE id = :id",
        id=hers["held"]["id"],
    )
    for who, code in (("alice", "workload_refused"), ("root", "workload_refused"), ("bob", "in_slot")):
        items = (await calling(who).get("/v1/bookings")).json()["items"]
        assert [gpu["reason"]["code"] for gpu in items if gpu["id"] == hers["held"]["id"]] == [code], who


async def test_who_is_in_a_jobs_way_is_told_to_who_sees_everybody(
    hers: dict[str, Any], calling: Calling, holders: Holders, runtime: Runtime
) -> None:
    job = (await submitted(calling("dave")))["id"]
    await execute(
        runtime,
        "INSERT INTO events (reservation_id, at, actor, kind, data) VALUES (:id, now(), 'planner', "
        """'start_promise_missed', '{"late": ["bkg-x", "job-y"]}')""",
        id=job,
    )
    assert (await calling("dave").post(f"/v1/jobs/{job}/cancel")).status_code in (200, 202)
    for who, told in (("dave", holders is Holders.EVERYONE), ("root", True)):
        stream = (await calling(who).get(f"/v1/jobs/{job}/events")).text
        assert ('"late":["bkg-x","job-y"]' in stream) == told, who
        assert ('"late":[null,null]' in stream) != told, who


async def test_who_is_refused_is_not_told_who_has_it(hers: dict[str, Any], calling: Calling, holders: Holders) -> None:
    for who in ("bob", "dave"):
        refused = await calling(who).post("/v1/bookings", json=asked(at(9)))
        assert refused.status_code == 409
        mine = await booked(calling(who), at(5 if who == "bob" else 7))
        longer = await calling(who).patch(f"/v1/bookings/{mine['id']}", json={"end": at(10).isoformat()})
        assert longer.status_code == 409
        assert "alice" not in refused.text + longer.text
        assert hers["ahead"]["id"] not in refused.text + longer.text


async def test_an_extension_that_meets_somebody_names_them_to_whom_it_may(
    hers: dict[str, Any], calling: Calling, holders: Holders, runtime: Runtime, people: People
) -> None:
    job = await submitted(calling("dave"))
    [card] = await ledger(runtime, hers["held"]["id"])
    assert card
    async with runtime.uow() as uow:
        gpus = await uow.bookings.cards(at(9), at(10))
    # It runs until alice's booking begins.
    await execute(
        runtime,
        "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at) "
        "VALUES (:id, 1, :gpu, 0, tstzrange(:start, :end), true, :start)",
        id=job["id"], gpu=gpus[0].gpu_id, start=at(5), end=at(9),
    )  # fmt: skip
    await execute(
        runtime,
        "UPDATE reservations SET status = 'running', attempt = 1, started_at = :start, ends_at = :end, "
        "range_end = :end WHERE id = :id",
        id=job["id"], start=at(5), end=at(9),
    )  # fmt: skip
    refused = await calling("dave").post(f"/v1/jobs/{job['id']}/extend", json={"by": "PT1H"})
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:gpu-dev:problem:calendar_conflict")
    told = f"given to {hers['ahead']['id']} of alice" if SHOWN[holders][1] else "given to somebody else"
    assert told in refused.json()["detail"]
    assert ("alice" in refused.text) == SHOWN[holders][1]


async def test_so_does_a_booking_that_has_begun(
    hers: dict[str, Any], calling: Calling, holders: Holders, runtime: Runtime
) -> None:
    mine = await booked(calling("dave"), at(7), duration="PT2H")
    # As if it had begun.
    await execute(
        runtime,
        "UPDATE reservations SET status = 'active', started_at = now() WHERE id = :id",
        id=mine["id"],
    )
    for query in ("", "?dry_run=true"):
        refused = await calling("dave").patch(f"/v1/bookings/{mine['id']}{query}", json={"end": at(10).isoformat()})
        assert (refused.status_code, refused.json()["type"]) == (409, "urn:gpu-dev:problem:not_bookable")
        told = f"given to {hers['ahead']['id']} of alice" if SHOWN[holders][1] else "given to somebody else"
        assert told in refused.json()["detail"]
        assert ("alice" in refused.text) == SHOWN[holders][1]


async def test_who_leaves_the_project_sees_less_at_once(
    hers: dict[str, Any], calling: Calling, holders: Holders, runtime: Runtime, people: People
) -> None:
    async with runtime.uow() as uow:
        await uow.projects.remove_member("vision", people.principals["bob"].user_id)
    [card] = (await calling("bob").get("/v1/gpus")).json()["items"]
    assert (card["holder"]["user"] == "alice") == (holders is Holders.EVERYONE)
