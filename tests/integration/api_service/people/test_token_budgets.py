"""Budgets of tokens: what is asked for with a token, or with one that is made with it, is charged and given back."""

import asyncio
from datetime import timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy.exc import IntegrityError

from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.people.web_sessions import open_session
from reservation_core.usecases.spend_budgets import sum_up_refunds
from tests.integration.api_service.bookings.calendars import add_nodes, asked, at, booked, execute
from tests.integration.api_service.callers import JOB, submitted
from tests.integration.api_service.people.test_token_scopes import client, made

HOURS_4 = {"gpus": 2, "duration": "PT2H"}


@pytest.fixture(autouse=True)
async def lab(runtime: Runtime) -> None:
    """Enough cards that nobody is in anybody's way."""
    await add_nodes(runtime, a=("h100", 8), b=("h100", 8))


async def budget(caller: httpx.AsyncClient, token_id: str) -> dict[str, Any]:
    """As the list of tokens has it."""
    [found] = [token for token in (await caller.get("/v1/tokens")).json()["items"] if token["id"] == token_id]
    shown: dict[str, Any] = found["budget"]
    return shown


async def used(caller: httpx.AsyncClient, token_id: str) -> float:
    hours: float = (await budget(caller, token_id))["used_gpu_hours"]
    return hours


def is_refused(answer: httpx.Response, code: str = "token_budget") -> bool:
    """Whether the budget, and nothing else, said no."""
    if answer.status_code != 409:
        return False
    problem = answer.json()
    assert problem["type"] == "urn:gpu-dev:problem:not_permitted"
    return [rule["code"] for rule in problem["broken_rules"]] == [code]


async def test_what_is_asked_for_is_charged_and_what_is_cancelled_is_given_back(
    app: FastAPI, alice: httpx.AsyncClient
) -> None:
    until = at(1000).isoformat()
    token = await made(alice, budget={"gpu_hours": 10, "until": until})
    assert token["budget"] == {
        "token": token["id"],
        "gpu_hours": 10,
        "until": token["budget"]["until"],
        "used_gpu_hours": 0,
    }
    async with client(app, token["token"]) as caller:
        job = await submitted(caller, **HOURS_4)
        booking = await booked(caller, gpus=2, duration="PT1H")
        assert await used(alice, token["id"]) == 6
        refused = await caller.post("/v1/jobs", json=JOB | {"gpus": 5})
        assert is_refused(refused)
        for word in (
            "asks for 5 GPU-hours",
            f"token {token['id']} has 4 of 10 left",
            f"until {at(1000):%Y-%m-%dT%H:%MZ}",
        ):
            assert word in refused.json()["detail"]
        assert is_refused(await caller.post("/v1/bookings", json=asked(gpus=5)))
        # Nothing of what is refused stays.
        assert len((await caller.get("/v1/jobs")).json()["items"]) == 1
        assert len((await caller.get("/v1/bookings?mine=true")).json()["items"]) == 1
        await submitted(caller, gpus=4)
        assert is_refused(await caller.post("/v1/jobs", json=JOB | {"duration": 1}))
        # Any token of the user may end it: alice has another one.
        assert (await alice.post(f"/v1/jobs/{job['id']}/cancel")).status_code == 200
        assert await used(alice, token["id"]) == 6
        assert (await caller.delete(f"/v1/bookings/{booking['id']}")).status_code == 200
        assert await used(alice, token["id"]) == 4
        await submitted(caller, gpus=6)
    assert await used(alice, token["id"]) == 10


async def test_extensions_are_charged_to_whoever_extends(app: FastAPI, alice: httpx.AsyncClient) -> None:
    token, other = await made(alice, budget={"gpu_hours": 8}), await made(alice, budget={"gpu_hours": 100})
    async with client(app, token["token"]) as caller, client(app, other["token"]) as second:
        job, booking = (await submitted(caller, gpus=2))["id"], (await booked(caller, gpus=2))["id"]
        assert (await caller.post(f"/v1/jobs/{job}/extend", json={"by": "PT1H"})).status_code == 200
        answer = await caller.patch(f"/v1/bookings/{booking}", json={"duration": "PT3H"})
        assert is_refused(answer), answer.text
        assert (await caller.get(f"/v1/bookings/{booking}")).json()["duration"] == "PT1H"
        assert (await caller.patch(f"/v1/bookings/{booking}", json={"duration": "PT2H"})).status_code == 200
        assert await used(alice, token["id"]) == 8
        assert is_refused(await caller.post(f"/v1/jobs/{job}/extend", json={"by": "PT1S"}))
        assert (await second.post(f"/v1/jobs/{job}/extend", json={"by": "PT1H"})).status_code == 200
        assert (await second.patch(f"/v1/bookings/{booking}", json={"duration": "PT4H"})).status_code == 200
        assert (await alice.post(f"/v1/jobs/{job}/extend", json={"by": "PT1H"})).status_code == 200
        assert (await used(alice, token["id"]), await used(alice, other["id"])) == (8, 6)
        # What was asked for last is given back first.
        assert (await caller.patch(f"/v1/bookings/{booking}", json={"duration": "PT90M"})).status_code == 200
        assert (await used(alice, token["id"]), await used(alice, other["id"])) == (7, 2)
        await caller.post(f"/v1/jobs/{job}/cancel")
        assert (await used(alice, token["id"]), await used(alice, other["id"])) == (3, 0)
        await caller.delete(f"/v1/bookings/{booking}")
    assert (await used(alice, token["id"]), await used(alice, other["id"])) == (0, 0)


async def test_a_series_is_charged_as_a_whole(app: FastAPI, alice: httpx.AsyncClient) -> None:
    token = await made(alice, budget={"gpu_hours": 5})
    async with client(app, token["token"]) as caller:
        for dates, fits in ((3, False), (2, True)):
            answer = await caller.post(
                "/v1/bookings", json=asked(gpus=2, recurrence={"rrule": f"FREQ=DAILY;COUNT={dates}"})
            )
            assert is_refused(answer) is not fits, answer.text
        assert await used(alice, token["id"]) == 4
        first = answer.json()["items"][0]["id"]
        assert (await caller.delete(f"/v1/bookings/{first}?series=all")).status_code == 200
    assert await used(alice, token["id"]) == 0


async def test_those_on_the_waitlist_are_charged(
    app: FastAPI, alice: httpx.AsyncClient, root: httpx.AsyncClient
) -> None:
    await booked(root, gpus=8, nodes=2)
    token = await made(alice, budget={"gpu_hours": 5})
    async with client(app, token["token"]) as caller:
        waiting = await caller.post("/v1/bookings", json=asked(gpus=4, wait=True))
        assert waiting.status_code == 202
        assert is_refused(await caller.post("/v1/bookings", json=asked(gpus=2, wait=True)))
        await caller.delete(f"/v1/bookings/{waiting.json()['id']}")
    assert await used(alice, token["id"]) == 0


async def test_jobs_of_a_booking_cost_nothing_more(app: FastAPI, alice: httpx.AsyncClient) -> None:
    token = await made(alice, budget={"gpu_hours": 2})
    async with client(app, token["token"]) as caller:
        booking = (await booked(caller, gpus=2))["id"]
        job = await submitted(caller, gpus=2, booking_id=booking)
        assert await used(alice, token["id"]) == 2
        assert (await caller.post(f"/v1/jobs/{job['id']}/extend", json={"by": 60})).status_code == 200
    assert await used(alice, token["id"]) == 2


async def test_children_spend_what_their_makers_have(
    app: FastAPI, alice: httpx.AsyncClient, root: httpx.AsyncClient
) -> None:
    first = await made(root, budget={"gpu_hours": 10, "until": at(50).isoformat()})
    async with client(app, first["token"]) as maker:
        plain = await made(maker)
        own = await made(maker, user="alice", budget={"gpu_hours": 6})
        assert plain["budget"] == first["budget"]
        assert own["budget"]["until"] == first["budget"]["until"]
        for more in ({"gpu_hours": 11}, {"gpu_hours": 1, "until": at(51).isoformat()}):
            beyond = await maker.post("/v1/tokens", json={"budget": more})
            assert (beyond.status_code, "10 GPU-hours until" in beyond.json()["detail"]) == (403, True)
    async with client(app, own["token"]) as caller:
        grandchild = await made(caller, budget={"gpu_hours": 6})
    async with client(app, grandchild["token"]) as caller:
        job = (await submitted(caller, gpus=5))["id"]
    assert await used(root, first["id"]) == 5
    assert await used(root, plain["id"]) == 5
    assert await used(alice, own["id"]) == 5
    async with client(app, plain["token"]) as caller:
        assert is_refused(await caller.post("/v1/jobs", json=JOB | {"gpus": 6}))
        await submitted(caller, gpus=5)
    async with client(app, own["token"]) as caller:
        refused = await caller.post("/v1/jobs", json=JOB)
        assert is_refused(refused)
        assert f"token {first['id']} has 0 of 10 left" in refused.json()["detail"]
        await caller.post(f"/v1/jobs/{job}/cancel")
    assert [await used(root, token["id"]) for token in (first, own, grandchild)] == [5, 0, 0]


async def test_after_its_end_a_budget_pays_for_nothing(
    app: FastAPI, alice: httpx.AsyncClient, runtime: Runtime
) -> None:
    token = await made(alice, budget={"gpu_hours": 100, "until": at(2).isoformat()})
    async with client(app, token["token"]) as caller:
        job, booking = (await submitted(caller))["id"], (await booked(caller))["id"]
        within = (await submitted(caller, booking_id=booking))["id"]
        await execute(runtime, "UPDATE token_budgets SET until = clock_timestamp() - interval '1 second'")
        for answer in (
            await caller.post("/v1/jobs", json=JOB),
            await caller.post("/v1/jobs", json=JOB | {"booking_id": booking}),
            await caller.post("/v1/bookings", json=asked()),
            await caller.post(f"/v1/jobs/{job}/extend", json={"by": 1}),
            await caller.post(f"/v1/jobs/{within}/extend", json={"by": 1}),
            await caller.patch(f"/v1/bookings/{booking}", json={"duration": "PT2H"}),
        ):
            assert is_refused(answer, "token_budget_over"), answer.text
        # Everything else goes on.
        assert (await caller.get(f"/v1/jobs/{job}")).status_code == 200
        moved = await caller.patch(f"/v1/bookings/{booking}", json={"start": at(5).isoformat()})
        assert moved.status_code == 200, moved.text
        assert (await caller.post(f"/v1/jobs/{job}/cancel")).status_code == 200
        assert (await caller.delete(f"/v1/bookings/{booking}")).status_code == 200


async def test_a_renewed_token_has_the_same_budget(app: FastAPI, alice: httpx.AsyncClient) -> None:
    token = await made(alice, budget={"gpu_hours": 3})
    async with client(app, token["token"]) as caller:
        await submitted(caller, gpus=2)
        renewed = await caller.post("/v1/tokens/renew", json={"token": "n" * 40})
    assert renewed.json()["budget"]["used_gpu_hours"] == 2
    async with client(app, "n" * 40) as caller:
        assert is_refused(await caller.post("/v1/jobs", json=JOB | {"gpus": 2}))
        await submitted(caller)


async def test_who_asks_whether_they_may_hears_the_same(app: FastAPI, alice: httpx.AsyncClient) -> None:
    token = await made(alice, budget={"gpu_hours": 3})
    async with client(app, token["token"]) as caller:
        await submitted(caller)
        explained = (await caller.post("/v1/policy/explain", json={"gpus": 3, "duration": "PT1H"})).json()
        [rule] = explained["broken_rules"]
        refused = (await caller.post("/v1/jobs", json=JOB | {"gpus": 3})).json()
        assert (explained["allowed"], explained["possible_from"]) == (False, None)
        assert rule["detail"] == refused["broken_rules"][0]["detail"]
        assert (await caller.post("/v1/policy/explain", json={"gpus": 2, "duration": "PT1H"})).json()["allowed"]
        for hours, fits in ((3, False), (2, True)):
            tried = await caller.post("/v1/bookings?dry_run=true", json=asked(gpus=hours))
            assert is_refused(tried) is not fits, tried.text
    assert await used(alice, token["id"]) == 1


async def test_a_repeated_request_is_charged_once(app: FastAPI, alice: httpx.AsyncClient) -> None:
    token = await made(alice, budget={"gpu_hours": 2})
    async with client(app, token["token"]) as caller:
        for path, body in (("/v1/jobs", JOB), ("/v1/bookings", asked())):
            headers = {"Idempotency-Key": path}
            first = await caller.post(path, json=body, headers=headers)
            again = await asyncio.gather(*(caller.post(path, json=body, headers=headers) for _ in range(3)))
            assert {answer.json()["id"] for answer in again} == {first.json()["id"]}
        assert await used(alice, token["id"]) == 2
        refused = await caller.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": "another"})
        assert is_refused(refused)
        # A refusal is not kept: the key is judged anew.
        await caller.post(f"/v1/jobs/{(await caller.get('/v1/jobs')).json()['items'][0]['id']}/cancel")
        assert (await caller.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": "another"})).status_code == 202


async def test_of_many_at_once_only_those_pass_that_fit(
    app: FastAPI, alice: httpx.AsyncClient, runtime: Runtime
) -> None:
    """Two children and their maker ask for one hour each, again and again. A cancelled request may be had anew."""
    token = await made(alice, budget={"gpu_hours": 7})
    async with client(app, token["token"]) as maker:
        children = [await made(maker, budget={"gpu_hours": 4}), await made(maker)]
    async with (
        client(app, token["token"]) as first,
        client(app, children[0]["token"]) as second,
        client(app, children[1]["token"]) as third,
    ):
        posts = [
            caller.post("/v1/jobs", json=JOB) if number % 2 else caller.post("/v1/bookings", json=asked(at(1 + number)))
            for number in range(10)
            for caller in (first, second, third)
        ]
        answers = await asyncio.gather(*posts, *(sum_up_refunds(runtime.uow) for _ in range(5)))
        passed = [answer for answer in answers[: len(posts)] if not is_refused(answer)]
        assert [answer.status_code // 100 for answer in passed] == [2] * 7
        assert await used(alice, token["id"]) == 7
        assert await used(alice, children[0]["id"]) <= 4
        jobs = [answer.json()["id"] for answer in passed if answer.json()["id"].startswith("job-")]
        cancels = [first.post(f"/v1/jobs/{job}/cancel") for job in jobs]
        more = [third.post("/v1/jobs", json=JOB) for _ in range(10)]
        answers = await asyncio.gather(*cancels, *more)
        new = [answer for answer in answers[len(cancels) :] if not is_refused(answer)]
        assert {answer.status_code for answer in new} <= {202}
        assert await used(alice, token["id"]) == 7 - len(jobs) + len(new)


async def test_a_browsers_session_spends_its_tokens_budget(
    app: FastAPI, alice: httpx.AsyncClient, runtime: Runtime
) -> None:
    token = await made(alice, budget={"gpu_hours": 1})
    now = runtime.clock.now()
    async with runtime.uow() as uow:
        shown = await uow.identities.principal(runtime.ids.digest(token["token"]), now)
        assert shown is not None
        session = await open_session(uow, shown, lasts=timedelta(hours=1), ids=runtime.ids, now=now)
        principal = await uow.identities.principal(runtime.ids.digest(session.secret), now)
    assert principal is not None
    assert principal.budget_id == token["id"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"gpu_hours": 0},
        {"gpu_hours": -1},
        {"gpu_hours": 2e9},
        {"gpu_hours": "8"},
        {"until": "2040-01-01T00:00:00Z"},
        {"gpu_hours": 1, "until": 2_000_000_000},
        {"gpu_hours": 1, "until": "2040-01-01T00:00"},
        {"gpu_hours": 1, "more": 1},
    ],
)
async def test_budgets_are_bounded(alice: httpx.AsyncClient, wrong: dict[str, Any]) -> None:
    assert (await alice.post("/v1/tokens", json={"budget": wrong})).status_code == 422


async def test_a_budget_ends_in_the_future(alice: httpx.AsyncClient) -> None:
    for when in (at(-5), at(24 * 3661)):
        answer = await alice.post("/v1/tokens", json={"budget": {"gpu_hours": 1, "until": when.isoformat()}})
        assert (answer.status_code, "`budget.until`" in answer.json()["detail"]) == (403, True)


async def test_the_database_lets_no_budget_be_overdrawn(
    app: FastAPI, alice: httpx.AsyncClient, runtime: Runtime
) -> None:
    token = await made(alice, budget={"gpu_hours": 1})
    with pytest.raises(IntegrityError, match="token_budgets_suffice"):
        await execute(runtime, "UPDATE token_budgets SET charged_us = gpu_us + 1 WHERE id = :id", id=token["id"])
    async with client(app, token["token"]) as maker:
        child = await made(maker)
    # A child has no other budget, whatever is written for it.
    await execute(
        runtime,
        "INSERT INTO tokens (id, user_id, digest, created_at, made_with, budget_id)"
        " SELECT 'tok-x', user_id, decode(repeat('00', 32), 'hex'), created_at, id, 'tok-none' FROM tokens"
        " WHERE id = :id",
        id=child["id"],
    )
    found = await execute(runtime, "SELECT budget_id FROM tokens WHERE id = 'tok-x'")
    assert found.scalar_one() == token["id"]
