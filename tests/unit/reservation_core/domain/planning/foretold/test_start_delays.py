"""All that delays a job within quotas is said, each with its time: to the job, and before it is made."""

from dataclasses import replace
from datetime import datetime

import pytest

from reservation_core.domain.plan import Commitment, Waiting
from reservation_core.domain.planning.dry_runs import PlanView
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.planning.request_verdicts import job_outlook
from reservation_core.domain.planning.slot_decisions import plan_slots
from reservation_core.domain.planning.start_decisions import plan_starts
from reservation_core.domain.planning.wait_estimates import estimate_waits
from reservation_core.domain.policy.limits import Policy, PolicyRule, Rules
from reservation_core.domain.policy.nouns import Scope
from reservation_core.domain.policy.quota_book import QuotaBook
from reservation_core.domain.policy.rule_words import moment_text
from reservation_core.domain.policy.rules import Holding
from reservation_core.domain.statuses import ReservationKind
from tests.unit.reservation_core.domain.planning.worlds import T0, at, held, job, node, snapshot

NODES = (node("n", 3, first_id=1),)
NAMES = {0: "ann"}
POLICY = Policy([PolicyRule(Scope(user="ann"), Rules(max_gpus=2))])
GPUS = "other jobs or bookings hold GPUs that it needs: 2 h100 GPUs on one node for its whole duration."
ASKED = "Asked for: 2 GPUs beside 1 of the same user"


def told(wish: Waiting, rows: tuple[Commitment, ...]) -> tuple[datetime | None, str, str]:
    """The start and the reason of a waiting job, with a code. Ann has the second GPU; the dry run says the same."""
    holdings = [
        Holding(row.reservation_id, ReservationKind.JOB, "ann", None, "h100", 1, row.start, row.end)
        for row in rows
        if row.gpu_id == 2
    ]
    outlook = job_outlook(
        PlanView(snapshot(NODES, rows, ()), POLICY, NAMES, holdings, {}, 10), wish, wish.length, (), T0
    )
    picture = Picture(snapshot(NODES, rows, [wish]))
    picture.set_quotas(QuotaBook(POLICY, NAMES))
    picture.note_held(holdings)
    # The reason does not depend on how far the planner has come.
    [first] = estimate_waits(picture, T0, 1)
    assert plan_starts(picture, T0, 1) == []
    while plan_slots(picture, T0, 10, 10).more:
        pass
    [estimate] = estimate_waits(picture, T0, 1)
    assert estimate == first
    assert estimate.estimated_start_at == outlook.starts_at
    if "quota_reached" in [reason.code for reason in outlook.reasons]:
        assert estimate.reason.detail == " ".join(reason.detail for reason in outlook.reasons)
    return estimate.estimated_start_at, estimate.reason.code.value, estimate.reason.detail


def allowed(minutes: int) -> str:
    return f"the limit is 2 at once (user ann). It is allowed from {moment_text(at(minutes))}."


@pytest.mark.parametrize("taken", [0, 30])
def test_a_later_booking_of_ones_own_delays_a_job_that_has_gpus(taken: int) -> None:
    rows = (held("own", 2, 20 + taken, 150, is_held=False),)
    start, code, detail = told(job(1, 2, minutes=60), rows)
    assert (start, code) == (at(150), "quota_reached")
    assert detail == f"{ASKED} from {moment_text(at(20 + taken))} on; {allowed(150)}"


def test_gpus_delay_it_first_and_a_quota_then() -> None:
    rows = (held("r1", 1, 0, 60), held("r3", 3, 0, 60), held("own", 2, 90, 150, is_held=False))
    start, code, detail = told(job(1, 2, minutes=40), rows)
    assert (start, code) == (at(150), "quota_reached")
    first, then = f"Until {moment_text(at(60))}, {GPUS}", f"{ASKED} from {moment_text(at(90))} on; {allowed(150)}"
    assert detail.startswith(first)
    assert detail.endswith(then)


def test_a_quota_delays_it_first_and_gpus_then() -> None:
    rows = (held("r1", 1, 0, 60), held("r3", 3, 0, 60), held("own", 2, 0, 30))
    start, code, detail = told(job(1, 2, minutes=40), rows)
    assert (start, code) == (at(60), "quota_reached")
    assert detail.startswith(f"{ASKED} now; {allowed(30)} Until {moment_text(at(60))}, {GPUS}")


def test_where_no_quota_delays_it_none_is_named() -> None:
    rows = (held("r1", 1, 0, 60), held("r3", 3, 0, 60))
    start, code, detail = told(job(1, 2, minutes=40), rows)
    assert (start, code) == (at(60), "waiting_for_gpus")
    assert "limit" not in detail


def test_a_request_over_the_limit_never_starts() -> None:
    start, code, detail = told(job(1, 3), ())
    assert (start, code) == (None, "quota_reached")
    assert detail == "Asked for: 3 GPUs; the limit is 2 at once (user ann)."


def test_no_quota_delays_a_preemptible_job() -> None:
    rows = (held("r1", 1, 0, 30), held("r3", 3, 0, 30), held("own", 2, 0, 60))
    picture = Picture(snapshot(NODES, rows, [replace(job(1, 2, minutes=40), preemptible=True)]))
    picture.set_quotas(QuotaBook(POLICY, NAMES))
    picture.note_held([Holding("own", ReservationKind.JOB, "ann", None, "h100", 1, T0, at(60))])
    [estimate] = estimate_waits(picture, T0, 1)
    assert (estimate.estimated_start_at, estimate.reason.code.value) == (at(30), "waiting_for_gpus")


def test_a_job_of_any_type_is_told_what_delays_it_where_it_starts() -> None:
    nodes = (node("n", 1, first_id=1), node("m", 1, first_id=2, gpu_type="a100"))
    policy = Policy([PolicyRule(Scope(user="ann", gpu_type=name), Rules(max_gpus=1)) for name in ("h100", "a100")])
    holdings = [
        Holding("h", ReservationKind.JOB, "ann", None, "h100", 1, T0, at(30)),
        Holding("a", ReservationKind.JOB, "ann", None, "a100", 1, T0, at(50)),
    ]
    picture = Picture(snapshot(nodes, (held("r1", 1, 0, 100), held("r2", 2, 0, 50)), [job(1, 1, gpu_type=None)]))
    picture.set_quotas(QuotaBook(policy, NAMES))
    picture.note_held(holdings)
    assert plan_starts(picture, T0, 1) == []
    while plan_slots(picture, T0, 10, 10).more:
        pass
    [estimate] = estimate_waits(picture, T0, 1)
    assert estimate.estimated_start_at == at(50)
    assert "user ann, a100" in estimate.reason.detail
    assert "h100)" not in estimate.reason.detail


def test_a_job_behind_others_is_told_of_them_until_its_start() -> None:
    nodes = (node("n", 2, first_id=1), node("m", 2, first_id=11))
    rows = (*(held(f"b{gpu}", gpu, 0, 60) for gpu in (1, 2, 11)), held("own", 12, 0, 30))
    gang = replace(job(1, 2, 2, minutes=60), owner=1)
    picture = Picture(snapshot(nodes, rows, [gang, job(2, 2)]))
    picture.set_quotas(QuotaBook(POLICY, NAMES))
    picture.note_held([Holding("own", ReservationKind.JOB, "ann", None, "h100", 1, T0, at(30))])
    _, estimate = estimate_waits(picture, T0, 2)
    assert (estimate.estimated_start_at, estimate.reason.code.value) == (at(120), "quota_reached")
    assert f"Until {moment_text(at(60))}, other jobs" in estimate.reason.detail
    assert "Jobs ahead of it in the queue get h100 GPUs first" in estimate.reason.detail
