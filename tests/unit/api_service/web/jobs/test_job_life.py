"""A job's life on its page: each state with its span, and each reason once."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from api_service.web.jobs.job_life import life_of
from reservation_core.domain.model import Reason
from reservation_core.domain.statuses import ReasonCode
from reservation_core.ports.history.events import EventRecord

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
RUNS = Reason(ReasonCode.RUNNING, "Running until 14:00 at the latest.")
ENDS = Reason(ReasonCode.COMPLETED, "The command ended with exit code 0.")


def event(minute: int, kind: str, before: str | None, after: str | None, reason: Reason | None) -> EventRecord:
    return EventRecord(minute, "job-1", NOW + timedelta(minutes=minute), "system", kind, before, after, reason, {})


def test_a_reason_is_said_once() -> None:
    steps = life_of(
        [
            event(0, "started", "starting", "running", RUNS),
            event(1, "idle_warning", "running", "running", RUNS),
            event(2, "kept", "running", "running", RUNS),
            event(3, "finished", "running", "ending", ENDS),
            event(4, "succeeded", "ending", "succeeded", ENDS),
        ],
        NOW,
    )
    assert [(step.words, step.why) for step in steps] == [
        ("running", RUNS.detail),
        ("its GPUs are idle", None),
        ("kept, although its GPUs are idle", None),
        ("ending", ENDS.detail),
        ("succeeded", None),
    ]
    assert [step.lasted for step in steps] == [timedelta(minutes=3), None, None, timedelta(minutes=1), None]


def test_a_missed_promise_says_why() -> None:
    missed = replace(event(1, "start_promise_missed", None, None, None), data={"because": "Node n1 was cordoned."})
    [step] = life_of([missed], NOW)
    assert (step.words, step.why) == ("promised start lost", "Node n1 was cordoned.")
