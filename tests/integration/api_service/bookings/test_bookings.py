"""Booking slots over REST: what is given, what is refused and why, who sees what."""

import asyncio
from datetime import timedelta

import httpx
import pytest

from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import (
    HOUR,
    add_nodes,
    asked,
    at,
    booked,
    booked_now,
    execute,
    kinds_of,
    ledger,
    node_report,
    said,
)
from tests.integration.api_service.callers import People


@pytest.fixture(autouse=True)
async def lab(runtime: Runtime) -> None:
    """Two types: `a` has two h100, `b` one t4."""
    await add_nodes(runtime, a=("h100", 2), b=("t4", 1))


async def test_a_booking_has_concrete_cards_from_its_first_minute(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    start = at()
    response = await alice.post(
        "/v1/bookings",
        json=asked(start, gpus=2, gpu_type="h100", title="thesis", workload={"command": ["python", "train.py"]}),
    )
    assert response.status_code == 201
    booking = response.json()
    assert response.headers["location"] == f"/v1/bookings/{booking['id']}"
    assert response.headers["etag"] == '"1"'
    assert booking["allocations"] == [{"node": "a", "gpu_indices": [0, 1], "gpu_uuids": ["GPU-a-0", "GPU-a-1"]}]
    assert (booking["status"], booking["start"], booking["duration"]) == ("confirmed", said(start), "PT1H")
    assert booking["workload"]["command"] == ["python", "train.py"]
    assert (await alice.get(f"/v1/bookings/{booking['id']}")).json() == booking
    assert await ledger(runtime, booking["id"]) == [("a", 0, start, start + HOUR), ("a", 1, start, start + HOUR)]
    assert await kinds_of(runtime, booking["id"]) == ["booking_confirmed"]
    told = await execute(runtime, "SELECT message FROM pgmq.q_gpu_jobs WHERE message ->> 'kind' = 'changed'")
    assert [row.message for row in told] == [{"v": 1, "kind": "changed", "id": booking["id"]}]


async def test_touching_slots_are_no_conflict(alice: httpx.AsyncClient, bob: httpx.AsyncClient) -> None:
    first = await booked(alice, at(2), gpu_type="t4")
    assert (await booked(bob, at(1), gpu_type="t4"))["end"] == first["start"]
    assert (await booked(bob, at(3), gpu_type="t4"))["start"] == first["end"]
    overlapping = await bob.post("/v1/bookings", json=asked(at(2, 59), gpu_type="t4"))
    assert overlapping.status_code == 409


async def test_one_full_type_leaves_the_other_to_be_had(alice: httpx.AsyncClient) -> None:
    await booked(alice, gpu_type="t4")
    assert (await booked(alice))["gpu_type"] == "h100"
    assert (await booked(alice))["gpu_type"] == "h100"
    refused = await alice.post("/v1/bookings", json=asked())
    assert refused.status_code == 409
    problem = refused.json()
    assert problem["type"] == "urn:gpu-dev:problem:not_bookable"
    assert [rule["code"] for rule in problem["broken_rules"]] == ["no_free_gpus"]
    assert problem["nearest_slots"][0]["end"] <= said(at())
    assert {"start": said(at(2)), "end": said(at(3))} in problem["nearest_slots"]
    assert len(problem["nearest_slots"]) >= 3
    assert problem["detail"].endswith("or join the waitlist. Take one of `nearest_slots`.")
    assert (await booked(alice, at(2), gpu_type="t4"))["allocations"][0]["node"] == "b"


async def test_a_type_already_over_capacity_after_a_node_was_lost(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    await add_nodes(runtime, a=("h100", 2), b=("t4", 1), c=("h100", 2))
    booking = await booked(alice, gpus=2, gpu_type="h100", nodes=2)
    async with runtime.uow() as uow:
        reports = [node_report("a", "h100", 2), node_report("b", "t4", 1), node_report("c", "h100", 2, ready=False)]
        await uow.inventory.update(reports, [], runtime.clock.now())
    assert (await alice.get(f"/v1/bookings/{booking['id']}")).json()["status"] == "confirmed"
    refused = await alice.post("/v1/bookings", json=asked(gpu_type="h100"))
    assert [rule["code"] for rule in refused.json()["broken_rules"]] == ["no_free_gpus"]
    gone = await alice.post("/v1/bookings", json=asked(at(5), gpu_type="h100", nodes=2, gpus=2))
    assert [rule["code"] for rule in gone.json()["broken_rules"]] == ["node_unavailable"]
    assert "nearest_slots" not in gone.json()
    free = (await alice.get("/v1/availability", params={"from": at().isoformat(), "to": at(2).isoformat()})).json()
    assert {free_type["gpu_type"]: (free_type["gpus"], free_type["free"]) for free_type in free["items"]} == {
        "h100": (4, [0]),
        "t4": (1, [1]),
    }


async def test_every_broken_rule_is_told_at_once(alice: httpx.AsyncClient) -> None:
    response = await alice.post("/v1/bookings", json=asked(at(-48), gpus=5, gpu_type="h100", project="nobodys"))
    assert response.status_code == 409
    assert {rule["code"] for rule in response.json()["broken_rules"]} == {
        "past_start", "no_such_project", "larger_than_any_node",
    }  # fmt: skip


async def test_a_past_start_is_told_with_the_next_slots(alice: httpx.AsyncClient) -> None:
    refused = await alice.post("/v1/bookings", json=asked(at(-2)))
    assert [rule["code"] for rule in refused.json()["broken_rules"]] == ["past_start"]
    assert len(refused.json()["nearest_slots"]) >= 3


async def test_this_minute_is_now(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    async with runtime.uow() as uow:
        now = await uow.now()
    booking = await booked_now(alice)
    [(_, _, start, _)] = await ledger(runtime, booking["id"])
    assert start >= now


async def test_what_can_never_be_says_so(alice: httpx.AsyncClient) -> None:
    for fields, code in (
        ({"gpu_type": "b200"}, "no_such_type"),
        ({"gpus": 3}, "larger_than_any_node"),
        ({"gpus": 2, "nodes": 2}, "not_enough_nodes"),
        ({"node": "z"}, "no_such_node"),
        ({"node": "b", "gpu_type": "h100"}, "no_such_type"),
        ({"start": at(24 * 401).isoformat()}, "too_far_ahead"),
    ):
        response = await alice.post("/v1/bookings", json={**asked(), **fields})
        assert response.status_code == 409, fields
        assert [rule["code"] for rule in response.json()["broken_rules"]] == [code]


async def test_start_and_end_in_different_offsets_of_the_same_zone(alice: httpx.AsyncClient) -> None:
    """The night in which clocks go back has one hour more by the clock than it seems."""
    night = {"gpus": 1, "time_zone": "Europe/Stockholm"}
    year = at().year + (1 if (at().month, at().day) >= (10, 1) else 0)
    day = max(d for d in range(24, 32) if _weekday(year, 10, d) == 6)
    response = await alice.post(
        "/v1/bookings", json={**night, "start": f"{year}-10-{day - 1}T22:00", "end": f"{year}-10-{day:02}T06:00"}
    )
    assert response.status_code == 201, response.text
    assert response.json()["duration"] == "PT9H"
    offsets = {"gpus": 1, "start": f"{year}-10-{day - 1}T22:00+02:00", "end": f"{year}-10-{day:02}T06:00+01:00"}
    other = await alice.post("/v1/bookings", json=offsets)
    assert (other.json()["start"], other.json()["end"]) == (response.json()["start"], response.json()["end"])


async def test_times_that_do_not_exist_name_those_that_do(alice: httpx.AsyncClient) -> None:
    body = {"gpus": 1, "start": "2030-03-31T02:30", "time_zone": "Europe/Stockholm", "duration": 3600}
    response = await alice.post("/v1/bookings", json=body)
    assert response.status_code == 422
    [rule] = response.json()["broken_rules"]
    assert "2030-03-31T01:59+01:00 or 2030-03-31T03:00+02:00" in rule["detail"]


async def test_malformed_requests_are_refused_before_anything_is_asked(alice: httpx.AsyncClient) -> None:
    for fields in (
        {"start": "tomorrow"},
        {"start": "2030-01-01T09:00:30Z"},
        {"start": "2030-01-01T09:00"},
        {"start": "2030-01-01T09:00", "time_zone": "Mars/Olympus"},
        {"start": "2030-01-01T09:00", "time_zone": "../../etc/passwd"},
        {"start": 1893456000},
        {"end": at(-1).isoformat()},
        {"end": at().isoformat()},
        {"end": at(24 * 91).isoformat()},
        {"duration": 90},
        {"duration": "PT1H", "end": at(5).isoformat()},
        {"node": "a", "nodes": 2},
        {"auto_accept": True},
        {"wait": "yes"},
        {"gpus": 0},
        {"title": "a\x00"},
        {"user": "bob"},
        {"status": "active"},
    ):
        response = await alice.post("/v1/bookings", json={**asked(at(1)), **fields})
        assert response.status_code == 422, fields
    nothing = {key: value for key, value in asked().items() if key != "duration"}
    assert (await alice.post("/v1/bookings", json=nothing)).status_code == 422


async def test_others_see_when_and_whose_but_not_what_for(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, root: httpx.AsyncClient
) -> None:
    booking = await booked(alice, gpu_type="h100", title="secret", workload={"command": ["x"], "env": {"A": "secret"}})
    assert (await bob.get(f"/v1/bookings/{booking['id']}")).status_code == 404
    listed = await bob.get("/v1/bookings")
    assert "secret" not in listed.text
    [seen] = listed.json()["items"]
    assert (seen["user"], seen["start"], seen["title"], seen["workload"]) == ("alice", booking["start"], None, None)
    assert seen["allocations"][0]["gpu_indices"] == [0]
    assert (await root.get(f"/v1/bookings/{booking['id']}")).json() == booking
    assert (await bob.patch(f"/v1/bookings/{booking['id']}", json={"title": "mine"})).status_code == 404
    assert (await bob.delete(f"/v1/bookings/{booking['id']}")).status_code == 404
    assert (await bob.get("/v1/bookings", params={"mine": True})).json()["items"] == []
    await alice.delete(f"/v1/bookings/{booking['id']}")
    assert (await bob.get("/v1/bookings")).json()["items"] == []
    assert [listed_booking["status"] for listed_booking in (await alice.get("/v1/bookings")).json()["items"]] == [
        "cancelled"
    ]


async def test_lists_by_time_and_status_go_on_where_they_stopped(alice: httpx.AsyncClient) -> None:
    ids = [(await booked(alice, at(2 * n)))["id"] for n in range(5)]
    seen: list[str] = []
    cursor: str | None = None
    while True:
        params = {"limit": 2} | ({} if cursor is None else {"cursor": cursor})
        page = (await alice.get("/v1/bookings", params=params)).json()
        seen += [booking["id"] for booking in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == ids
    middle = await alice.get("/v1/bookings", params={"from": at(3).isoformat(), "to": at(6).isoformat()})
    assert [booking["id"] for booking in middle.json()["items"]] == ids[2:3]
    assert (await alice.get("/v1/bookings", params={"status": "active"})).json()["items"] == []
    assert (await alice.get("/v1/bookings", params={"user": "bob"})).json()["items"] == []


async def test_a_hundred_clients_race_for_the_last_gpu(
    runtime: Runtime, people: People, app: object, alice: httpx.AsyncClient
) -> None:
    """Exactly one wins; every other gets an answer with the next slot."""
    async with runtime.uow() as uow:
        secrets = []
        for n in range(100):
            user = await uow.identities.create_user(f"racer{n}", people.principals["alice"].role, runtime.clock.now())
            secrets.append(runtime.ids.new_secret())
            await uow.identities.create_token(
                runtime.ids.new_id("tok"), user.id, None, runtime.ids.digest(secrets[-1]), None, runtime.clock.now()
            )
    body = asked(at(3), gpu_type="t4")

    async def race(secret: str) -> httpx.Response:
        """Book, and try again where the answer says that the database is busy."""
        headers = {"Authorization": f"Bearer {secret}"}
        while (answer := await alice.post("/v1/bookings", json=body, headers=headers)).status_code == 503:
            await asyncio.sleep(float(answer.headers["Retry-After"]))
        return answer

    answers = await asyncio.gather(*map(race, secrets))
    won = [answer for answer in answers if answer.status_code == 201]
    lost = [answer for answer in answers if answer.status_code == 409]
    assert (len(won), len(lost)) == (1, 99)
    [stored] = await execute(runtime, "SELECT count(*) AS rows FROM reservations WHERE kind = 'booking'")
    assert stored.rows == 1
    nearest = {"start": said(at(4)), "end": said(at(5))}
    assert all(nearest in answer.json()["nearest_slots"] for answer in lost)
    assert all([rule["code"] for rule in answer.json()["broken_rules"]] == ["no_free_gpus"] for answer in lost)


async def test_as_many_are_served_as_there_is_room_for(
    runtime: Runtime, people: People, alice: httpx.AsyncClient
) -> None:
    """Racers who all see the same free card go on until the last card is gone."""
    await add_nodes(runtime, a=("h100", 2), b=("t4", 1), c=("a100", 20))
    async with runtime.uow() as uow:
        secrets = []
        for n in range(30):
            user = await uow.identities.create_user(f"racer{n}", people.principals["alice"].role, runtime.clock.now())
            secrets.append(runtime.ids.new_secret())
            await uow.identities.create_token(
                runtime.ids.new_id("tok"), user.id, None, runtime.ids.digest(secrets[-1]), None, runtime.clock.now()
            )
    body = asked(at(3), gpu_type="a100")

    async def race(secret: str) -> int:
        return (await alice.post("/v1/bookings", json=body, headers={"Authorization": f"Bearer {secret}"})).status_code

    assert sorted(await asyncio.gather(*map(race, secrets))) == [201] * 20 + [409] * 10
    # What was written before a card turned out to be taken is gone.
    [stored] = await execute(runtime, "SELECT count(*) AS rows FROM reservations WHERE kind = 'booking'")
    assert stored.rows == 20


async def test_a_repeated_request_books_once(alice: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "k-1"}
    first = await alice.post("/v1/bookings", json=asked(gpu_type="t4"), headers=headers)
    again = await alice.post("/v1/bookings", json=asked(gpu_type="t4"), headers=headers)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"
    other = await alice.post("/v1/bookings", json=asked(at(2), gpu_type="t4"), headers=headers)
    assert other.status_code == 409
    assert other.json()["type"] == "urn:gpu-dev:problem:idempotency_conflict"
    assert len((await alice.get("/v1/bookings")).json()["items"]) == 1


async def test_who_waits_has_no_cards_yet(alice: httpx.AsyncClient, bob: httpx.AsyncClient, runtime: Runtime) -> None:
    await booked(alice, gpu_type="t4")
    response = await bob.post("/v1/bookings", json=asked(gpu_type="t4", wait=True, auto_accept=True))
    assert response.status_code == 202
    waiting = response.json()
    assert (waiting["status"], waiting["auto_accept"], waiting["allocations"]) == ("waiting", True, [])
    assert waiting["waits_until"] == waiting["start"]
    assert await ledger(runtime, waiting["id"]) == []
    assert (await alice.get("/v1/bookings")).json()["items"][0]["status"] == "confirmed"
    never = await bob.post("/v1/bookings", json=asked(gpu_type="b200", wait=True))
    assert never.status_code == 409


async def test_a_card_that_is_away_is_booked_for_later_only(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    await execute(runtime, "UPDATE gpus SET condition = 'foreign' WHERE gpu_type = 't4'")
    async with runtime.uow() as uow:
        soon = (await uow.now()).replace(second=0, microsecond=0) + timedelta(minutes=2)
    assert (await alice.post("/v1/bookings", json=asked(soon, gpu_type="t4"))).status_code == 409
    await booked(alice, gpu_type="t4")
    await execute(runtime, "UPDATE gpus SET condition = 'quarantined' WHERE gpu_type = 't4'")
    refused = await alice.post("/v1/bookings", json=asked(at(5), gpu_type="t4"))
    assert [rule["code"] for rule in refused.json()["broken_rules"]] == ["node_unavailable"]


def _weekday(year: int, month: int, day: int) -> int:
    return at().replace(year=year, month=month, day=day).weekday()
