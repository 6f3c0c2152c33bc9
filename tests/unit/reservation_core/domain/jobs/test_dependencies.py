"""Jobs that wait for others: every order of starts and ends leads where a look at all ends says."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.changes import Adopted, DependenciesMet, DependencyFailed, HeldGpu, Record, WakePlanner
from reservation_core.domain.event_kinds import JobEventKind
from reservation_core.domain.jobs.asked_dependencies import (
    DependencyState,
    DependencyWhen,
    fault_of_dependencies,
    read_dependency,
    written_dependency,
)
from reservation_core.domain.jobs.dependencies import (
    RELEASED,
    KnownDependency,
    kept_start,
    last_first,
    settle,
    still_open,
    waiting_reason,
)
from reservation_core.domain.jobs.lifecycle import transition
from reservation_core.domain.model import PodWorkload, Reservation
from reservation_core.domain.statuses import FINAL_STATUSES, JobStatus, ReasonCode, ReservationKind

NOW = datetime(2030, 1, 7, tzinfo=UTC)
ENDS = [JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.EXPIRED]
Edges = dict[int, dict[int, DependencyWhen]]


def held_job(name: str = "job-b") -> Reservation:
    needed = KnownDependency("job-a", DependencyWhen.SUCCEEDED, JobStatus.QUEUED, started=False)
    return Reservation(
        id=name, seq=2, kind=ReservationKind.JOB, user_id=1, user="ann", name=None, status=JobStatus.QUEUED,
        reason=waiting_reason([needed]), gpus=1, gpu_type=None, nodes=1, duration=timedelta(hours=1), priority=0,
        workload=PodWorkload(), created_at=NOW, version=1, held=True,
    )  # fmt: skip


@pytest.mark.parametrize("when", DependencyWhen)
@pytest.mark.parametrize("status", JobStatus)
@pytest.mark.parametrize("started", [False, True])
def test_states(when: DependencyWhen, status: JobStatus, *, started: bool) -> None:
    over, succeeded = status in FINAL_STATUSES, status is JobStatus.SUCCEEDED
    met = {"succeeded": succeeded, "ended": over, "failed": over and not succeeded, "started": started}[when]
    expected = DependencyState.MET if met else DependencyState.IMPOSSIBLE if over else DependencyState.OPEN
    assert KnownDependency("job-a", when, status, started).state is expected


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Edges, dict[int, JobStatus], dict[int, bool]]:
    """Jobs with what they wait for, how each would end, and whether it would have started before that end."""
    count = draw(st.integers(2, 5))
    edges: Edges = {
        job: draw(st.dictionaries(st.integers(0, job - 1), st.sampled_from(DependencyWhen), max_size=3)) if job else {}
        for job in range(count)
    }
    ends = {job: draw(st.sampled_from(ENDS)) for job in range(count)}
    starts = {job: ends[job] is not JobStatus.CANCELLED or draw(st.booleans()) for job in range(count)}
    return edges, ends, starts


def oracle(edges: Edges, ends: dict[int, JobStatus], starts: dict[int, bool]) -> dict[int, tuple[JobStatus, bool]]:
    """How each job ends and whether it started, decided job by job from how all before it ended."""
    became: dict[int, tuple[JobStatus, bool]] = {}
    for job in sorted(edges):
        fits = {
            DependencyWhen.SUCCEEDED: lambda status, _: status is JobStatus.SUCCEEDED,
            DependencyWhen.ENDED: lambda *_: True,
            DependencyWhen.FAILED: lambda status, _: status is not JobStatus.SUCCEEDED,
            DependencyWhen.STARTED: lambda _, started: started,
        }
        runs = all(fits[when](*became[needed]) for needed, when in edges[job].items())
        became[job] = (ends[job], starts[job]) if runs else (JobStatus.CANCELLED, False)
    return became


def played(
    edges: Edges, ends: dict[int, JobStatus], starts: dict[int, bool], order: Sequence[int]
) -> dict[int, tuple[JobStatus, bool]]:
    """The same by one change at a time: `order` says who starts or ends first of those that may."""
    rows = {job: replace(held_job(f"job-{job}"), held=True if edges[job] else None) for job in edges}

    def known(job: int) -> list[KnownDependency]:
        return [
            KnownDependency(f"job-{needed}", when, rows[needed].status, rows[needed].started_at is not None)
            for needed, when in edges[job].items()
        ]

    def settle_all() -> Iterator[int]:
        for job, row in rows.items():
            event = settle(known(job)) if row.held and row.status is JobStatus.QUEUED else None
            if event is not None:
                rows[job], _ = transition(row, event, NOW)
                yield job

    while any(row.status not in FINAL_STATUSES for row in rows.values()):
        while list(settle_all()):
            pass
        movable = [
            job for job in order if rows[job].status not in FINAL_STATUSES and not (rows[job].held and edges[job])
        ]
        if not movable:
            assert all(row.status in FINAL_STATUSES for row in rows.values()), rows
            break
        job = movable[0]
        if starts[job] and rows[job].started_at is None:
            rows[job] = replace(rows[job], status=JobStatus.RUNNING, started_at=NOW)
        else:
            rows[job] = replace(rows[job], status=ends[job], finished_at=NOW)
    return {job: (row.status, row.started_at is not None) for job, row in rows.items()}


@given(graphs())
def test_every_order_of_ends_leads_to_the_same(graph: tuple[Edges, dict[int, JobStatus], dict[int, bool]]) -> None:
    edges, ends, starts = graph
    expected = oracle(edges, ends, starts)
    for order in permutations(edges):
        assert played(edges, ends, starts, order) == expected


def test_a_released_job_is_planned_and_recorded() -> None:
    after, effects = transition(held_job(), DependenciesMet(), NOW)
    assert (after.held, after.status, after.reason) == (False, JobStatus.QUEUED, RELEASED)
    assert effects == (WakePlanner(), Record(JobEventKind.DEPENDENCIES_MET))


def test_a_job_that_can_never_start_ends_with_the_reason() -> None:
    needed = KnownDependency("job-a", DependencyWhen.SUCCEEDED, JobStatus.FAILED, started=True)
    event = settle([needed])
    assert isinstance(event, DependencyFailed)
    after, effects = transition(held_job(), event, NOW)
    assert (after.status, after.reason.code, after.finished_at) == (
        JobStatus.CANCELLED, ReasonCode.DEPENDENCY_FAILED, NOW,
    )  # fmt: skip
    assert after.reason.detail.startswith("It waited for job-a to succeed, but job-a has failed. Submit this job again")
    assert effects == (WakePlanner(), Record(JobEventKind.CANCELLED))


@pytest.mark.parametrize("changed", [{"held": None}, {"held": False}, {"status": JobStatus.CANCELLED}])
def test_only_held_jobs_change(changed: dict[str, object]) -> None:
    row = replace(held_job(), **changed)
    needed = KnownDependency("job-a", DependencyWhen.SUCCEEDED, JobStatus.FAILED, started=True)
    for event in (DependenciesMet(), settle([needed])):
        assert event is not None
        assert transition(row, event, NOW) == (row, ())


@pytest.mark.parametrize("held", [None, True])
def test_a_held_job_whose_pods_are_found_is_held_no_longer(*, held: bool | None) -> None:
    found = Adopted(1, (HeldGpu("a", 0, 0),), NOW + timedelta(hours=1))
    after, _ = transition(replace(held_job(), held=held), found, NOW)
    assert (after.status, after.held) == (JobStatus.STARTING, None if held is None else False)


def test_reasons_name_the_first_job_and_count_the_others() -> None:
    jobs = [KnownDependency(f"job-{name}", DependencyWhen.ENDED, JobStatus.RUNNING, started=True) for name in "abc"]
    assert waiting_reason(jobs[:1]).detail == "It waits for job-a to end. Its start is not known yet."
    assert waiting_reason(jobs[:2]).detail.startswith("It waits for job-a to end and for 1 other job.")
    assert waiting_reason(jobs).detail.startswith("It waits for job-a to end and for 2 other jobs.")
    met = replace(jobs[0], status=JobStatus.SUCCEEDED)
    assert waiting_reason([met, jobs[1]]).detail == "It waits for job-b to end. Its start is not known yet."
    gone = replace(jobs[2], when=DependencyWhen.SUCCEEDED, status=JobStatus.FAILED)
    told = waiting_reason([jobs[0], gone]).detail
    assert told == "job-c has failed, so this job can never start. It is cancelled in a moment."
    over = replace(jobs[0], status=JobStatus.FAILED)
    assert still_open([over, *jobs[1:]]) == jobs[1:]


def test_reasons_name_the_job_that_decides() -> None:
    """The one of which no end is known, or else the one that is met last."""
    early, late, met = (
        KnownDependency(
            f"job-{name}",
            DependencyWhen.ENDED,
            JobStatus.RUNNING,
            started=True,
            met_by=NOW + hours * timedelta(hours=1),
        )
        for name, hours in (("early", 1), ("late", 2), ("met", 3))
    )
    met = replace(met, status=JobStatus.SUCCEEDED)
    assert waiting_reason([met, early, late]).detail.startswith("It waits for job-late to end and for 1 other job.")
    unknown = replace(early, job="job-unknown", met_by=None)
    assert waiting_reason([early, late, unknown]).detail.startswith("It waits for job-unknown to end")
    assert last_first([met, early, late, unknown]) == (unknown, late, early, met)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("ok:job-a", (DependencyWhen.SUCCEEDED, "job-a")),
        ("job-a", (DependencyWhen.SUCCEEDED, "job-a")),
        ("ANY: train", (DependencyWhen.ENDED, "train")),
        ("ended:x", (DependencyWhen.ENDED, "x")),
        ("failed:x", (DependencyWhen.FAILED, "x")),
        ("started:x", (DependencyWhen.STARTED, "x")),
        ("later:x", None),
        ("ok:", None),
        ("", None),
        (":x", None),
    ],
)
def test_texts(text: str, read: tuple[DependencyWhen, str] | None) -> None:
    assert read_dependency(text) == read


@given(st.sampled_from(DependencyWhen), st.from_regex(r"job-[0-9a-z]{1,32}", fullmatch=True))
def test_what_is_written_is_read_again(when: DependencyWhen, job: str) -> None:
    assert read_dependency(written_dependency(job, when)) == (when, job)


def test_a_job_is_named_once() -> None:
    assert fault_of_dependencies(["job-a", "job-b"]) is None
    assert fault_of_dependencies(["job-a", "job-b", "job-a"]) == "job-a is named twice; name each job once"


def test_a_job_without_gpus_is_told_that_cpus_are_kept() -> None:
    assert kept_start(2).startswith("GPUs are kept")
    assert kept_start(0).startswith("CPUs and memory are kept")
