"""A world in which nodes don't fail and administrators don't intervene, beside a planner that is told of it bit by bit.

Jobs of all priorities, owners, projects, types and sizes arrive; they are cancelled, end early, are extended; bookings
are made and cancelled, and jobs run within them. Bookings and extensions are refused what the ledger's constraint and
the policy refuse. Every step is followed by all that the planner decides, and everything it decides is checked.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from reservation_core.domain.plan import Commitment, Waiting
from reservation_core.domain.policy.rules import Holding, RuleBreach, RuleRequest, UsageView, check, never_possible
from reservation_core.domain.statuses import ReservationKind
from tests.unit.reservation_core.domain.planning.planned_world import NAMES, PROJECTS, PlannedWorld
from tests.unit.reservation_core.domain.planning.worlds import (
    AVOIDED,
    MINUTE,
    TYPES,
    is_free,
)


class Simulation(PlannedWorld):
    """The world that jobs, bookings, ends and extensions change, by chance."""

    def do(self, operation: str) -> None:
        """One thing happens, if it can."""
        chance = self.chance
        match operation:
            case "arrive":
                self.arrive(self.drawn())
            case "within" if self.booked:
                self.arrive(self.drawn_within(chance.choice(list(self.booked))))
            case "cancel" if self.waiting:
                self._leave(chance.choice(list(self.waiting)))
            case "finish" if self.running:
                self._end(chance.choice(list(self.running)))
            case "extend" if self.running:
                self._extend(chance.choice(list(self.running)), chance.randint(1, 6) * MINUTE)
            case "book":
                self._book()
            case "unbook" if self.booked:
                self._unbook(chance.choice(list(self.booked)))
            case "shares":
                self.shares = {owner: chance.randint(0, 2) for owner in NAMES}
                self.planner.common.set_shares(self.shares)
            case "pass_time":
                until = self.now + chance.randint(1, 3) * MINUTE
                while self.now < until:
                    self.pass_on(until)
            case _:
                pass

    def drawn_within(self, booking_id: str) -> Waiting:
        """A job that its booking's owner submits."""
        owner = self.owned[booking_id].owner
        return replace(self.drawn(), booking_id=booking_id, avoid_nodes=frozenset(), owner=owner)

    def drawn(self) -> Waiting:
        """The next job, which has not arrived."""
        chance = self.chance
        return Waiting(
            f"job-{self.next_seq}",
            chance.choice((1, 1, 1, 2, 2, 3, 4)),
            chance.choice((1, 1, 1, 1, 2, 3)),
            chance.choice((None, *TYPES, *TYPES)),
            chance.randint(1, 15) * MINUTE,
            chance.choice((0, 0, 0, 1)),
            self.next_seq,
            avoid_nodes=frozenset(chance.choice(AVOIDED)),
            owner=chance.choice(list(NAMES)),
            project=chance.choice(PROJECTS),
        )

    def arrive(self, wanted: Waiting) -> None:
        """A job comes in, unless the policy never allows it."""
        self.next_seq += 1
        if wanted.booking_id is None and never_possible(self.asked(wanted, wanted.gpu_type), self.policy, self.now):
            self.refused += 1
            return
        self.waiting[wanted.id] = wanted
        self.tell(wanted.id)

    def _leave(self, gone: str) -> None:
        del self.waiting[gone]
        self.slots.pop(gone, None)
        self.promises.pop(gone, None)
        self.tell(gone)

    def _end(self, gone: str) -> None:
        for row in self.running.pop(gone):
            end = min(row.end, self.now)
            if row.booking_id is None and end > row.start:
                whose, gpu_type = self.owned[gone], self.cards[row.gpu_id].gpu_type
                user = NAMES[whose.owner]
                self.spent.append(Holding("", whose.kind, user, whose.project, gpu_type, 1, row.start, end))
        self.tell(gone)

    def _extend(self, chosen: str, by: timedelta) -> None:
        rows = [replace(row, end=row.end + by) for row in self.running[chosen]]
        booking_id = rows[0].booking_id
        whose = self.owned[chosen]
        over: list[RuleBreach] = []
        if booking_id is None:
            gpu_type = self.cards[rows[0].gpu_id].gpu_type
            more = Waiting(chosen, len(rows), 1, gpu_type, by, 0, 0, owner=whose.owner, project=whose.project)
            over = self.over(more, gpu_type, rows[0].end - by, rows[0].end, self.holdings())
        elif rows[0].end > self._end_of(booking_id):
            self.refused += 1
            return
        others = self.rows(chosen, booking_id)
        if not over and all(is_free(self.cards[row.gpu_id], others, row.start, row.end, self.now) for row in rows):
            self.running[chosen] = rows
            self._own(chosen, whose.owner, whose.project, whose.kind)
            self.tell(chosen)
        else:
            self.refused += 1

    def _book(self) -> None:
        """One card, or all of its type on its node."""
        chance = self.chance
        start = self.now + chance.randint(1, 12) * MINUTE
        end = start + chance.randint(1, 8) * MINUTE
        owner = chance.choice(list(NAMES))
        card = chance.choice(list(self.cards.values()))
        chosen = [card]
        if chance.random() < 0.5:
            chosen = [
                other_card
                for other_card in self.cards.values()
                if (other_card.node, other_card.gpu_type) == (card.node, card.gpu_type)
            ]
        request = RuleRequest(
            kind=ReservationKind.BOOKING,
            user=NAMES[owner],
            project=PROJECTS[owner],
            gpus=len(chosen),
            duration=end - start,
            gpu_type=card.gpu_type,
            start=start,
        )
        broken = check(request, self.policy, UsageView(tuple(self.holdings())), self.now)
        if broken or not all(is_free(listed_card, self.rows(), start, end, self.now) for listed_card in chosen):
            self.refused += 1
            return
        name = f"bkg-{self.made}"
        self.booked[name] = [Commitment(name, listed_card.id, start, end, False) for listed_card in chosen]
        self._own(name, owner, PROJECTS[owner], ReservationKind.BOOKING)
        self.tell(name)

    def _unbook(self, gone: str) -> None:
        for orphan_id in [job_id for job_id, wanted in self.waiting.items() if wanted.booking_id == gone]:
            self._leave(orphan_id)
        for orphan_id in [job_id for job_id, rows in self.running.items() if rows[0].booking_id == gone]:
            self._end(orphan_id)
        for row in self.booked.pop(gone):
            whose, end = self.owned[gone], min(row.end, self.now)
            if end > row.start:
                gpu_type = self.cards[row.gpu_id].gpu_type
                user = NAMES[whose.owner]
                self.spent.append(Holding("", whose.kind, user, whose.project, gpu_type, 1, row.start, end))
        self.tell(gone)

    def pass_on(self, until: datetime | None = None) -> None:
        """Up to the next time at which something begins or ends, but not beyond `until`; what is over ends.

        The planner may look a little `late`.
        """
        rows = [row for within in (None, *self.booked) for row in self.rows(within=within)]
        edges = {edge for row in rows for edge in (row.start, row.end)}
        soon = until or self.now + MINUTE
        following = min((edge for edge in edges if edge > self.now), default=soon)
        self.now = (following if until is None else min(following, until)) + self.chance.random() * self.late
        for over in [owner for owner, rows in self.running.items() if rows[0].end <= self.now]:
            self._end(over)
        for over in [owner for owner, rows in self.booked.items() if rows[0].end <= self.now]:
            self._unbook(over)
        self.plan()
