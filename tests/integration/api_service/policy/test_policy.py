"""The policy over REST: set, seen, and kept at every commit."""

import asyncio
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import (
    HOUR,
    asked,
    at,
    booked,
    execute,
    said,
)
from tests.integration.api_service.callers import submitted
from tests.integration.api_service.policy.rules_set import codes, lab, put

__all__ = ["lab"]


async def test_a_scope_without_rules_is_answered_by_what_the_caller_may_see(
    root: httpx.AsyncClient, alice: httpx.AsyncClient
) -> None:
    for scope, detail in (
        ("default", "There are no rules for default. `gpu-dev policy list` shows all rules."),
        ("user:alice", "There are no rules for user:alice alone; those of less specific scopes hold."),
        ("user:nobody", "There is no user 'nobody'."),
        ("project:none", "There is no project 'none'."),
    ):
        answer = await root.get(f"/v1/policy/{scope}")
        assert (answer.status_code, answer.json()["detail"][: len(detail)]) == (404, detail)
        hidden = await alice.get(f"/v1/policy/{scope}")
        assert (
            hidden.json()["detail"] == f"You see no rules for {scope}. `gpu-dev policy list` shows the rules for you."
        )


async def test_a_mistyped_scope_is_compared_with_those_that_have_rules(root: httpx.AsyncClient) -> None:
    await put(root, "gpu_type:h100", max_gpus=4)
    for call in (root.get, root.delete):
        answer = await call("/v1/policy/gpu_type:h10")
        assert " hold. Did you mean gpu_type:h100? `gpu-dev policy list`" in answer.json()["detail"]
    assert "Did you mean" not in (await root.get("/v1/policy/gpu_type:v100")).json()["detail"]
    missing = await root.delete("/v1/policy/project:none")
    assert missing.json()["detail"].startswith("There is no project 'none'.")


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
    own = (await root.get("/v1/policy?mine=true")).json()
    assert [rule["scope"] for rule in own["items"]] == ["default", "gpu_type:h100"]
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
