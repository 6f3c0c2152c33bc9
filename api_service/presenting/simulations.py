"""Simulations as REST shows them."""

from collections.abc import Mapping, Sequence

from reservation_core.contracts.simulations import (
    CurvePoint,
    SimulatedWaits,
    SimulationCreate,
    SimulationOut,
    WaitOfSize,
    WaitOfUser,
)
from reservation_core.domain.model import Node
from reservation_core.domain.simulation.answer_words import answer_text, change_text
from reservation_core.domain.simulation.comparison import Outcome, Question

MOST_USERS = 1000


def simulation(
    asked: SimulationCreate, question: Question, today: Outcome, changed: Outcome, left_out: Sequence[str]
) -> SimulationOut:
    """Both outcomes, with users by name, and what they answer."""
    before = _waits(today, question.users, question.today.nodes)
    after = _waits(changed, question.users, question.changed.nodes)
    has_policy = asked.policy is not None
    change = change_text(asked.nodes_added, asked.order, asked.fair_share_half_life, has_policy=has_policy)
    answer = answer_text(change, before, after)
    return SimulationOut(
        answer=answer,
        jobs=today.waits.jobs,
        bookings=len(question.bookings),
        today=before,
        changed=after,
        left_out=list(left_out),
    )


def _waits(outcome: Outcome, users: Mapping[int, str], nodes: Sequence[Node]) -> SimulatedWaits:
    waits = outcome.waits
    longest = sorted(waits.by_user.items(), key=lambda item: -item[1])[:MOST_USERS]
    return SimulatedWaits(
        gpus=sum(len(node.gpus) for node in nodes),
        mean_s=waits.mean,
        median_s=waits.median,
        p90_s=waits.p90,
        p99_s=waits.p99,
        longest_s=waits.longest,
        slowdown=waits.slowdown,
        used=waits.used,
        broken=waits.broken,
        ahead_s=waits.ahead,
        ahead_p90_s=waits.ahead_p90,
        refused_bookings=outcome.refused,
        by_size=[WaitOfSize(gpus=gpus, wait_s=wait) for gpus, wait in waits.by_size.items()],
        by_user=[WaitOfUser(user=users.get(owner, ""), wait_s=wait) for owner, wait in longest],
        curve=[CurvePoint(wait_s=wait, share=share) for wait, share in outcome.curve],
    )
