"""Explanations of what a request would meet, before it is made."""

from datetime import datetime

import httpx
import pytest

from tests.integration.api_service.bookings.calendars import (
    HOUR,
    asked,
    at,
    booked,
    said,
)
from tests.integration.api_service.policy.rules_set import lab, put

__all__ = ["lab"]


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
