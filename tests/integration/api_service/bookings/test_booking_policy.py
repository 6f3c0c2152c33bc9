"""The policy holds at every commit of a booking, also for requests that come at once; slots that are named obey it."""

import asyncio
from datetime import datetime, timedelta

import httpx
import pytest

from reservation_core.domain.policy.limits import Relaxation, Rules
from reservation_core.domain.policy.nouns import RuleName, Scope
from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import HOUR, add_nodes, asked, at, booked, said


@pytest.fixture(autouse=True)
async def lab(runtime: Runtime) -> None:
    """Enough cards of two types that only rules stand in the way."""
    await add_nodes(runtime, a=("h100", 8), b=("t4", 8))


async def rule(runtime: Runtime, scope: Scope | None = None, **rules: object) -> None:
    """An administrator's rule."""
    async with runtime.uow() as uow:
        await uow.policies.replace_rule(
            scope or Scope(),
            Rules(**rules),
            by="root",
            from_file=False,
            now=runtime.clock.now(),  # type: ignore[arg-type]
        )


def codes(response: httpx.Response) -> list[str]:
    """The rules that a refusal names."""
    assert response.status_code == 409, response.text
    assert response.json()["type"] == "urn:gpu-dev:problem:not_bookable"
    return [rule["code"] for rule in response.json()["broken_rules"]]


async def test_a_quota_holds_for_requests_that_come_at_once(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    await rule(runtime, max_gpus=3)
    answers = await asyncio.gather(*(alice.post("/v1/bookings", json=asked()) for _ in range(10)))
    assert sorted(answer.status_code for answer in answers) == [201] * 3 + [409] * 7
    assert all(codes(answer) == ["max_gpus"] for answer in answers if answer.status_code == 409)


async def test_a_quota_holds_for_requests_that_are_not_in_each_others_way(
    alice: httpx.AsyncClient, runtime: Runtime
) -> None:
    """No card is wanted twice, so that nothing but the user's row makes them wait for each other."""
    await rule(runtime, max_open_bookings=3)
    answers = await asyncio.gather(*(alice.post("/v1/bookings", json=asked(at(n))) for n in range(10)))
    assert sorted(answer.status_code for answer in answers) == [201] * 3 + [409] * 7


async def test_every_rule_is_told_with_slots_that_obey_all(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    await rule(runtime, max_gpus=2, min_notice=timedelta(hours=5), max_duration=timedelta(hours=3))
    await rule(runtime, Scope(user="bob"), max_gpus=1)
    refused = await alice.post("/v1/bookings", json=asked(at(1), gpus=1, duration="PT4H"))
    assert set(codes(refused)) == {"min_notice", "max_duration"}
    assert "nearest_slots" not in refused.json()
    # It says what to change, once.
    assert refused.json()["detail"] == " ".join(rule["detail"] for rule in refused.json()["broken_rules"])
    soon = await alice.post("/v1/bookings", json=asked(at(1)))
    assert codes(soon) == ["min_notice"]
    starts = [datetime.fromisoformat(slot["start"]) for slot in soon.json()["nearest_slots"]]
    assert len(starts) >= 3
    assert min(starts) >= datetime.now(min(starts).tzinfo) + 5 * HOUR - timedelta(minutes=1)
    for start in starts[:2]:
        await booked(alice, start)


async def test_a_type_that_the_rules_forbid_is_not_given(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    await rule(runtime, Scope(gpu_type="h100"), max_gpus=1)
    assert (await booked(alice, gpus=2))["gpu_type"] == "t4"
    assert codes(await alice.post("/v1/bookings", json=asked(gpus=2, gpu_type="h100"))) == ["max_gpus"]


async def test_changes_obey_the_rules_and_less_is_always_allowed(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    booking = await booked(alice, at(1), duration="PT4H")
    await rule(runtime, max_duration=timedelta(hours=2), min_notice=timedelta(hours=50))
    path = f"/v1/bookings/{booking['id']}"
    assert codes(await alice.patch(path, json={"duration": "PT5H"})) == ["max_duration"]
    shorter = await alice.patch(path, json={"duration": "PT3H"})
    assert (shorter.status_code, shorter.json()["end"]) == (200, said(at(4)))


async def test_dates_of_a_series_count_against_each_other(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    await rule(runtime, max_open_bookings=3)
    series = {"rrule": "FREQ=DAILY;COUNT=5", "on_conflict": "skip"}
    answer = await alice.post("/v1/bookings", json=asked(recurrence=series))
    assert answer.status_code == 201, answer.text
    assert len(answer.json()["items"]) == 3
    assert [date["broken_rules"][0]["code"] for date in answer.json()["skipped"]] == ["max_open_bookings"] * 2
    refused = await alice.post("/v1/bookings", json=asked(recurrence="FREQ=DAILY;COUNT=2"))
    assert codes(refused) == ["max_open_bookings"]  # one reason for both dates


async def test_an_exception_for_what_begins_soon(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    soon = Relaxation(timedelta(hours=3), frozenset({RuleName.MAX_GPUS}))
    await rule(runtime, max_gpus=1, relaxed_if_starts_within=(soon,))
    await booked(alice, at(0), gpus=4)
    assert codes(await alice.post("/v1/bookings", json=asked(at(9), gpus=4))) == ["max_gpus"]


async def test_a_project_is_for_its_members(alice: httpx.AsyncClient, bob: httpx.AsyncClient, runtime: Runtime) -> None:
    async with runtime.uow() as uow:
        await uow.projects.create("vision", None, runtime.clock.now())
        user = await uow.identities.user("alice")
        assert user is not None
        await uow.projects.add_member("vision", user.id)
    assert (await booked(alice, project="vision"))["project"] == "vision"
    # What a project may and does hold is told to nobody else.
    await rule(runtime, Scope(project="vision"), max_gpus=1)
    assert codes(await alice.post("/v1/bookings", json=asked(project="vision"))) == ["max_gpus"]
    assert codes(await bob.post("/v1/bookings", json=asked(project="vision"))) == ["no_such_project"]
    explained = (await bob.post("/v1/policy/explain", json=asked(project="vision"))).json()
    assert [breach["code"] for breach in explained["broken_rules"]] == ["no_such_project"]
    assert explained["limits"] == []


async def test_missing_cards_are_told_beside_the_rules(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, runtime: Runtime
) -> None:
    await rule(runtime, Scope(user="alice"), min_notice=timedelta(hours=5))
    await booked(bob, at(1), gpus=8, gpu_type="t4")
    wish = asked(at(1), gpu_type="t4")
    assert codes(await alice.post("/v1/bookings", json=wish)) == ["min_notice", "no_free_gpus"]
    series = {**wish, "recurrence": "FREQ=DAILY;COUNT=2"}
    assert codes(await alice.post("/v1/bookings", json=series)) == ["min_notice", "no_free_gpus"]
    mine = await booked(alice, at(9), gpu_type="t4")
    moved = await alice.patch(f"/v1/bookings/{mine['id']}", json={"start": said(at(1))})
    assert codes(moved) == ["min_notice", "no_free_gpus"]
    # For who would wait, cards are not in the way; and there is no telling of cards that there are not.
    assert codes(await alice.post("/v1/bookings", json={**wish, "wait": True})) == ["min_notice"]
    assert codes(await alice.post("/v1/bookings", json=asked(at(1), gpus=9))) == ["min_notice", "larger_than_any_node"]
    assert codes(await alice.post("/v1/bookings", json=asked(at(1), gpu_type="h100"))) == ["min_notice"]
