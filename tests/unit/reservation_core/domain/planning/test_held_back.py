"""Jobs held back by a quota: every one is asked again, however many stand before it."""

from dataclasses import replace

import pytest

from reservation_core.domain.planning.calendar_planning import CalendarPicture
from reservation_core.domain.policy.limits import Policy, PolicyRule, Rules
from reservation_core.domain.policy.nouns import Scope
from reservation_core.domain.policy.quota_book import QuotaBook
from reservation_core.domain.policy.rules import Holding
from reservation_core.domain.statuses import ReservationKind
from tests.unit.reservation_core.domain.planning.worlds import T0, Commitment, at, job, node, snapshot

PROMISES = 5

NAMES = {1: "ann", 2: "bob"}


def holding(name: str, user: str) -> Holding:
    return Holding(name, ReservationKind.JOB, user, None, "h100", 1, T0, at(600), planned=False, made_at=T0)


@pytest.mark.parametrize("before", [10, 1100, 3500])
def test_whose_quota_is_free_again_starts_behind_any_number_whose_is_not(before: int) -> None:
    of_ann = [replace(job(number, minutes=60), owner=1) for number in range(1, before + 1)]
    of_bob = replace(job(before + 1, minutes=60), owner=2)
    running = [
        Commitment("ann-run", 0, T0, at(600), held=True),
        Commitment("bob-run", 1, T0, at(600), held=True),
    ]
    picture = CalendarPicture(snapshot([node("n0", 8)], running, [*of_ann, of_bob], frozenset({None, "h100"})))
    picture.common.set_quotas(QuotaBook(Policy([PolicyRule(Scope(), Rules(max_gpus=1))]), NAMES))
    picture.common.note_held([holding("ann-run", "ann"), holding("bob-run", "bob")])
    assert not picture.plan_starts(at(1), 5000)

    picture.set_reservation("bob-run", None, ())
    started: list[str] = []
    for second in range(before // 1000 + 2):
        picture.common.note_held([holding("ann-run", "ann")])
        started += [start.id for start in picture.plan_starts(at(2 + second), 5000)]
    assert started == [of_bob.id]


@pytest.mark.parametrize("before", [PROMISES - 1, PROMISES + 1, 4 * PROMISES])
def test_who_can_never_start_takes_nobodys_promise(before: int) -> None:
    """A quota was made smaller than what waits: these wait in vain, but nobody else does."""
    of_ann = [replace(job(number, 2, minutes=60), owner=1) for number in range(1, before + 1)]
    of_bob = replace(job(before + 1, 2, minutes=60), owner=2)
    running = [Commitment("bob-run", card, T0, at(600), held=True) for card in (1, 2)]
    picture = CalendarPicture(snapshot([node("n0", 8)], running, [*of_ann, of_bob], frozenset({None, "h100"})))
    rules = [PolicyRule(Scope(user="ann"), Rules(max_gpus=1)), PolicyRule(Scope(user="bob"), Rules(max_gpus=2))]
    picture.common.set_quotas(QuotaBook(Policy(rules), NAMES))
    given: list[str] = []
    for minute in range(1, 10):
        picture.common.note_held([replace(holding("bob-run", "bob"), gpus=2)])
        assert not picture.plan_starts(at(minute), 100)
        given += [slot.id for slot in picture.plan_slots(at(minute), PROMISES, 1000).slots]
    assert given == [of_bob.id]
