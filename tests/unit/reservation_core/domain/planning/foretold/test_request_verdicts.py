"""The outlook of a job that is not submitted is what the planner would do with it."""

from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.model import Node
from reservation_core.domain.plan import Commitment, Waiting
from reservation_core.domain.planning.dry_runs import PlanView
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.planning.request_verdicts import (
    Outlook,
    VerdictReason,
    booked_job_outlook,
    booking_outlook,
    job_outlook,
    refused,
)
from reservation_core.domain.planning.slot_decisions import plan_slots
from reservation_core.domain.planning.start_decisions import plan_starts
from reservation_core.domain.policy.limits import Policy, PolicyRule, Rules
from reservation_core.domain.policy.nouns import Scope
from reservation_core.domain.policy.quota_book import QuotaBook
from reservation_core.domain.policy.rules import Holding, RuleBreach
from reservation_core.domain.statuses import RequestVerdict, ReservationKind
from tests.unit.reservation_core.domain.planning.worlds import (
    T0,
    at,
    calendars,
    held,
    inventories,
    job,
    jobs,
    node,
    snapshot,
)

OWNER = 0
NO_RULES = Rules()


def view(
    nodes: tuple[Node, ...],
    rows: tuple[Commitment, ...],
    limits: Rules = NO_RULES,
    *others: Waiting,
    promises: int = 100,
) -> PlanView:
    """A calendar with jobs that wait for a slot."""
    policy, holdings = quotas(limits, nodes, rows)
    return PlanView(snapshot(nodes, rows, others), policy, {OWNER: "ann"}, holdings, {}, promises)


def quotas(limits: Rules, nodes: tuple[Node, ...], rows: tuple[Commitment, ...]) -> tuple[Policy, list[Holding]]:
    """What ann may have, and that she has what is on GPUs of an even number."""
    types = {gpu.id: gpu.gpu_type for machine in nodes for gpu in machine.gpus}
    holdings = [
        Holding(
            row.reservation_id, ReservationKind.JOB, "ann", None, types[row.gpu_id], 1, row.start, max(row.end, at(1))
        )
        for row in rows
        if row.gpu_id % 2 == 0
    ]
    return Policy([PolicyRule(Scope(), limits)]), holdings


def planned(wish: Waiting, nodes: tuple[Node, ...], rows: tuple[Commitment, ...], limits: Rules) -> datetime | None:
    """When the planner starts a job, or gives it a slot; None if it does neither."""
    picture = Picture(snapshot(nodes, rows, [wish]))
    policy, holdings = quotas(limits, nodes, rows)
    picture.set_quotas(QuotaBook(policy, {OWNER: "ann"}))
    picture.note_held(holdings)
    while True:
        starts = plan_starts(picture, T0, 10)
        if starts:
            return starts[0].start
        plan = plan_slots(picture, T0, 10, 10)
        if plan.slots and plan.slots[0].gpus:
            return plan.slots[0].start
        if not plan.more:
            return None


@st.composite
def asked(draw: st.DrawFn) -> tuple[tuple[Node, ...], tuple[Commitment, ...], Waiting, Rules]:
    """A small world, a job, and a quota or none."""
    nodes = draw(inventories())
    rows = draw(calendars(nodes))
    gpus = draw(st.sampled_from([None, None, 1, 2, 3, 5]))
    hours = draw(st.sampled_from([None, None, 0.2, 1.0, 3.0]))
    wish = replace(draw(jobs(1)), avoid_nodes=frozenset())
    return nodes, rows, wish, Rules(max_gpus=gpus, max_gpu_hours_per_week=hours)


@given(asked())
def test_a_job_starts_when_the_planner_would_start_it(
    world: tuple[tuple[Node, ...], tuple[Commitment, ...], Waiting, Rules],
) -> None:
    nodes, rows, wish, limits = world
    outlook = job_outlook(view(nodes, rows, limits), wish, wish.length, (), T0)
    start = planned(wish, nodes, rows, limits)
    assert outlook.starts_at == start
    assert (outlook.verdict is RequestVerdict.STARTS_NOW) is (start == T0)
    assert bool(outlook.reasons) is (start != T0)


def test_all_that_a_job_waits_for_is_named() -> None:
    nodes = (node("n", 3, first_id=1),)

    def outlook(gpus: int, *ends: int) -> tuple[datetime | None, list[str]]:
        """Of a job where the first cards are taken until then; ann has the second, and may have two."""
        rows = tuple(held(f"r{gpu}", gpu, 0, end) for gpu, end in enumerate(ends, 1))
        wish = job(1, gpus)
        found = job_outlook(view(nodes, rows, Rules(max_gpus=2)), wish, wish.length, (), T0)
        return found.starts_at, [reason.code for reason in found.reasons]

    assert outlook(1, 60, 60) == (T0, [])
    assert outlook(2, 60, 60) == (at(60), ["waiting_for_gpus", "quota_reached"])
    assert outlook(2, 90, 60, 90) == (at(90), ["quota_reached", "waiting_for_gpus"])
    assert outlook(1, 90, 60, 90) == (at(60), ["waiting_for_gpus"])
    assert outlook(3, 60) == (None, ["quota_reached"])
    assert outlook(5) == (None, ["larger_than_any_node"])


def test_beyond_the_jobs_that_get_slots_no_start_is_known() -> None:
    nodes, rows = (node("n", 1, first_id=1),), (held("r", 1, 0, 60),)
    first, wish = job(1), job(2)
    found = job_outlook(view(nodes, rows, NO_RULES, first, promises=1), wish, wish.length, (), T0)
    assert (found.starts_at, [reason.code for reason in found.reasons]) == (None, ["behind_in_line"])
    found = job_outlook(view(nodes, rows, NO_RULES, first, promises=2), wish, wish.length, (), T0)
    assert (found.starts_at, [reason.code for reason in found.reasons]) == (at(70), ["waiting_for_gpus"])


def test_a_job_in_a_booking_starts_within_it_or_never() -> None:
    wish = replace(job(1, minutes=40), booking_id="bkg-1")

    def outlook(gpus_each: int, start: int, end: int) -> tuple[datetime | None, int]:
        booked = tuple(held("bkg-1", gpu, start, end, is_held=False) for gpu in (1, 2))
        other = replace(held("other", 1, 0, 30), booking_id="bkg-1")
        seen = view((node("n", 2, first_id=1),), (*booked, other))
        found = booked_job_outlook(seen, replace(wish, gpus=gpus_each), wish.length, Span(at(start), at(end)), T0)
        assert found.verdict is (RequestVerdict.STARTS_NOW if found.starts_at == T0 else RequestVerdict.ACCEPTED)
        return found.starts_at, len(found.reasons)

    assert outlook(1, -10, 20) == (T0, 0)  # it ends with the booking
    assert outlook(1, 10, 60) == (at(10), 1)
    assert outlook(2, -10, 60) == (at(30), 1)
    assert outlook(2, -10, 30) == (None, 1)


def test_a_booking_has_its_gpus_or_is_on_the_waitlist() -> None:
    missing = RuleBreach("no_free_gpus", "None is free.")
    accepted = RequestVerdict.ACCEPTED
    assert booking_outlook(Span(T0, at(60)), None, T0 + timedelta(seconds=5)).verdict is RequestVerdict.STARTS_NOW
    assert booking_outlook(Span(at(1), at(60)), None, T0) == Outlook(accepted, at(1))
    waits = (VerdictReason("no_free_gpus", "None is free."),)
    assert booking_outlook(Span(T0, at(60)), missing, T0) == Outlook(accepted, None, waits)
    assert refused([missing]) == Outlook(RequestVerdict.REFUSED, None, waits)
