"""The verdict on a request is true: refused is what asking answers with an error, and starts now is what waits for
nothing."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
import pytest

from reservation_core.domain.planning.predictions.start_predictor import StartPredictor
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.planning.planner import Planner, PlannerRules
from reservation_core.usecases.planning.start_predictions import StartPredictions
from tests.integration.api_service.bookings.calendars import add_nodes, asked, at, booked, booked_now, execute
from tests.integration.api_service.callers import JOB, submitted

# Of a day with four GPUs, 48 hours or more are in one week, wherever the week ends.
LIMIT = {"max_gpus": 4, "max_duration": "PT25H", "max_gpu_hours_per_week": 40}


@dataclass
class Lab:
    """Alice's client, an administrator's, and the planner, which acts when it is told to."""

    alice: httpx.AsyncClient
    root: httpx.AsyncClient
    runtime: Runtime
    settings: ApiSettings

    async def plan(self) -> None:
        """Start what can start, and give slots to what waits."""
        async with self.runtime.uow() as uow:
            epoch = await uow.planning.acquire("test", timedelta(hours=1))
        assert epoch is not None
        rules = PlannerRules(
            start_allowance=self.settings.start_allowance + self.settings.turnaround,
            window=1000,
            batch=1000,
            messages=1000,
            estimates=500,
            estimate_every=timedelta(0),
            reload_every=timedelta(hours=1),
            max_reads=2,
        )
        planner = Planner(self.runtime.uow, self.runtime.clock, epoch, rules)
        failures: list[Exception] = []
        predictor = StartPredictor(rules.start_allowance)
        planner.predictions = StartPredictions(self.runtime.uow, predictor, failures.append)
        await planner.cycle()
        while await planner.give_slots():
            await planner.cycle()
        await planner.publish_estimates()
        assert not failures
        async with self.runtime.uow() as uow:
            await uow.planning.release(epoch)

    async def jobs(self, *, gpus: int, of: int = 1, **fields: Any) -> list[str]:
        """Jobs of alice's that were submitted, and started where they can."""
        made = [(await submitted(self.alice, gpus=gpus, **fields))["id"] for _ in range(of)]
        await self.plan()
        return made

    async def rules(self, **rules: Any) -> None:
        """Everybody's rules."""
        assert (await self.root.put("/v1/policy/default", json=rules)).status_code == 200

    async def verdict(self, body: dict[str, Any]) -> dict[str, Any]:
        """The explanation of a request that is not made."""
        answer = await self.alice.post("/v1/policy/explain", json=body)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def seen(self, body: dict[str, Any]) -> str:
        """What becomes of a request that is made."""
        path = "/v1/jobs" if "start" not in body else "/v1/bookings"
        answer = await self.alice.post(path, json=body)
        assert answer.status_code in (201, 202, 403, 409, 422), answer.text
        if answer.is_client_error:
            return "refused"
        await self.plan()
        made = (await self.alice.get(f"{path}/{answer.json()['id']}")).json()
        if path == "/v1/jobs":
            return "accepted" if made["status"] == "queued" else "starts_now"
        begun = made["status"] == "confirmed" and made["start"] <= made["created_at"]
        return "starts_now" if begun else "accepted"


@pytest.fixture
async def lab(alice: httpx.AsyncClient, root: httpx.AsyncClient, runtime: Runtime, settings: ApiSettings) -> Lab:
    """Two nodes of eight h100 and four t4."""
    await add_nodes(runtime, a=("h100", 8), b=("t4", 4))
    return Lab(alice, root, runtime, settings)


Prepare = Callable[[Lab], Awaitable[dict[str, Any]]]


async def free(lab: Lab) -> dict[str, Any]:
    return {}


async def within_quota(lab: Lab) -> dict[str, Any]:
    await lab.rules(**LIMIT)
    return {}


async def over_quota_now(lab: Lab) -> dict[str, Any]:
    await lab.rules(**LIMIT)
    await lab.jobs(gpus=4)
    return {}


async def over_hours_this_week(lab: Lab) -> dict[str, Any]:
    # Each job counts with what is kept for its start and end, about two minutes. So short jobs are rarely in two weeks.
    await lab.rules(max_gpu_hours_per_week=23 / 60)
    await lab.jobs(gpus=4, duration="PT2M")
    return {}


async def full_now(lab: Lab) -> dict[str, Any]:
    await lab.jobs(gpus=8, gpu_type="h100")
    return {}


async def all_full_now(lab: Lab) -> dict[str, Any]:
    await lab.jobs(gpus=8, gpu_type="h100")
    await lab.jobs(gpus=4, gpu_type="t4")
    return {}


async def another_waits_for_all(lab: Lab) -> dict[str, Any]:
    """Four are free until the others are, when a waiting job has all eight."""
    await lab.jobs(gpus=4, gpu_type="h100", duration="PT2H")
    await lab.jobs(gpus=8, gpu_type="h100", duration="PT2H")
    return {}


async def booked_in_an_hour(lab: Lab) -> dict[str, Any]:
    await booked(lab.alice, at(1), gpus=8, gpu_type="h100", duration="PT5H")
    return {}


async def a_booking_now(lab: Lab) -> dict[str, Any]:
    made = await booked_now(lab.alice, gpus=2, gpu_type="h100", duration="PT3H")
    return {"booking_id": made["id"]}


async def a_full_booking_now(lab: Lab) -> dict[str, Any]:
    named = await a_booking_now(lab)
    await lab.jobs(gpus=2, **named)
    return named


async def a_booking_over_quota(lab: Lab) -> dict[str, Any]:
    named = await a_booking_now(lab)
    await lab.rules(max_gpus=1)
    return named


async def a_booking_ahead(lab: Lab) -> dict[str, Any]:
    return {"booking_id": (await booked(lab.alice, at(2), gpus=2, gpu_type="h100"))["id"]}


async def a_cancelled_booking(lab: Lab) -> dict[str, Any]:
    named = await a_booking_ahead(lab)
    await lab.alice.delete(f"/v1/bookings/{named['booking_id']}")
    return named


async def a_type_to_come(lab: Lab) -> dict[str, Any]:
    assert (await lab.root.put("/v1/policy/gpu_type:b200", json={"max_gpus": 2})).status_code == 200
    return {}


async def a_cordoned_node(lab: Lab) -> dict[str, Any]:
    assert (await lab.root.post("/v1/nodes/a/cordon", json={"reason": "fans"})).status_code == 200
    return {}


@pytest.mark.parametrize(
    ("prepare", "body", "expected", "codes"),
    [
        (free, {}, "starts_now", []),
        (free, {"gpus": 8, "gpu_type": "h100"}, "starts_now", []),
        (free, {"gpus": 4, "nodes": 2}, "accepted", ["not_enough_nodes"]),
        (free, {"gpus": 9}, "accepted", ["larger_than_any_node"]),
        (free, {"gpu_type": "b200"}, "refused", ["no_such_type"]),
        (free, {"workload": {"command": ["true"], "image": "train:1"}}, "refused", ["no_images"]),
        (
            within_quota,
            {"gpus": 5, "gpu_type": "b200", "workload": {"command": ["true"], "image": "train:1"}},
            "refused",
            ["no_images", "no_such_type", "max_gpus"],
        ),
        (a_type_to_come, {"gpu_type": "b200"}, "accepted", ["no_such_type"]),
        (free, {"duration": "P31D"}, "refused", ["limit_exceeded"]),
        (free, {"priority": 5}, "refused", ["forbidden"]),
        (free, {"project": "vision"}, "refused", ["no_such_project"]),
        (free, {"booking_id": "bkg-never"}, "refused", ["no_such_booking"]),
        (a_cordoned_node, {"gpu_type": "h100"}, "accepted", ["node_unavailable"]),
        (within_quota, {"gpus": 4}, "starts_now", []),
        (within_quota, {"gpus": 5}, "refused", ["max_gpus"]),
        (within_quota, {"duration": "PT26H"}, "refused", ["max_duration"]),
        (within_quota, {"gpus": 4, "duration": "P1D"}, "refused", ["max_gpu_hours_per_week"]),
        (over_quota_now, {}, "accepted", ["quota_reached"]),
        (over_quota_now, {"gpus": 5}, "refused", ["max_gpus"]),
        (over_hours_this_week, {"gpus": 3, "duration": "PT1M"}, "accepted", ["quota_reached"]),
        (over_hours_this_week, {"duration": "PT1M"}, "starts_now", []),
        (full_now, {"gpu_type": "h100"}, "accepted", ["waiting_for_gpus"]),
        (full_now, {}, "starts_now", []),
        (all_full_now, {}, "accepted", ["waiting_for_gpus"]),
        (another_waits_for_all, {"gpus": 4, "gpu_type": "h100", "duration": "PT1H"}, "starts_now", []),
        (another_waits_for_all, {"gpus": 4, "gpu_type": "h100", "duration": "PT3H"}, "accepted", ["waiting_for_gpus"]),
        (booked_in_an_hour, {"gpu_type": "h100", "duration": "PT10M"}, "starts_now", []),
        (booked_in_an_hour, {"gpu_type": "h100", "duration": "PT5H"}, "accepted", ["waiting_for_gpus"]),
        (a_booking_now, {}, "starts_now", []),
        (a_booking_now, {"gpus": 3}, "refused", ["booking_not_usable"]),
        (a_full_booking_now, {}, "accepted", ["waiting_for_gpus"]),
        (a_full_booking_now, {"duration": "PT10M"}, "accepted", ["waiting_for_gpus"]),
        (a_booking_over_quota, {"gpus": 2}, "starts_now", []),
        (a_booking_ahead, {}, "accepted", ["waiting_for_gpus"]),
        (a_cancelled_booking, {}, "refused", ["booking_not_usable"]),
    ],
)
async def test_a_job_has_the_verdict_that_comes_true(
    lab: Lab, prepare: Prepare, body: dict[str, Any], expected: str, codes: list[str]
) -> None:
    request = {**JOB, **body, **await prepare(lab)}
    found = await lab.verdict(request)
    assert (found["verdict"], [reason["code"] for reason in found["reasons"]]) == (expected, codes)
    assert await lab.seen(request) == expected


@pytest.mark.parametrize(
    ("prepare", "body", "expected", "codes"),
    [
        (free, {}, "accepted", []),
        (free, {"start": None}, "starts_now", []),
        (free, {"gpus": 9}, "refused", ["larger_than_any_node"]),
        (free, {"gpu_type": "b200"}, "refused", ["no_such_type"]),
        (free, {"node": "a", "nodes": 2}, "refused", ["invalid_request"]),
        (free, {"project": "vision"}, "refused", ["no_such_project"]),
        (within_quota, {"gpus": 5}, "refused", ["max_gpus"]),
        (over_quota_now, {"start": None, "gpus": 2}, "refused", ["max_gpus"]),
        (over_quota_now, {}, "accepted", []),
        (booked_in_an_hour, {"gpu_type": "h100"}, "refused", ["no_free_gpus"]),
        (booked_in_an_hour, {"gpu_type": "h100", "wait": True}, "accepted", ["no_free_gpus"]),
        (booked_in_an_hour, {"gpu_type": "t4", "wait": True}, "accepted", []),
    ],
)
async def test_a_booking_has_the_verdict_that_comes_true(
    lab: Lab, prepare: Prepare, body: dict[str, Any], expected: str, codes: list[str]
) -> None:
    await prepare(lab)
    now = lab.runtime.clock.now().replace(second=0, microsecond=0)
    request = asked(at(1.5), **{name: value for name, value in body.items() if name != "start"})
    if "start" in body:
        request["start"] = now.isoformat()
    found = await lab.verdict(request)
    assert (found["verdict"], [reason["code"] for reason in found["reasons"]]) == (expected, codes)
    assert not any("Value error" in reason["detail"] for reason in found["reasons"])
    assert await lab.seen(request) == expected


@pytest.mark.parametrize("seed", range(3))
async def test_what_comes_of_any_request_is_what_was_said_of_it(lab: Lab, seed: int) -> None:
    """Requests of all sizes, one after the other, some of which are cancelled or end later."""
    chance = random.Random(seed)
    await lab.rules(max_gpus=9, max_duration="PT20H", max_gpu_hours_per_week=60)
    seen = set()
    for _ in range(25):
        request = {
            **JOB,
            "gpus": chance.choice([1, 1, 2, 3, 4, 8, 10]),
            "gpu_type": chance.choice([None, "h100", "t4", "b200"]),
            "duration": chance.choice([600, 3600, 7200, 36_000, 80_000]),
            "priority": chance.choice([0, 0, 0, -1, 1]),
        }
        if chance.random() < 0.3:
            request = asked(at(chance.choice([0, 1, 2, 5])), gpus=request["gpus"], gpu_type=request["gpu_type"])
        found = await lab.verdict(request)
        assert await lab.seen(request) == found["verdict"], (request, found)
        seen.add(found["verdict"])
        if chance.random() < 0.3:
            waiting = (await lab.alice.get("/v1/jobs", params={"limit": 50})).json()["items"]
            for job in waiting[:2]:
                await lab.alice.post(f"/v1/jobs/{job['id']}/cancel")
    assert seen == {"starts_now", "accepted", "refused"}


async def test_the_start_that_is_said_is_the_one_that_is_promised(lab: Lab) -> None:
    await lab.rules(**LIMIT)
    await lab.jobs(gpus=4, duration="PT2H")
    [job] = await lab.jobs(gpus=2, duration="PT1H")
    said = await lab.verdict({**JOB, "gpus": 3})
    own = await lab.verdict({**JOB, "gpus": 2, "duration": "PT1H"})
    job = (await lab.alice.get(f"/v1/jobs/{job}")).json()
    # Two of four are promised then: two more fit beside them, three do not.
    assert own["starts_at"][:19] == job["promised_start_at"][:19]
    assert said["starts_at"] > own["starts_at"]
    [later] = await lab.jobs(gpus=3, duration="PT1H")
    promised = (await lab.alice.get(f"/v1/jobs/{later}")).json()["promised_start_at"]
    assert said["starts_at"][:19] == promised[:19]


async def test_a_smaller_request_in_place_of_a_waiting_job_does_not_wait_for_that_job(lab: Lab) -> None:
    """The job's own slot is free for it, and counts against no quota; everybody else's slot stays."""
    await lab.rules(max_gpus=8)
    await lab.jobs(gpus=6, gpu_type="h100", duration="PT2H")
    [job] = await lab.jobs(gpus=8, gpu_type="h100", duration="PT4H")
    promised = (await lab.alice.get(f"/v1/jobs/{job}")).json()["promised_start_at"]
    body = {**JOB, "gpus": 8, "gpu_type": "h100", "duration": "PT4H"}
    beside = await lab.verdict(body)
    same = await lab.verdict({**body, "instead_of": job})
    assert same["starts_at"][:19] == promised[:19] < beside["starts_at"][:19]
    assert (await lab.verdict({**body, "gpus": 2}))["verdict"] == "accepted"
    fewer = await lab.verdict({**body, "gpus": 2, "instead_of": job})
    assert (fewer["verdict"], fewer["broken_rules"]) == ("starts_now", [])
    [used] = [limit["used"] for limit in fewer["limits"] if limit["rule"] == "max_gpus"]
    assert used == 6


async def test_only_a_waiting_job_of_ones_own_can_be_replaced(lab: Lab) -> None:
    [running] = await lab.jobs(gpus=8, gpu_type="h100")
    [waiting] = await lab.jobs(gpus=8, gpu_type="h100")
    body = {**JOB, "gpu_type": "h100"}
    for who, job, status in (
        (lab.alice, waiting, 200), (lab.alice, running, 404), (lab.alice, "job-never", 404), (lab.root, waiting, 404)
    ):  # fmt: skip
        assert (await who.post("/v1/policy/explain", json={**body, "instead_of": job})).status_code == status
    asked_for = {**body, "instead_of": waiting, "user": "alice"}
    assert (await lab.root.post("/v1/policy/explain", json=asked_for)).status_code == 200
    late = {**asked(at(1)), "instead_of": waiting}
    assert (await lab.alice.post("/v1/policy/explain", json=late)).status_code == 422


async def test_an_administrator_hears_the_verdict_on_others(lab: Lab) -> None:
    """Whether they may raise a priority is their own right, not the administrator's."""
    body = {**JOB, "priority": 5}
    assert (await lab.root.post("/v1/policy/explain", json=body)).json()["verdict"] == "starts_now"
    for_alice = {**body, "user": "alice"}
    assert (await lab.root.post("/v1/policy/explain", json=for_alice)).json()["verdict"] == "refused"
    await execute(lab.runtime, "UPDATE users SET disabled_at = now() WHERE name = 'alice'")
    disabled = (await lab.root.post("/v1/policy/explain", json={**JOB, "user": "alice"})).json()
    assert [reason["code"] for reason in disabled["reasons"]] == ["user_disabled"]


async def test_a_token_hears_what_its_budget_refuses(lab: Lab) -> None:
    made = await lab.alice.post("/v1/tokens", json={"name": "agent", "budget": {"gpu_hours": 2}})
    assert made.status_code == 201, made.text
    headers = {"Authorization": f"Bearer {made.json()['token']}"}
    for gpus, expected in ((2, "starts_now"), (3, "refused")):
        body = {**JOB, "gpus": gpus, "duration": "PT1H"}
        said = (await lab.alice.post("/v1/policy/explain", json=body, headers=headers)).json()
        assert said["verdict"] == expected
        status = (await lab.alice.post("/v1/jobs", json=body, headers=headers)).status_code
        assert (status < 400) is (expected != "refused")


async def test_a_request_may_spend_what_the_waiting_job_gives_back_that_it_replaces(lab: Lab) -> None:
    """What that job held before it waited again stays spent, in the budgets of all tokens before this one."""
    made = await lab.alice.post("/v1/tokens", json={"name": "maker", "budget": {"gpu_hours": 9}})
    headers = {"Authorization": f"Bearer {made.json()['token']}"}
    made = await lab.alice.post("/v1/tokens", json={"name": "agent", "budget": {"gpu_hours": 8}}, headers=headers)
    headers = {"Authorization": f"Bearer {made.json()['token']}"}
    await lab.jobs(gpus=8, gpu_type="h100")
    big = {**JOB, "gpus": 8, "gpu_type": "h100", "duration": "PT1H"}
    job = (await lab.alice.post("/v1/jobs", json=big, headers=headers)).json()["id"]

    async def refused(gpus: int, **replaced: str) -> bool:
        body = {**big, "gpus": gpus, **replaced}
        said = (await lab.alice.post("/v1/policy/explain", json=body, headers=headers)).json()
        assert said["allowed"] is (said["verdict"] != "refused") is ("token_budget" not in str(said["broken_rules"]))
        return bool(said["verdict"] == "refused")

    assert await refused(1)
    assert not await refused(8, instead_of=job)
    await execute(
        lab.runtime,
        "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at, released_at) "
        "SELECT :id, 0, min(id), 0, tstzrange(now() - interval '3 hours', now() - interval '1 hour'), false, now(), "
        "now() FROM gpus",
        id=job,
    )
    assert await refused(7, instead_of=job)
    assert not await refused(6, instead_of=job)
    assert (await lab.alice.post(f"/v1/jobs/{job}/cancel", headers=headers)).status_code == 200
    for gpus in (7, 6):
        status = (await lab.alice.post("/v1/jobs", json={**big, "gpus": gpus}, headers=headers)).status_code
        assert (status < 400) is (gpus == 6)
