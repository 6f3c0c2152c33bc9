"""Fields of jobs and nodes, and who sees them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_service.access.sight import Sight
from api_service.presenting import jobs_and_nodes
from reservation_core.domain.model import AllocatedGpu, PodWorkload, Reason, Reservation
from reservation_core.domain.statuses import GpuState, JobStatus, ReasonCode, ReservationKind, Role
from reservation_core.ports.history.audit import RecordedEvent
from reservation_core.ports.jobs.reservations import JobView
from reservation_core.ports.nodes.inventory import GpuView
from reservation_core.ports.people.identities import Principal

NOW = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
ALICE = Principal(1, "alice", Role.USER, "tok-1", None)
BOB = Principal(2, "bob", Role.USER, "tok-2", None)
ROOT = Principal(3, "root", Role.ADMIN, "tok-3", None)
JOB = Reservation(
    id="job-7f3k9q2m",
    seq=1,
    kind=ReservationKind.JOB,
    user_id=1,
    user="alice",
    name=None,
    status=JobStatus.RUNNING,
    reason=Reason(ReasonCode.RUNNING, "Running."),
    gpus=2,
    gpu_type="h100",
    nodes=2,
    duration=timedelta(hours=4, minutes=1),
    priority=0,
    workload=PodWorkload(command=("true",), env=(("SECRET", "s3cr3t"),)),
    created_at=NOW,
    version=3,
    attempt=1,
)


def _gpu(rank: int, index: int) -> AllocatedGpu:
    return AllocatedGpu(rank * 8 + index, f"node-{rank}", index, f"GPU-{rank}{index}", rank, NOW, NOW, held=True)


def test_a_gang_has_one_allocation_a_pod_in_order() -> None:
    shown = jobs_and_nodes.job(JobView(JOB, None, None, (_gpu(1, 3), _gpu(0, 5), _gpu(1, 2), _gpu(0, 4))))
    assert [(a.node, a.gpu_indices, a.gpu_uuids, a.pod) for a in shown.allocations] == [
        ("node-0", [4, 5], ["GPU-04", "GPU-05"], "job-7f3k9q2m-1-0"),
        ("node-1", [2, 3], ["GPU-12", "GPU-13"], "job-7f3k9q2m-1-1"),
    ]


def test_times_and_durations_are_as_the_wire_wants_them() -> None:
    text = jobs_and_nodes.job(JobView(JOB, 4, NOW + timedelta(days=1), ())).model_dump_json()
    assert '"created_at":"2026-01-02T03:04:05.678Z"' in text
    assert '"duration":"PT4H1M"' in text
    assert '"queue_position":4,"estimated_start_at":"2026-01-03T03:04:05.678Z"' in text


def test_a_workload_and_its_secrets_are_never_shown() -> None:
    assert "s3cr3t" not in jobs_and_nodes.job(JobView(JOB, None, None, ())).model_dump_json()


def test_whose_pods_were_late_is_told_to_those_who_see_everybody() -> None:
    line = RecordedEvent(1, NOW, "system", "start_promise_missed", JOB.id, None, None, None, None, {"late": ["job-b"]})
    for sight, late in ((Sight(ALICE), [None]), (Sight(ALICE, None), ["job-b"]), (Sight(ROOT), ["job-b"])):
        assert jobs_and_nodes.audit_event(line, sight).data == {"late": late}


def test_a_holder_is_named_only_to_itself_and_to_administrators() -> None:
    held = GpuView("n", 0, None, "h100", None, GpuState.HELD, JOB.id, "alice", 1, NOW)
    assert jobs_and_nodes.gpu(held, Sight(ALICE)).model_dump()["holder"] == {
        "id": JOB.id,
        "user": "alice",
        "yours": True,
    }
    assert jobs_and_nodes.gpu(held, Sight(BOB)).model_dump()["holder"] == {"id": None, "user": None, "yours": False}
    assert jobs_and_nodes.gpu(held, Sight(ROOT)).model_dump()["holder"] == {
        "id": JOB.id,
        "user": "alice",
        "yours": False,
    }
    free = replace(held, state=GpuState.FREE, holder_id=None, holder_user=None, holder_user_id=None, free_at=None)
    assert jobs_and_nodes.gpu(free, Sight(BOB)).holder is None


@given(
    name=st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20),
    seconds=st.integers(1, 90 * 86_400),
    created_at=st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    gpu_type=st.none() | st.just("h100"),
    priority=st.integers(-100, 100),
)
def test_an_accepted_job_is_shown_as_any_job_is(
    name: str | None, seconds: int, created_at: datetime, gpu_type: str | None, priority: int
) -> None:
    row = replace(
        JOB,
        status=JobStatus.QUEUED,
        reason=Reason(ReasonCode.SUBMITTED, 'Accepted \u2013 "soon".'),
        name=name,
        duration=timedelta(seconds=seconds),
        created_at=created_at,
        gpu_type=gpu_type,
        priority=priority,
    )
    assert (
        jobs_and_nodes.encode_accepted(row)
        == jobs_and_nodes.job(JobView(row, None, None, (), shared_with=())).model_dump_json().encode()
    )


@pytest.mark.parametrize(
    ("reason", "data", "shown"),
    [
        ("Cancelled by ann.", {"why": "something else"}, "Cancelled by ann."),
        (None, {"why": "3 errors within 24 h", "job": "job-1"}, "3 errors within 24 h"),
        (None, {"reason": "a fan is replaced"}, "a fan is replaced"),
        (None, {"reason": None}, None),
        (None, {"why": 7}, None),
        (None, {}, None),
    ],
)
def test_an_event_of_the_audit_log_says_why(reason: str | None, data: dict[str, Any], shown: str | None) -> None:
    record = RecordedEvent(1, NOW, "system", "gpu_quarantined", "vm/1", None, None, None, reason, data)
    found = jobs_and_nodes.audit_event(record, Sight(ROOT))
    assert (found.reason, found.data) == (shown, data)
