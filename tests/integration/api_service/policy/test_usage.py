"""Usage over REST."""

import csv
import io
from decimal import Decimal

import httpx

from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import (
    at,
    booked,
    execute,
    said,
)
from tests.integration.api_service.policy.rules_set import earlier, lab

__all__ = ["lab"]


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
                "utilised": [None, None, None],
            }
        ],
        False,
    )
    [more] = (await root.get("/v1/usage", params={**steps, "cursor": series["next_cursor"]})).json()["items"]
    assert (more["key"], more["held_gpu_hours"]) == ("bob", [1.0, 0.0, 0.0])
    for wrong in ({"step": "PT1M"}, {"step": "PT0S"}, {"format": "csv"}):
        assert (await root.get("/v1/usage", params={**steps, **wrong})).status_code == 422, wrong


async def test_steps_say_how_busy_gpus_were(
    alice: httpx.AsyncClient, root: httpx.AsyncClient, runtime: Runtime
) -> None:
    booking = (await booked(alice, at(1), gpus=2, gpu_type="h100"))["id"]
    await earlier(runtime, 5, booking)
    for hours, gpu_type, utilised in ((-5, "h100", 180), (-4, "h100", 360), (-4, "t4", 0), (-1, "h100", 720)):
        await execute(
            runtime,
            "INSERT INTO gpu_use_sums SELECT :at, id, NULL, :gpu_type, 720, :utilised, NULL FROM users "
            "WHERE name = 'alice' RETURNING user_id",
            at=at(hours), gpu_type=gpu_type, utilised=utilised,
        )  # fmt: skip
    steps = {"from": said(at(-5)), "to": said(at(2)), "step": "PT3H"}
    for caller, by, utilised in (
        (root, "user", [0.25, 1.0, None]),
        (alice, "project", [0.25, 1.0, None]),
        (alice, "gpu_type", [0.375, 1.0, None]),
    ):
        [line] = (await caller.get("/v1/usage", params={**steps, "by": by})).json()["items"]
        assert line["utilised"] == utilised, by
