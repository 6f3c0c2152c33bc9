"""Preemptible jobs over REST: the bounds of their terms, and how they are shown."""

from typing import Any

import httpx
import pytest

from tests.integration.api_service.callers import JOB, submitted

SIGNAL = {"signal": "USR1", "before": 300}
SHOWN = {"signal": "USR1", "before": "PT5M"}


async def test_the_terms_are_shown_with_the_job_and_its_spec(alice: httpx.AsyncClient) -> None:
    accepted = await submitted(alice, preemptible=True, min_runtime="PT1M", end_signal=SIGNAL)
    assert accepted["preemption"] == {"min_runtime": "PT1M", "done": 0, "asked_at": None}
    assert accepted["end_signal"] == SHOWN
    job = (await alice.get(f"/v1/jobs/{accepted['id']}")).json()
    assert (job["preemption"], job["end_signal"]) == (accepted["preemption"], SHOWN)
    spec = (await alice.get(f"/v1/jobs/{accepted['id']}/spec")).json()
    assert (spec["preemptible"], spec["min_runtime"], spec["end_signal"]) == (True, "PT1M", SHOWN)
    again = await alice.post("/v1/jobs", json=spec)
    assert again.status_code == 202
    assert again.json()["preemption"] == accepted["preemption"]


async def test_other_jobs_have_no_such_fields(alice: httpx.AsyncClient) -> None:
    accepted = await submitted(alice)
    job = (await alice.get(f"/v1/jobs/{accepted['id']}")).json()
    spec = (await alice.get(f"/v1/jobs/{accepted['id']}/spec")).json()
    for shown in (accepted, job, spec):
        assert not {"preemption", "end_signal", "preemptible", "min_runtime"} & shown.keys()
    signalled = await submitted(alice, end_signal={"signal": "INT"})
    assert (signalled["end_signal"], "preemption" in signalled) == ({"signal": "INT", "before": "PT1M"}, False)


async def test_a_signal_may_come_at_the_end(alice: httpx.AsyncClient) -> None:
    await submitted(alice, end_signal=SIGNAL, duration=300)
    for zero in (0, "PT0S"):
        job = await submitted(alice, end_signal={"signal": "USR1", "before": zero})
        assert job["end_signal"] == {"signal": "USR1", "before": "PT0S"}


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"min_runtime": 60}, "min_runtime"),
        ({"preemptible": True, "min_runtime": 86_400 * 30}, "min_runtime"),
        ({"preemptible": True, "min_runtime": 0}, "min_runtime"),
        ({"preemptible": True, "min_runtime": 4 * 3600 + 1, "duration": "PT5H"}, "at most 4h"),
        ({"preemptible": "yes"}, "preemptible"),
        ({"preemptible": 1}, "preemptible"),
        ({"preemptible": True, "booking_id": "bkg-1"}, "preemptible"),
        ({"end_signal": {"signal": "KILL"}}, "end_signal.signal"),
        ({"end_signal": {"signal": "usr1"}}, "end_signal.signal"),
        ({"end_signal": {"signal": 10}}, "end_signal.signal"),
        ({"end_signal": {"signal": "USR1", "before": 3601}}, "end_signal.before"),
        ({"end_signal": {"signal": "USR1", "before": -1}}, "end_signal.before: must be at least 0 seconds"),
        ({"end_signal": {"signal": "USR1", "before": 0.5}}, "end_signal.before"),
        ({"end_signal": {"before": 60}}, "end_signal.signal"),
        (
            {"end_signal": SIGNAL, "duration": 299},
            "end_signal: 5m before the end is before the start; it can be at most the duration, 4m59s",
        ),
        ({"end_signal": {"signal": "USR1"}, "duration": 59}, "end_signal: 1m before the end is before the start"),
        ({"end_signal": {**SIGNAL, "to": "all"}}, "end_signal.to"),
        ({"end_signal": "USR1@300"}, "end_signal"),
    ],
)
async def test_what_is_out_of_bounds_is_refused_by_name(
    alice: httpx.AsyncClient, terms: dict[str, Any], said: str
) -> None:
    refused = await alice.post("/v1/jobs", json={**JOB, **terms})
    assert refused.status_code == 422, refused.text
    assert said in refused.text
    assert (await alice.get("/v1/jobs")).json()["items"] == []


async def test_a_dry_run_promises_it_nothing(alice: httpx.AsyncClient) -> None:
    answer = await alice.post("/v1/jobs", params={"dry_run": "true"}, json={**JOB, "preemptible": True})
    assert answer.status_code == 200, answer.text
    assert answer.json()["instead"] == []
