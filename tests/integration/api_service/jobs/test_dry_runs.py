"""`POST /v1/jobs?dry_run=true` says what submitting would do, and does nothing."""

import random
import threading
from contextlib import ExitStack
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from api_service.access.dry_run_turns import MOST, DryRunTurns
from reservation_core.adapters.postgres.planning import planning
from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.domain.plan import Waiting
from reservation_core.domain.planning.predictions.start_predictor import StartPredictor
from reservation_core.domain.planning.predictions.wait_calibration import ENOUGH, LEVELS, LearntWaits
from reservation_core.domain.short_durations import iso8601
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.policy import read_plan
from tests.integration.api_service.bookings.calendars import add_nodes, asked, at, booked_now, execute
from tests.integration.api_service.callers import JOB, submitted
from tests.integration.api_service.policy.test_verdicts import Lab

DRY = {"dry_run": "true"}
SOON = timedelta(seconds=20)


@pytest.fixture
async def lab(alice: httpx.AsyncClient, root: httpx.AsyncClient, runtime: Runtime, settings: ApiSettings) -> Lab:
    """Two nodes of eight h100 and four t4."""
    await add_nodes(runtime, a=("h100", 8), b=("t4", 4))
    return Lab(alice, root, runtime, settings)


async def said(lab: Lab, body: dict[str, Any]) -> dict[str, Any]:
    """The answer to a dry run."""
    answer = await lab.alice.post("/v1/jobs", params=DRY, json=body)
    assert answer.status_code == 200, answer.text
    verdict: dict[str, Any] = answer.json()
    return verdict


async def came(lab: Lab, body: dict[str, Any]) -> tuple[str, str | None]:
    """The verdict and the promise that a job then gets."""
    job = await submitted(lab.alice, **body)
    await lab.plan()
    job = (await lab.alice.get(f"/v1/jobs/{job['id']}")).json()
    if job["status"] != "queued":
        return "starts_now", None
    return "accepted", job["promised_start_at"]


def problem(answer: httpx.Response) -> tuple[int, str, dict[str, Any]]:
    """A refusal, but for the id of its request."""
    return answer.status_code, answer.headers["content-type"], {**answer.json(), "instance": None}


def as_said(verdict: dict[str, Any], came_true: tuple[str, str | None]) -> bool:
    """Whether that is what came true; what starts meanwhile starts, and ends, as much later as the test asks again."""
    status, promise = came_true
    if status != verdict["verdict"] or status == "starts_now":
        return status == verdict["verdict"]
    said_then = verdict["promised_start_at"]
    if promise is None or said_then is None:
        return promise == said_then
    return abs(datetime.fromisoformat(promise) - datetime.fromisoformat(said_then)) < SOON


@pytest.mark.parametrize("seed", range(4))
async def test_a_job_gets_what_its_dry_run_said(lab: Lab, seed: int) -> None:
    """Whether the planner has seen what came before or not, and with quotas that hold jobs back."""
    chance = random.Random(seed)
    await lab.rules(max_gpus=9, max_gpu_hours_per_week=90)
    verdicts = set()
    for _ in range(20):
        body = {
            **JOB,
            "gpus": chance.choice([1, 1, 2, 3, 4, 8]),
            "gpu_type": chance.choice([None, "h100", "t4"]),
            "duration": chance.choice([600, 3600, 7200, 20_000]),
            "priority": chance.choice([0, 0, 0, -1]),
        }
        answer = await lab.alice.post("/v1/jobs", params=DRY, json=body)
        if answer.status_code != 200:
            assert problem(await lab.alice.post("/v1/jobs", json=body)) == problem(answer)
            continue
        assert as_said(answer.json(), await came(lab, body)), body
        verdicts.add(answer.json()["verdict"])
        if chance.random() < 0.4:
            await submitted(lab.root, gpus=chance.choice([1, 2, 4]), duration="PT3H", priority=chance.choice([0, -2]))
        if chance.random() < 0.3:
            [job, *_] = (await lab.alice.get("/v1/jobs", params={"limit": 50})).json()["items"]
            await lab.alice.post(f"/v1/jobs/{job['id']}/cancel")
    assert verdicts == {"starts_now", "accepted"}


async def test_what_would_start_sooner_does(lab: Lab) -> None:
    await lab.jobs(gpus=6, gpu_type="h100", duration="PT2H")
    await lab.jobs(gpus=8, gpu_type="h100", duration="PT2H")
    body = {**JOB, "gpus": 4, "gpu_type": "h100", "duration": "PT5H"}
    verdict = await said(lab, body)
    assert (verdict["verdict"], verdict["queue_position"], verdict["estimated_start"]) == ("accepted", 2, None)
    assert [reason["code"] for reason in verdict["reasons"]] == ["waiting_for_gpus"]
    changes = {nearest["change"]: nearest for nearest in verdict["instead"]}
    assert {
        change: (nearest["gpus"], nearest["gpu_type"], nearest["duration"]) for change, nearest in changes.items()
    } == {"type": (4, "t4", "PT5H")}
    body = {**body, "gpus": 2}
    verdict = await said(lab, body)
    changes = {nearest["change"]: nearest for nearest in verdict["instead"]}
    shorter = changes["shorter"]
    # Two are free until the eight begin, two hours and what beside them counts from now.
    assert (shorter["gpus"], shorter["duration"]) == (2, iso8601(timedelta(hours=1, minutes=45)))
    assert "fewer" not in changes
    assert await came(lab, {**body, "duration": shorter["duration"]}) == ("starts_now", None)


async def test_a_job_that_fits_nowhere_hears_what_would_fit(lab: Lab) -> None:
    verdict = await said(lab, {**JOB, "gpus": 9})
    assert (verdict["verdict"], verdict["promised_start_at"]) == ("accepted", None)
    assert [(nearest["change"], nearest["gpus"]) for nearest in verdict["instead"]] == [("fewer", 8)]
    assert [reason["code"] for reason in verdict["reasons"]] == ["larger_than_any_node"]


async def test_within_a_booking_the_dry_run_holds_too(lab: Lab) -> None:
    made = await booked_now(lab.alice, gpus=2, gpu_type="h100", duration="PT3H")
    body = {**JOB, "booking_id": made["id"], "duration": "PT1H"}
    assert (await said(lab, {**body, "gpus": 2}))["verdict"] == "starts_now"
    await submitted(lab.alice, **{**body, "gpus": 2})  # the planner has not seen it
    verdict = await said(lab, body)
    assert (verdict["verdict"], verdict["queue_position"]) == ("accepted", 2)
    await lab.plan()
    assert as_said(verdict, await came(lab, body))


async def test_a_dry_run_stores_nothing(lab: Lab) -> None:
    await lab.jobs(gpus=8, gpu_type="h100")
    counts = (
        "SELECT (SELECT count(*) FROM reservations), (SELECT count(*) FROM events), "
        "(SELECT count(*) FROM allocations), (SELECT count(*) FROM idempotency_keys), "
        "(SELECT count(*) FROM pgmq.q_gpu_jobs), "
        "pg_sequence_last_value(CAST(pg_get_serial_sequence('reservations', 'seq') AS regclass))"
    )
    before = (await execute(lab.runtime, counts)).one()
    key = {"Idempotency-Key": "one"}
    for body in ({**JOB, "gpus": 8}, JOB, {**JOB, "gpus": 9}):
        answer = await lab.alice.post("/v1/jobs", params=DRY, json=body, headers=key)
        assert answer.status_code == 200
        assert "idempotency-replayed" not in answer.headers
    assert (await execute(lab.runtime, counts)).one() == before
    # The key is still free.
    assert (await lab.alice.post("/v1/jobs", json=JOB, headers=key)).status_code == 202


@pytest.mark.parametrize(
    "body",
    [
        {"gpus": 0},
        {"gpus": "one"},
        {"duration": "P40D"},
        {"priority": 5},
        {"gpu_type": "b200"},
        {"project": "vision"},
        {"booking_id": "bkg-never"},
        {"gpus": 5},
        {"workload": {"command": ["true"], "image": "train:1"}},
        {"inactivity": "PT30M"},
        {"gpus": 8, "gpu_type": "b200", "duration": "P40D", "priority": 5},
    ],
)
async def test_it_refuses_as_submitting_does(lab: Lab, body: dict[str, Any]) -> None:
    await lab.rules(max_gpus=4)
    wanted = {**JOB, **body}
    dry = await lab.alice.post("/v1/jobs", params=DRY, json=wanted)
    real = await lab.alice.post("/v1/jobs", json=wanted)
    assert dry.is_client_error
    assert problem(dry) == problem(real)


async def test_a_budget_refuses_it_too(lab: Lab) -> None:
    made = await lab.alice.post("/v1/tokens", json={"name": "agent", "budget": {"gpu_hours": 2}})
    headers = {"Authorization": f"Bearer {made.json()['token']}"}
    body = {**JOB, "gpus": 3}
    dry = await lab.alice.post("/v1/jobs", params=DRY, json=body, headers=headers)
    real = await lab.alice.post("/v1/jobs", json=body, headers=headers)
    assert problem(dry) == problem(real)
    assert dry.status_code == 409
    for _ in range(2):  # it costs nothing
        dry = await lab.alice.post("/v1/jobs", params=DRY, json={**JOB, "gpus": 2}, headers=headers)
        assert dry.status_code == 200


async def test_it_needs_what_submitting_needs(lab: Lab) -> None:
    made = await lab.alice.post("/v1/tokens", json={"name": "reader", "scopes": ["read"]})
    headers = {"Authorization": f"Bearer {made.json()['token']}"}
    assert (await lab.alice.post("/v1/jobs", params=DRY, json=JOB, headers=headers)).status_code == 403


async def test_yes_and_no_are_understood_and_nothing_else(lab: Lab) -> None:
    for word, status in (("true", 200), ("1", 200), ("false", 202), ("0", 202), ("maybe", 422), ("", 422)):
        answer = await lab.alice.post("/v1/jobs", params={"dry_run": word}, json=JOB)
        assert answer.status_code == status, word


async def test_the_explanation_says_the_same(lab: Lab) -> None:
    await lab.jobs(gpus=8, gpu_type="h100", duration="PT2H")
    await lab.jobs(gpus=4, gpu_type="h100", duration="PT2H")
    body = {**JOB, "gpus": 6, "gpu_type": "h100", "duration": "PT5H"}
    dry, explained = await said(lab, body), await lab.verdict(body)
    for name in ("verdict", "reasons", "estimated_start", "queue_position", "instead"):
        assert explained[name] == dry[name]
    assert explained["starts_at"] == dry["promised_start_at"]
    booking = await lab.verdict(asked(at(1), gpus=2, gpu_type="h100"))
    assert (booking["instead"], booking["queue_position"]) == ([], None)


async def practise(lab: Lab, chance: random.Random) -> None:
    """Jobs of the last days that ran for a part of what they asked for, and waits that came about as predicted."""
    ended = (
        "INSERT INTO reservations (id, kind, user_id, status, reason_code, reason, gpus, gpu_type, nodes, duration, "
        "priority, workload, created_at, changed_at, started_at, finished_at, attempt) "
        "SELECT 'job-past' || n, 'job', u.id, 'succeeded', 'completed', 'It ended.', 1 + n % 2, 'h100', 1, "
        "interval '2 hours', 0, jsonb_build_object('command', jsonb_build_array('true')), t.at, t.at, "
        "t.at - interval '1 minute' * (10 + n % 50), t.at, 1 "
        "FROM users u, generate_series(1, 60) n, LATERAL (SELECT now() - interval '1 hour' * n AS at) t "
        "WHERE u.name = 'alice'"
    )
    await execute(lab.runtime, ended)
    ratios = tuple(chance.gauss(0, 0.3) for _ in range(ENOUGH))
    async with lab.runtime.uow() as uow:
        epoch = await uow.planning.acquire("test", timedelta(hours=1))
        assert epoch is not None
        await uow.learnt_waits.store(epoch, LearntWaits(LEVELS, (ratios, ratios, ratios)))
        await uow.planning.release(epoch)


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


@pytest.mark.parametrize("seed", range(3))
async def test_its_start_is_predicted_as_the_planner_then_does(lab: Lab, seed: int) -> None:
    """What a job gets in its first estimate, never later than its promise."""
    chance = random.Random(seed)
    await practise(lab, chance)
    predicted = 0
    for _ in range(15):
        sizes, types = chance.choice([1, 2, 4, 8]), chance.choice([None, "h100", "t4"])
        body = {**JOB, "gpus": min(sizes, 4) if types == "t4" else sizes, "gpu_type": types, "duration": "PT5H"}
        verdict = await said(lab, body)
        job = await submitted(lab.alice, **body)
        await lab.plan()
        job = (await lab.alice.get(f"/v1/jobs/{job['id']}")).json()
        likely, came_true = verdict["estimated_start"], job["estimated_start"]
        if likely is None:
            assert came_true is None
            continue
        predicted += 1
        assert all(abs(moment(likely[name]) - moment(came_true[name])) < SOON for name in ("p50", "p90"))
        assert moment(likely["p50"]) <= moment(likely["p90"]) <= moment(verdict["promised_start_at"])
    assert predicted > 5


@pytest.mark.parametrize("when", ["succeeded", "started"])
@pytest.mark.parametrize("waits", [False, True])
async def test_a_start_after_other_jobs_is_predicted_as_the_planner_then_does(
    lab: Lab, when: str, *, waits: bool
) -> None:
    """After a job that runs, one that waits, and one that waits for it."""
    await practise(lab, random.Random(0))
    [needed] = await lab.jobs(gpus=8, gpu_type="h100", duration="PT5H")
    [other] = await lab.jobs(gpus=8, gpu_type="h100", duration="PT3H")
    for _ in range(3):
        needed = other if waits else needed
        body = {**JOB, "gpus": 8, "gpu_type": "h100", "after": [{"job": needed, "when": when}]}
        verdict = await said(lab, body)
        job = await submitted(lab.alice, **body)
        await lab.plan()
        job = (await lab.alice.get(f"/v1/jobs/{job['id']}")).json()
        likely, came_true = verdict["estimated_start"], job["estimated_start"]
        assert (verdict["promised_start_at"], verdict["queue_position"]) == (job["promised_start_at"], None)
        assert came_true is not None
        assert all(abs(moment(likely[name]) - moment(came_true[name])) < SOON for name in ("p50", "p90"))
        assert moment(likely["p50"]) <= moment(likely["p90"]) <= moment(verdict["promised_start_at"])
        needed = other = job["id"]


async def test_when_predicting_fails_the_rest_is_said(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("half a job")

    await practise(lab, random.Random(0))
    await lab.jobs(gpus=8, gpu_type="h100", duration="PT5H")
    body = {**JOB, "gpus": 8, "gpu_type": "h100"}
    before = await said(lab, body)
    assert before["estimated_start"] is not None
    with monkeypatch.context() as patch:
        patch.setattr(StartPredictor, "predict_once", fail)
        assert (await said(lab, body))["estimated_start"] is None
    assert (await said(lab, body))["estimated_start"] is not None


async def test_what_is_learnt_meanwhile_counts(lab: Lab) -> None:
    """A server that has just begun knows nothing; the next planner goes on with what the last has learnt."""
    await lab.jobs(gpus=8, gpu_type="h100", duration="PT5H")
    body = {**JOB, "gpus": 8, "gpu_type": "h100"}
    assert (await said(lab, body))["estimated_start"] is None
    await practise(lab, random.Random(0))
    await lab.plan()
    async with lab.runtime.uow() as uow:
        learnt = await uow.learnt_waits.read()
        assert learnt is not None
        assert [len(ratios) for ratios in learnt.ratios] == [ENOUGH] * 3
        # Another planner has the lease: what the former has learnt is too late.
        await uow.learnt_waits.store(-1, LearntWaits(LEVELS, ((), (), ())))
        assert await uow.learnt_waits.read() == learnt


async def test_other_jobs_are_made_beside_the_event_loop_and_only_for_predictions(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    makers: list[str] = []
    make = planning.queued_of

    def noted(*row: Any) -> Waiting:
        makers.append(threading.current_thread().name)
        return make(*row)

    monkeypatch.setattr(planning, "queued_of", noted)
    monkeypatch.setattr(read_plan, "_SLOTTED", 1)
    await practise(lab, random.Random(0))
    await lab.jobs(gpus=8, gpu_type="h100", duration="PT5H", of=4)
    assert (await said(lab, {**JOB, "gpu_type": "t4"}))["verdict"] == "starts_now"
    assert makers == []
    assert (await said(lab, {**JOB, "gpus": 8, "gpu_type": "h100"}))["estimated_start"] is not None
    assert makers == ["dry_run_0"] * 3


@pytest.mark.parametrize("settings", [ApiSettings(estimates=0)])
async def test_nothing_is_read_for_predictions_that_are_switched_off(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[str] = set()
    run = StatementRunner._run

    async def noted(runner: StatementRunner, name: str, /, **parameters: Any) -> Any:
        asked.add(name)
        return await run(runner, name, **parameters)

    monkeypatch.setattr(read_plan, "_SLOTTED", 1)
    await practise(lab, random.Random(0))
    await lab.jobs(gpus=8, gpu_type="h100", duration="PT5H", of=4)
    monkeypatch.setattr(StatementRunner, "_run", noted)
    verdict = await said(lab, {**JOB, "gpus": 8, "gpu_type": "h100"})
    assert (verdict["verdict"], verdict["estimated_start"], verdict["estimates"]) == ("accepted", None, False)
    assert "last_with_slot" in asked
    assert asked.isdisjoint({"others_with_slot", "run_times", "learnt_waits"})


async def test_too_many_dry_runs_at_once_are_put_off(lab: Lab, app: FastAPI) -> None:
    turns: DryRunTurns = app.state.services.dry_run_turns
    with ExitStack() as taken:
        for _ in range(MOST):
            taken.enter_context(turns.take())
        for path in ("/v1/jobs?dry_run=true", "/v1/policy/explain"):
            answer = await lab.alice.post(path, json=JOB)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
            assert problem(answer)[1:] == (
                "application/problem+json",
                {
                    "type": "urn:gpu-dev:problem:busy",
                    "title": "Service Unavailable",
                    "status": 503,
                    "detail": "Too many users ask now when a job would start. Nothing was submitted. "
                    "Try again in a few seconds.",
                    "instance": None,
                },
            )
        assert (await lab.alice.get("/v1/jobs")).json()["items"] == []
    assert (await said(lab, JOB))["verdict"] == "starts_now"
