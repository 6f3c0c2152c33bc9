"""What `gpu-dev submit` says of a job that waits."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gpu_dev.display.output import Format
from gpu_dev.display.verdicts import show_verdict, wait_words
from reservation_core.contracts.jobs import Job
from reservation_core.contracts.policy import Explanation

UNTIL = "2026-11-26T13:20:00Z"
FULL = {"code": "waiting_for_gpus", "detail": "Until then, other jobs or bookings hold GPUs that it needs."}
QUOTA = {"code": "quota_reached", "detail": "The limit is 4 until 2026-11-26T12:00:00Z."}


@pytest.fixture(autouse=True)
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def job(**changed: Any) -> Job:
    created = "2026-11-26T12:50:00Z"
    line = {
        "id": "job-7f3k9q2m", "name": None, "user": "ada", "status": "queued",
        "reason": {"code": "submitted", "detail": "It waits."}, "gpus": 2, "gpu_type": "h100", "nodes": 1,
        "duration": "PT1H", "priority": 0, "created_at": created, "queue_position": None, "estimated_start_at": None,
        "started_at": None, "ends_at": None, "finished_at": None, "exit_code": None, "allocations": [],
    }  # fmt: skip
    return Job.model_validate_json(json.dumps(line | changed))


def answered(verdict: str = "accepted", starts_at: str | None = UNTIL, *reasons: dict[str, str]) -> Explanation:
    answer = {
        "verdict": verdict, "starts_at": starts_at, "reasons": list(reasons), "allowed": True, "kind": "job",
        "broken_rules": [], "possible_from": None, "limits": [], "exceptions": [],
    }  # fmt: skip
    return Explanation.model_validate_json(json.dumps(answer))


@pytest.mark.parametrize(
    ("changed", "gpus"),
    [
        ({}, "2 h100"),
        ({"gpu_type": None}, "2 GPUs"),
        ({"gpu_type": None, "gpus": 1}, "1 GPU"),
        ({"gpu_type": None, "gpus": 1, "nodes": 2}, "1 GPU on each of 2 nodes"),
    ],
)
def test_what_it_waits_for(changed: dict[str, Any], gpus: str) -> None:
    words = wait_words(job(**changed), answered("accepted", UNTIL, FULL))
    assert words == f"Waits for {gpus} until about Thu 26 Nov 2026 14:20 CET."


def test_why_it_waits() -> None:
    said = "Waits until about Thu 26 Nov 2026 14:20 CET: "
    quota = "The limit is 4 until Thu 26 Nov 2026 13:00 CET."
    assert wait_words(job(), answered("accepted", UNTIL, QUOTA)) == said + quota
    assert wait_words(job(), answered("accepted", UNTIL, QUOTA, FULL)) == f"{said}{quota} {FULL['detail']}"
    within = job(booking_id="bkg-7f3k9q2m")
    assert wait_words(within, answered("accepted", UNTIL, FULL)) == said + FULL["detail"]
    assert wait_words(job(), answered("accepted", None, QUOTA)) == f"It waits, and no start is known: {quota}"
    assert wait_words(job(), answered("accepted", None)) == "It waits, and no start is known."


def test_what_can_not_start_on_the_nodes_that_are_here() -> None:
    large = {"code": "larger_than_any_node", "detail": "It asks for 9 GPUs on one node, and the largest node has 4."}
    answer = answered("accepted", None, large)
    assert wait_words(job(), answer) == (
        f"It can't start on the nodes that are here. {large['detail']} Cancel it: gpu-dev cancel job-7f3k9q2m"
    )
    assert show_verdict(answer, Format.TABLE).splitlines()[0] == (
        "Accepted, but it can't start on the nodes that are here, because:"
    )


@pytest.mark.parametrize(
    ("verdict", "starts_at"),
    [("starts_now", "2026-11-26T12:50:00Z"), ("refused", None), ("accepted", "2026-11-26T12:50:59Z")],
)
def test_nothing_is_said_of_a_job_that_starts_at_once(verdict: str, starts_at: str | None) -> None:
    """What REST refuses after the job was submitted, such as a budget that counts it twice, is no news either."""
    assert wait_words(job(), answered(verdict, starts_at, FULL)) is None


def test_a_refused_job_is_told_no_start_that_its_rules_allow() -> None:
    """A job has no start to choose."""
    rule = {
        "code": "max_gpu_hours_per_week",
        "detail": "4 GPU-hours are asked for.",
        "possible_from": UNTIL,
        "ask_from": None,
    }
    refused = answered("refused", None, {"code": rule["code"], "detail": rule["detail"]})
    fields = {**refused.model_dump(mode="json"), "broken_rules": [rule], "possible_from": UNTIL}
    assert "a start from" not in show_verdict(Explanation.model_validate(fields), Format.TABLE)
    booking = Explanation.model_validate({**fields, "kind": "booking"})
    assert "All rules allow a start from Thu 26 Nov 2026 14:20 CET." in show_verdict(booking, Format.TABLE)
