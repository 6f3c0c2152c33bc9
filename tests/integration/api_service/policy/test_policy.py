"""The policy over REST: set, seen, explained, kept at every commit, and asked by services; projects and usage."""

import asyncio
import csv
import io
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import httpx
import pytest
from fastapi import FastAPI

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
    said,
)
from tests.integration.api_service.callers import People, submitted


@pytest.fixture(autouse=True)
async def lab(runtime: Runtime) -> None:
    """Two types: `a` has four h100, `b` two t4."""
    await add_nodes(runtime, a=("h100", 4), b=("t4", 2))


async def put(root: httpx.AsyncClient, scope: str, **rules: object) -> dict[str, object]:
    """Rules that were set."""
    response = await root.put(f"/v1/policy/{scope}", json=rules)
    assert response.status_code == 200, response.text
    answer: dict[str, object] = response.json()
    return answer


async def earlier(runtime: Runtime, hours: int, *bookings: str) -> None:
    """As if these had been so much earlier."""
    for booking in bookings:
        await execute(
            runtime,
            "UPDATE allocations SET during = tstzrange(lower(during) - make_interval(hours => :hours), "
            "upper(during) - make_interval(hours => :hours)) WHERE reservation_id = :id RETURNING id",
            hours=hours,
            id=booking,
        )


def codes(problem: httpx.Response) -> list[str]:
    return [rule["code"] for rule in problem.json()["broken_rules"]]


async def test_rules_are_set_read_changed_and_dropped_on_record(root: httpx.AsyncClient, runtime: Runtime) -> None:
    first = await put(
        root,
        "user:alice,gpu_type:h100",
        max_gpus=4,
        max_duration="P7D",
        priority="unlimited",
        relaxed_if_starts_within=[{"within": 7200, "lifts": ["max_gpus"]}],
    )
    assert first["rules"] == {
        "max_gpus": 4,
        "max_gpu_hours_per_week": None,
        "max_duration": "P7D",
        "max_advance": None,
        "min_notice": None,
        "max_open_bookings": None,
        "cooldown": None,
        "priority": "unlimited",
        "no_show_grace": None,
        "cost_per_gpu_hour": None,
        "order": None,
        "idle": None,
        "inactivity": None,
        "relaxed_if_starts_within": [{"within": "PT2H", "lifts": ["max_gpus"]}],
        "booking_required": None,
    }
    read = await root.get("/v1/policy/user:alice,gpu_type:h100")
    assert read.json() == first
    assert read.headers["etag"] == '"1"'
    # Not what the caller has seen: 412. What they have seen is changed.
    stale = await root.put("/v1/policy/user:alice,gpu_type:h100", json={"max_gpus": 5}, headers={"If-Match": '"7"'})
    assert stale.status_code == 412
    changed = await root.put("/v1/policy/user:alice,gpu_type:h100", json={"max_gpus": 5}, headers={"If-Match": '"1"'})
    assert (changed.status_code, changed.json()["version"], changed.json()["rules"]["priority"]) == (200, 2, None)
    assert (await root.delete("/v1/policy/user:alice,gpu_type:h100")).status_code == 200
    assert (await root.get("/v1/policy/user:alice,gpu_type:h100")).status_code == 404
    found = await execute(runtime, "SELECT actor, subject, data FROM events WHERE kind = 'policy_changed' ORDER BY id")
    told = found.all()
    assert [(row.actor, row.subject) for row in told] == [("root", "policy:user:alice,gpu_type:h100")] * 3
    assert [row.data["before"] for row in told[:2]] == [
        None,
        {
            "max_gpus": 4,
            "max_duration": 604800.0,
            "priority": "unlimited",
            "relaxed_if_starts_within": [{"within": 7200.0, "lifts": ["max_gpus"]}],
        },
    ]
    assert [row.data["after"] for row in told[1:]] == [{"max_gpus": 5}, None]


@pytest.mark.parametrize(
    ("scope", "rules", "status"),
    [
        ("default", {"max_gpu": 4}, 422),
        ("default", {"max_gpus": -1}, 422),
        ("default", {"max_gpus": "4"}, 422),
        ("default", {"max_gpus": "infinite"}, 422),
        ("default", {"max_duration": "PT0S"}, 422),
        ("default", {"max_duration": "P500D"}, 422),
        ("default", {"max_gpu_hours_per_week": 1e12}, 422),
        ("default", {"relaxed_if_starts_within": [{"within": "PT2H", "lifts": ["priority"]}]}, 422),
        ("default", {}, 403),
        ("default", {"order": "size"}, 422),
        ("default", {"order": "unlimited"}, 422),
        ("user:alice", {"order": "area"}, 422),
        ("gpu_type:h100", {"order": "arrival"}, 422),
        ("default", {"idle": "release"}, 422),
        ("default", {"idle": {"below": 0}}, 422),
        ("default", {"idle": {"below": 0.0001}}, 422),
        ("default", {"idle": {"window": 59}}, 422),
        ("default", {"idle": {"grace": "P2D"}}, 422),
        ("default", {"idle": {"then": "cancel"}}, 422),
        ("default", {"idle": {"until": "PT1H"}}, 422),
        ("user:nobody", {"max_gpus": 1}, 404),
        ("project:nothing", {"max_gpus": 1}, 404),
        ("user:alice,project:x", {"max_gpus": 1}, 422),
        ("everybody", {"max_gpus": 1}, 422),
    ],
)
async def test_what_no_policy_can_say_is_refused(
    root: httpx.AsyncClient, scope: str, rules: dict[str, object], status: int
) -> None:
    assert (await root.put(f"/v1/policy/{scope}", json=rules)).status_code == status
    assert (await root.get("/v1/policy")).json()["items"] == []


async def test_the_order_of_waiting_jobs_is_a_rule_of_everybody_and_of_projects(
    root: httpx.AsyncClient, alice: httpx.AsyncClient, runtime: Runtime
) -> None:
    await root.post("/v1/projects", json={"name": "vision"})
    assert (await put(root, "default", order="arrival", max_gpus=8))["rules"]["order"] == "arrival"  # type: ignore[index]
    assert (await put(root, "project:vision", order="area"))["rules"]["order"] == "area"  # type: ignore[index]
    assert (await root.get("/v1/policy/project:vision")).json()["rules"]["order"] == "area"
    events = (await execute(runtime, "SELECT data FROM events WHERE kind = 'policy_changed' ORDER BY id")).all()
    assert [event.data["after"] for event in events] == [{"max_gpus": 8, "order": "arrival"}, {"order": "area"}]
    asked = {"gpus": 1, "duration": "PT1H"}
    job = (await alice.post("/v1/policy/explain", json=asked)).json()
    assert {"rule": "order", "value": "arrival", "used": None, "scope": "default"} in job["limits"]
    booking = (await alice.post("/v1/policy/explain", json={**asked, "start": said(at(1))})).json()
    assert "order" not in [limit["rule"] for limit in booking["limits"]]
    refused = await root.put("/v1/policy/user:alice", json={"order": "area"})
    assert refused.json()["type"].endswith("misplaced_rule")
    assert refused.json()["detail"] == (
        "order: set it for default or for a project; a user or a GPU type has no order of its own."
    )
    # A scope that has an order may lose it again.
    assert (await put(root, "project:vision", max_gpus=1))["rules"]["order"] is None  # type: ignore[index]


async def test_when_gpus_are_idle_is_a_rule(
    root: httpx.AsyncClient, alice: httpx.AsyncClient, runtime: Runtime
) -> None:
    usual = {"below": 0.1, "window": "PT1H", "grace": "PT30M", "then": "warn"}
    assert (await put(root, "default", idle={}))["rules"]["idle"] == usual  # type: ignore[index]
    own = {"below": 0.05, "window": 7200, "grace": "PT1H", "then": "release"}
    await put(root, "user:alice,gpu_type:h100", idle=own)
    assert (await put(root, "user:alice", idle="unlimited"))["rules"]["idle"] == "unlimited"  # type: ignore[index]
    read = (await root.get("/v1/policy/user:alice,gpu_type:h100")).json()["rules"]["idle"]
    assert read == {**own, "window": "PT2H"}
    await put(root, "user:bob", idle={**own, "then": "requeue"})
    assert (await root.get("/v1/policy/user:bob")).json()["rules"]["idle"] == {**read, "then": "requeue"}
    events = (await execute(runtime, "SELECT data FROM events WHERE kind = 'policy_changed' ORDER BY id")).all()
    assert [event.data["after"]["idle"] for event in events] == [
        "10%,1h,30m,warn", "5%,2h,1h,release", "unlimited", "5%,2h,1h,requeue",
    ]  # fmt: skip
    job = (await alice.post("/v1/policy/explain", json={"gpus": 1, "gpu_type": "h100", "duration": "PT1H"})).json()
    scope = "user:alice,gpu_type:h100"
    assert {"rule": "idle", "value": "5%,2h,1h,release", "used": None, "scope": scope} in job["limits"]


async def test_users_see_what_bears_on_them(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, root: httpx.AsyncClient
) -> None:
    await root.post("/v1/projects", json={"name": "vision", "title": "Seeing"})
    await root.put("/v1/projects/vision/members/alice")
    for scope in ("default", "gpu_type:h100", "project:vision", "user:alice", "user:bob"):
        await put(root, scope, max_gpus=3)

    async def seen(client: httpx.AsyncClient) -> list[str]:
        first = (await client.get("/v1/policy?limit=2")).json()
        rest = (await client.get("/v1/policy", params={"cursor": first["next_cursor"]})).json()
        assert rest["next_cursor"] is None
        return [rule["scope"] for rule in first["items"] + rest["items"]]

    assert await seen(alice) == ["default", "gpu_type:h100", "project:vision", "user:alice"]
    assert await seen(bob) == ["default", "gpu_type:h100", "user:bob"]
    assert len(await seen(root)) == 5
    # With a project go its rules.
    assert (await root.delete("/v1/projects/vision")).json()["members"] == ["alice"]
    assert await seen(alice) == ["default", "gpu_type:h100", "user:alice"]


async def test_a_job_that_can_never_be_is_refused_with_every_reason(
    alice: httpx.AsyncClient, root: httpx.AsyncClient
) -> None:
    await put(root, "default", max_gpus=2, max_duration="PT2H")
    refused = await alice.post("/v1/jobs", json={"gpus": 3, "duration": "PT3H", "workload": {}})
    assert refused.status_code == 409
    assert refused.json()["type"] == "urn:gpu-dev:problem:not_permitted"
    assert codes(refused) == ["max_gpus", "max_duration"]
    await submitted(alice, gpus=2, duration="PT2H")
    # What this process changes holds at once.
    await put(root, "default", max_gpus=1)
    assert (await alice.post("/v1/jobs", json={"gpus": 2, "duration": "PT1H", "workload": {}})).status_code == 409
    await root.delete("/v1/policy/default")
    await submitted(alice, gpus=3, duration="PT3H")


async def test_a_rule_may_let_users_raise_their_priority(alice: httpx.AsyncClient, root: httpx.AsyncClient) -> None:
    body = {"gpus": 1, "duration": 60, "workload": {}, "priority": 5}
    assert (await alice.post("/v1/jobs", json=body)).status_code == 403
    await put(root, "user:alice", priority=5)
    assert (await alice.post("/v1/jobs", json=body)).status_code == 202
    assert codes(await alice.post("/v1/jobs", json={**body, "priority": 6})) == ["priority"]


async def test_quotas_hold_however_many_book_at_once(alice: httpx.AsyncClient, root: httpx.AsyncClient) -> None:
    await put(root, "user:alice", max_gpus=2)
    answers = await asyncio.gather(*(alice.post("/v1/bookings", json=asked(at(), gpu_type="h100")) for _ in range(8)))
    assert sorted(answer.status_code for answer in answers) == [201] * 2 + [409] * 6
    refused = next(answer for answer in answers if answer.status_code == 409)
    assert "max_gpus" in codes(refused)


async def test_a_projects_quota_is_shared_by_its_members(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, root: httpx.AsyncClient
) -> None:
    assert (await root.post("/v1/projects", json={"name": "vision"})).status_code == 201
    assert (await root.post("/v1/projects", json={"name": "vision"})).status_code == 409
    for name in ("alice", "bob"):
        assert (await root.put(f"/v1/projects/vision/members/{name}")).status_code == 200
    await put(root, "project:vision", max_gpu_hours_per_week=4)
    start = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=8)
    calls = [
        client.post("/v1/bookings", json=asked(start, gpu_type="h100", project="vision")) for client in (alice, bob) * 4
    ]
    answers = await asyncio.gather(*calls)
    # Four cards, four hours: the quota is what is short when the cards are not.
    assert sum(answer.status_code == 201 for answer in answers) == 4
    late = await bob.post("/v1/bookings", json=asked(start + 2 * HOUR, gpu_type="h100", project="vision"))
    assert "max_gpu_hours_per_week" in codes(late)
    assert (await bob.post("/v1/bookings", json=asked(start + 2 * HOUR, gpu_type="h100"))).status_code == 201


async def test_a_members_own_quota_does_not_lift_the_projects(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, root: httpx.AsyncClient
) -> None:
    assert (await root.post("/v1/projects", json={"name": "vision"})).status_code == 201
    for name in ("alice", "bob"):
        assert (await root.put(f"/v1/projects/vision/members/{name}")).status_code == 200
    await put(root, "project:vision", max_gpus=2)
    await put(root, "user:alice", max_gpus=4)
    start = at(3)
    await booked(bob, start, gpus=1, gpu_type="h100", project="vision")
    body = asked(start, gpus=2, gpu_type="h100", project="vision")
    refused = await alice.post("/v1/bookings", json=body)
    assert (refused.status_code, codes(refused)) == (409, ["max_gpus"])
    limits = (await alice.post("/v1/policy/explain", json=body)).json()["limits"]
    assert [(limit["value"], limit["used"], limit["scope"]) for limit in limits] == [
        (4, 0, "user:alice"),
        (2, 1, "project:vision"),
    ]
    assert (await alice.post("/v1/bookings", json=asked(start, gpus=2, gpu_type="h100"))).status_code == 201


async def test_explain_tells_everything_at_once(alice: httpx.AsyncClient, root: httpx.AsyncClient) -> None:
    await put(root, "default", max_gpus=2, min_notice="PT30M", max_open_bookings=5, max_duration="P1D")
    await put(root, "gpu_type:h100", max_gpus=3, relaxed_if_starts_within=[{"within": "PT1H", "lifts": ["max_gpus"]}])
    start = at(3)
    await booked(alice, start, gpus=2, gpu_type="h100")
    body = asked(start, gpus=2, gpu_type="h100", duration="P2D", title="thesis", wait=True)
    answer = (await alice.post("/v1/policy/explain", json=body)).json()
    assert answer["allowed"] is False
    assert [(rule["code"], rule["possible_from"]) for rule in answer["broken_rules"]] == [
        ("max_gpus", said(start + HOUR)),
        ("max_duration", None),
    ]
    assert answer["possible_from"] is None
    assert {limit["rule"]: (limit["value"], limit["used"], limit["scope"]) for limit in answer["limits"]} == {
        "max_gpus": (3, 2, "gpu_type:h100"),
        "max_duration": ("P1D", None, "default"),
        "min_notice": ("PT30M", None, "default"),
        "max_open_bookings": (5, 1, "default"),
    }
    assert answer["exceptions"] == [{"within": "PT1H", "lifts": ["max_gpus"]}]
    shorter = (await alice.post("/v1/policy/explain", json={**body, "duration": "PT1H"})).json()
    assert shorter["possible_from"] == said(start + HOUR)
    moved = (
        await alice.post("/v1/policy/explain", json={**body, "duration": "PT1H", "start": said(start + HOUR)})
    ).json()
    assert (moved["allowed"], moved["broken_rules"]) == (True, [])
    # Nothing was kept of it.
    assert len((await alice.get("/v1/bookings?mine=true")).json()["items"]) == 1
    job = (await alice.post("/v1/policy/explain", json={"gpus": 2, "duration": 60, "workload": {}})).json()
    assert (job["kind"], job["allowed"]) == ("job", True)
    past = (await alice.post("/v1/policy/explain", json=asked(at(-3), gpu_type="t4"))).json()
    assert [rule["code"] for rule in past["broken_rules"]] == ["past_start", "min_notice"]


@pytest.mark.parametrize(
    ("fields", "said_of_it"),
    [
        ({"start": "2030-01-31T09:00"}, "start: must have an offset"),
        ({"start": "2030-01-31T09:00:20Z"}, "start: must be a whole minute"),
        ({"start": "2030-03-31T02:30", "time_zone": "Europe/Berlin"}, "start: 2030-03-31T02:30 does not exist"),
        ({"start": "2030-01-31T09:00", "time_zone": "Middle/Earth"}, "time_zone: must be the name of"),
        ({"time_zone": "Middle/Earth"}, "time_zone: must be the name of"),
        ({"start": "tomorrow"}, "start: must be a time such as"),
        ({"start": "2030-01-31T09:00Z", "duration": "PT61S"}, "duration: must be whole minutes"),
        ({"start": "2030-01-31T09:00Z", "end": "2180-01-31T09:00Z", "duration": None}, "end: at most 90 days after"),
    ],
)
async def test_what_can_not_be_asked_for_is_refused_in_words(
    alice: httpx.AsyncClient, fields: dict[str, object], said_of_it: str
) -> None:
    answer = await alice.post("/v1/policy/explain", json={"gpus": 1, "duration": "PT1H", **fields})
    assert answer.status_code == 422, answer.text
    assert said_of_it in answer.json()["broken_rules"][0]["detail"]


async def test_explaining_knows_how_near_and_how_far_a_booking_may_be(alice: httpx.AsyncClient) -> None:
    far = (await alice.post("/v1/policy/explain", json=asked(at(24 * 401)))).json()
    assert (far["allowed"], far["possible_from"]) == (False, None)
    assert [rule["code"] for rule in far["broken_rules"]] == ["too_far_ahead"]
    past = (await alice.post("/v1/policy/explain", json=asked(at(-3)))).json()
    # The answered time can be asked for.
    assert await booked(alice, datetime.fromisoformat(past["possible_from"]))


async def test_explaining_for_others_is_for_administrators(
    alice: httpx.AsyncClient, root: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    await put(root, "user:bob", max_gpus=1)
    body = {"gpus": 2, "duration": 60, "user": "bob"}
    assert (await alice.post("/v1/policy/explain", json=body)).status_code == 403
    assert (await root.post("/v1/policy/explain", json=body)).json()["allowed"] is False
    assert (await root.post("/v1/policy/explain", json={**body, "user": "nobody"})).status_code == 404
    foreign = (await bob.post("/v1/policy/explain", json={"gpus": 1, "duration": 60, "project": "secret"})).json()
    assert [rule["code"] for rule in foreign["broken_rules"]] == ["no_such_project"]


async def test_usage_as_json_and_as_csv(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, root: httpx.AsyncClient, runtime: Runtime
) -> None:
    first = (await booked(alice, at(1), gpus=2, gpu_type="h100"))["id"]
    second = (await booked(bob, at(1), gpu_type="t4"))["id"]
    # It is some time later.
    await earlier(runtime, 5, first, second)
    week = {"from": said(at(-200)), "to": said(at(10))}
    report = (await root.get("/v1/usage", params={**week, "by": "user"})).json()
    assert [(line["key"], line["held_gpu_hours"], line["idle_gpu_s"]) for line in report["items"]] == [
        ("alice", 2.0, 7200.0),
        ("bob", 1.0, 3600.0),
    ]
    assert report["total"]["held_gpu_s"] == 10800.0
    own = (await bob.get("/v1/usage", params={**week, "by": "gpu_type"})).json()
    assert [(line["key"], line["held_gpu_s"]) for line in own["items"]] == [("t4", 3600.0)]
    page = (await root.get("/v1/usage", params={**week, "limit": 1})).json()
    assert [line["key"] for line in page["items"]] == ["alice"]
    rest = (await root.get("/v1/usage", params={**week, "limit": 1, "cursor": page["next_cursor"]})).json()
    assert ([line["key"] for line in rest["items"]], rest["next_cursor"]) == (["bob"], None)
    for response in (
        await root.get("/v1/usage", params={**week, "by": "project", "format": "csv"}),
        await root.get("/v1/usage", params={**week, "by": "project"}, headers={"Accept": "text/csv"}),
    ):
        assert response.headers["content-type"] == "text/csv; charset=utf-8"
        [names, line] = csv.reader(io.StringIO(response.text))
        assert names[:3] == ["project", "held_gpu_s", "used_gpu_s"]
        assert (line[0], Decimal(line[1]), line[5]) == ("", Decimal(10800), "3.000000")
    assert (await alice.get("/v1/usage", params={"from": said(at(2)), "to": said(at(1))})).status_code == 422
    # They were held in [-4 h, -3 h).
    steps = {"from": said(at(-5)), "to": said(at(2)), "step": "PT3H"}
    series = (await root.get("/v1/usage", params={**steps, "limit": 1})).json()
    assert (series["step"], series["items"], series["next_cursor"] is None) == (
        "PT3H",
        [
            {
                "key": "alice",
                "held_gpu_hours": [2.0, 0.0, 0.0],
                "used_gpu_hours": [0.0, 0.0, 0.0],
                "wasted_gpu_hours": [0.0, 0.0, 0.0],
            }
        ],
        False,
    )
    [more] = (await root.get("/v1/usage", params={**steps, "cursor": series["next_cursor"]})).json()["items"]
    assert (more["key"], more["held_gpu_hours"]) == ("bob", [1.0, 0.0, 0.0])
    for wrong in ({"step": "PT1M"}, {"step": "PT0S"}, {"format": "csv"}):
        assert (await root.get("/v1/usage", params={**steps, **wrong})).status_code == 422, wrong


async def service(root: httpx.AsyncClient, app: FastAPI) -> httpx.AsyncClient:
    """A caller with a service's token."""
    assert (await root.post("/v1/users", json={"name": "gate", "role": "service"})).status_code == 201
    token = (await root.post("/v1/tokens", json={"user": "gate"})).json()["token"]
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api", headers=headers)


async def test_a_service_asks_who_may_use_gpus_and_nothing_else(
    alice: httpx.AsyncClient, root: httpx.AsyncClient, app: FastAPI, runtime: Runtime
) -> None:
    booking = await booked_now(alice, gpus=2, gpu_type="h100")
    question = {"user": "alice", "namespace": "lab"}
    async with await service(root, app) as gate:
        for path in ("/v1/jobs", "/v1/users/me", "/v1/policy", "/v1/bookings", "/v1/gpus"):
            assert (await gate.get(path)).status_code == 403
        assert (await gate.post("/v1/jobs", json={"gpus": 1, "duration": 60, "workload": {}})).status_code == 403
        yes = (await gate.post("/v1/schedulability", json=question)).json()
        assert (yes["schedulable"], yes["until"], yes["booking_id"]) == (True, booking["end"], booking["id"])
        assert (yes["gpu_type"], yes["gpus"]) == ("h100", 2)
        assert yes["nodes"] == ["a"]
        for more in ({"gpus": 3}, {"gpu_type": "t4"}, {"user": "bob"}, {"user": "nobody"}):
            no = (await gate.post("/v1/schedulability", json={**question, **more})).json()
            assert (no["schedulable"], no["until"], no["booking_id"], no["nodes"]) == (False, None, None, None)
            assert no["reason"]
        # A policy that asks for no booking says yes within its quotas.
        await put(root, "gpu_type:t4", booking_required=False, max_gpus=2)
        free = (await gate.post("/v1/schedulability", json={**question, "user": "bob", "gpu_type": "t4"})).json()
        assert (free["schedulable"], free["until"], free["gpus"], free["nodes"]) == (True, None, 2, None)
        over = {**question, "user": "bob", "gpu_type": "t4", "gpus": 3}
        assert (await gate.post("/v1/schedulability", json=over)).json()["schedulable"] is False
        # After its end it is over.
        await earlier(runtime, 2, booking["id"])
        assert (await gate.post("/v1/schedulability", json=question)).json()["schedulable"] is False
    assert (await alice.post("/v1/schedulability", json=question)).status_code == 403


async def test_until_when_one_may_without_a_booking(
    alice: httpx.AsyncClient, root: httpx.AsyncClient, app: FastAPI
) -> None:
    """Until the next booking or maintenance of cards that they would need; not longer, and null only without one."""
    await put(root, "gpu_type:t4", booking_required=False)
    question = {"user": "bob", "namespace": "lab", "gpu_type": "t4"}
    async with await service(root, app) as gate:

        async def asks(gpus: int, **other: object) -> tuple[bool, str | None, str | None]:
            response = await gate.post("/v1/schedulability", json={**question, "gpus": gpus, **other})
            answer = response.json()
            assert answer["reason"]
            return answer["schedulable"], answer["until"], answer["gpu_type"]

        assert await asks(2) == (True, None, "t4")
        assert (await asks(3))[0] is False  # there are two
        assert (await asks(1, gpu_type="a100"))[0] is False
        await booked(alice, at(5), gpu_type="t4")
        assert await asks(1) == (True, None, "t4")
        assert await asks(2) == (True, said(at(5)), "t4")
        # Of any type it may be one that has to be booked; where none has to be, the first that ends bounds it.
        assert (await asks(2, gpu_type=None))[0] is False
        await put(root, "default", booking_required=False)
        assert await asks(2, gpu_type=None) == (True, said(at(5)), None)
        assert await asks(3, gpu_type=None) == (True, None, None)
        window = {"node": "b", "start": said(at(3)), "duration": 3600, "reason": "Fans."}
        assert (await root.post("/v1/maintenance", json=window)).status_code == 201
        assert await asks(1) == (True, said(at(3)), "t4")
        # What somebody has booked now is not free for others.
        await booked_now(alice, gpu_type="t4")
        assert await asks(1) == (True, said(at(3)), "t4")
        no = (await gate.post("/v1/schedulability", json={**question, "gpus": 2})).json()
        assert (no["schedulable"], no["until"]) == (False, None)
        assert "1 of 2 t4" in no["reason"]


async def test_a_service_reports_pods_that_use_bookings(
    alice: httpx.AsyncClient, root: httpx.AsyncClient, app: FastAPI, runtime: Runtime
) -> None:
    booking = await booked_now(alice, gpus=2, gpu_type="h100")
    pod = {"user": "alice", "namespace": "lab", "name": "train-0", "uid": "u-1", "gpus": 2, "node": "a"}
    path = "/v1/schedulability/admissions"
    async with await service(root, app) as gate:
        first = await gate.post(path, json={"pods": [pod, {**pod, "uid": "u-2", "user": "bob"}]})
        assert first.status_code == 200, first.text
        used, nobodys = first.json()["items"]
        assert (used["uid"], used["outcome"], used["booking_id"]) == ("u-1", "recorded", booking["id"])
        assert used["until"] == booking["end"]
        assert (nobodys["uid"], nobodys["outcome"], nobodys["booking_id"]) == ("u-2", "no_booking", None)
        assert nobodys["reason"]
        again = (await gate.post(path, json={"pods": [{**pod, "booking_id": booking["id"]}]})).json()
        assert [admission["outcome"] for admission in again["items"]] == ["unchanged"]
        asks = {"user": "alice", "namespace": "lab", "pod": {"uid": "u-1"}}
        assert (await gate.post("/v1/schedulability", json=asks)).json()["nodes"] == ["a"]
        ended = (await gate.post(path, json={"pods": [{**pod, "ended_at": said(datetime.now(UTC))}]})).json()
        assert [admission["outcome"] for admission in ended["items"]] == ["ended"]
        for wrong in (
            {"gpus": 0},
            {"uid": ""},
            {"node": ""},
            {"booking_id": "job-1"},
            {"since": "2030-01-01T09:00:00"},
            {"since": "2030-01-02T09:00:00Z", "ended_at": "2030-01-01T09:00:00Z"},
        ):
            assert (await gate.post(path, json={"pods": [{**pod, **wrong}]})).status_code == 422, wrong
        assert (await gate.post(path, json={"pods": []})).status_code == 422
        assert (await gate.post(path, json={"pods": [pod] * 501})).status_code in (413, 422)
    kinds = [kind for kind in await kinds_of(runtime, booking["id"]) if kind.startswith("pod_")]
    assert kinds == ["pod_admitted", "pod_ended"]


async def test_older_clients_ask_in_their_own_words(root: httpx.AsyncClient, app: FastAPI, people: People) -> None:
    assert (await root.post("/v1/users", json={"name": "ann@lab.org"})).status_code == 201
    token = (await root.post("/v1/tokens", json={"user": "ann@lab.org"})).json()["token"]
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://api", headers={"Authorization": f"Bearer {token}"}
    ) as ann:
        booking = await booked_now(ann, gpu_type="h100")
    async with await service(root, app) as gate, httpx.AsyncClient(transport=transport, base_url="http://api") as bare:
        secret = gate.headers["authorization"].removeprefix("Bearer ")
        question = {"user_email": "Ann@lab.org", "namespace": "lab"}
        expected = {"schedulable": True, "until": booking["end"], "gpu": "h100"}
        assert (await gate.post("/gpu-schedulability/", json=question)).json() == expected
        assert (await bare.post("/gpu-schedulability/", json={**question, "token": secret})).json() == expected
        wrong = await bare.post("/gpu-schedulability/", json={**question, "token": "gpudev_wrong"})
        assert wrong.status_code == 401
        assert "gpudev_wrong" not in wrong.text
        assert (await bare.post("/gpu-schedulability/", json=question)).status_code == 401
        user = people.secrets["alice"]
        assert (await bare.post("/gpu-schedulability/", json={**question, "token": user})).status_code == 403
        nobody = await gate.post("/gpu-schedulability/", json={**question, "user_email": "Nobody At All"})
        assert nobody.json() == {"schedulable": False, "until": None, "gpu": None}
