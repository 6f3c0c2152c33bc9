"""Book GPUs that preemptible jobs have, for a booking that begins now and finds no others."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.bookings.card_choice import BookableGpu, by_node, choose
from reservation_core.domain.bookings.nouns import ChosenGpu, Wanted
from reservation_core.domain.bookings.refusals import Judge, from_now, permitted, rule_on
from reservation_core.domain.calendar import is_free_during, length_micros, to_moment
from reservation_core.domain.changes import GpusNeeded
from reservation_core.domain.jobs.lifecycle import decide
from reservation_core.domain.jobs.preemption import LONGEST_LEAD_AT_ONCE
from reservation_core.domain.policy.rules import RuleBreach
from reservation_core.domain.pools.least_loss import Choice, Offer, fewest_lost
from reservation_core.usecases.bookings.read_booking_rules import cards_around
from reservation_core.usecases.carry_out import carry_out

SOON = timedelta(minutes=2)
"""A booking that begins later finds the ranges of preemptible jobs over."""
MOST_COMPARED = 64
"""So many nodes are compared, those with the most free GPUs first."""


@dataclass(frozen=True, slots=True)
class GpusForBooking:
    """GPUs for a booking, and the preemptible jobs that have some of them."""

    chosen: tuple[ChosenGpu, ...]
    victims: frozenset[str] = frozenset()


async def rule_on_with_lent(
    uow: UnitOfWork, judge: Judge, cards: Sequence[BookableGpu], span: Span, *, wait: bool
) -> tuple[GpusForBooking | None, list[RuleBreach]]:
    """Like `rule_on`; where no GPUs are free, those of preemptible jobs are for a booking that begins now."""
    chosen, broken = rule_on(judge, cards, span, wait=wait)
    if chosen is not None:
        return GpusForBooking(chosen), broken
    lent = await _find_lent_gpus(uow, judge, span)
    return (None, broken) if lent is None else (lent, [])


async def _find_lent_gpus(uow: UnitOfWork, judge: Judge, span: Span) -> GpusForBooking | None:
    """The GPUs for a slot that begins now if preemptible jobs give theirs back; those whose jobs lose the least."""
    if span.start > judge.now + SOON or span.end <= judge.now:
        return None
    lent = await uow.leases.lent(judge.now, LONGEST_LEAD_AT_ONCE)
    if not lent:
        return None
    cards = await cards_around(uow, span, judge.now, without=tuple({gpu.job_id for gpu in lent}))
    able, _ = permitted(judge, cards, span)
    losses: dict[str, int] = {}
    for gpu in lent:
        losses[gpu.job_id] = losses.get(gpu.job_id, 0) + length_micros(judge.now - gpu.started_at)
    start, end = from_now(span, judge.now)
    return choose_lent(able, judge.wanted, start, end, {gpu.gpu_id: gpu.job_id for gpu in lent}, losses)


async def ask_for_lent_gpus(uow: UnitOfWork, victims: frozenset[str], span: Span, now: datetime) -> bool:
    """Have preemptible jobs give their GPUs back, whose ranges end for the booking. False: one of them has changed."""
    start, _ = from_now(span, now)
    rows = await uow.reservations.lock(sorted(victims))
    decided = [decide(row, GpusNeeded(to_moment(start)), now) for row in rows.values()]
    changes = [change for change in decided if change is not None and change.before.preemption.asked_at is None]
    if len(changes) < len(victims):
        return False
    await carry_out(uow, changes)
    return True


def choose_lent(
    cards: Sequence[BookableGpu], wanted: Wanted, start: int, end: int, holders: dict[int, str], losses: dict[str, int]
) -> GpusForBooking | None:
    """Choose GPUs for [start, end), of which `holders` have some, so that these lose the least.

    The ranges of the holders are not in the calendar of `cards`.
    """
    best: tuple[Choice, list[BookableGpu]] | None = None
    for nodes in by_node(cards, wanted).values():
        free = [[gpu for gpu in group if is_free_during(gpu.busy, start, end)] for _, group in sorted(nodes.items())]
        groups = sorted((group for group in free if len(group) >= wanted.gpus), key=lambda group: _held(group, holders))
        offers = [_offer(number, group, holders) for number, group in enumerate(groups[:MOST_COMPARED])]
        choice = fewest_lost(offers, wanted.gpus, wanted.nodes, losses)
        if choice is not None and (best is None or choice.loss < best[0].loss):
            usable = [
                gpu
                for number in choice.nodes
                for gpu in groups[number]
                if gpu.gpu_id not in holders or holders[gpu.gpu_id] in choice.victims
            ]
            best = choice, usable
    if best is None:
        return None
    chosen = choose(best[1], wanted, start, end)
    if chosen is None:
        return None
    return GpusForBooking(chosen, frozenset(holders[gpu.gpu_id] for gpu in chosen if gpu.gpu_id in holders))


def _held(group: Sequence[BookableGpu], holders: dict[int, str]) -> int:
    return sum(gpu.gpu_id in holders for gpu in group)


def _offer(number: int, group: Sequence[BookableGpu], holders: dict[int, str]) -> Offer:
    held: dict[str, int] = {}
    for gpu in group:
        if gpu.gpu_id in holders:
            held[holders[gpu.gpu_id]] = held.get(holders[gpu.gpu_id], 0) + 1
    return Offer(number, len(group) - sum(held.values()), held)
