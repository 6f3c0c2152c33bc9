"""A simulated world in which some jobs wait for others."""

from dataclasses import replace
from random import Random

from reservation_core.domain.calendar import to_micros
from reservation_core.domain.model import Node
from reservation_core.domain.plan import Need, PlannedSlot, Waiting
from reservation_core.domain.planning.dry_runs import PlanView
from reservation_core.domain.planning.standings import BY_AREA
from reservation_core.domain.policy.limits import Policy
from reservation_core.domain.statuses import ReservationKind
from tests.unit.reservation_core.domain.planning.planned_world import MANY, NAMES
from tests.unit.reservation_core.domain.planning.simulation import Simulation
from tests.unit.reservation_core.domain.planning.worlds import snapshot


class ChainedSimulation(Simulation):
    """Jobs wait for the end of others that run or wait, and are released as the last of these ends.

    Small jobs go first.
    """

    def __init__(self, nodes: tuple[Node, ...], chance: Random, policy: Policy) -> None:
        super().__init__(nodes, MANY, chance, policy)
        self.planner.set_orders(BY_AREA)

    def do(self, operation: str) -> None:
        if operation == "depend":
            wanted = self.behind_others()
            if wanted is not None:
                self.arrive(wanted)
        else:
            super().do(operation)

    def drawn(self) -> Waiting:
        return replace(super().drawn(), avoid_nodes=frozenset(), submitted_at=to_micros(self.now))

    def behind_others(self) -> Waiting | None:
        """The next job, which waits for others that there are; none without others."""
        others = sorted({*self.running, *(job.id for job in self.waiting.values() if job.booking_id is None)})
        if not others:
            return None
        needed = self.chance.sample(others, min(len(others), self.chance.choice((1, 1, 2))))
        needs = tuple(Need(job, by_start=False) for job in needed)
        return replace(self.drawn(), needs=needs)

    def tell(self, reservation_id: str) -> None:
        super().tell(reservation_id)
        if reservation_id in self.running or reservation_id in self.waiting:
            return
        for job in [job for job in self.waiting.values() if job.needs is not None]:
            left = tuple(need for need in job.needs or () if need.job != reservation_id)
            if left != job.needs:
                self.waiting[job.id] = replace(job, needs=left or None)
                super().tell(job.id)

    def _give(self, slot: PlannedSlot) -> None:
        """Slots move to earlier times, and to later ones to make room or as what is waited for ends later."""
        if slot.because is not None:
            self.promises.pop(slot.id)
        self.slots.pop(slot.id, None)
        if slot.gpus:
            self.slots[slot.id] = slot
            self.promises.setdefault(slot.id, slot.promised_at or slot.start)
            wanted = self.waiting[slot.id]
            self._own(slot.id, wanted.owner, wanted.project, ReservationKind.JOB)


def seen_with_dependants(simulation: ChainedSimulation) -> PlanView:
    """The true state, as a ledger has it, with the jobs that wait for others."""
    rows = [row for within in (None, *simulation.booked) for row in simulation.rows(within=within)]
    promises = {job_id: to_micros(promise) for job_id, promise in simulation.promises.items()}
    jobs = [replace(job, promised_at=promises.get(job.id)) for job in simulation.waiting.values()]
    dependants = tuple(job for job in jobs if job.needs is not None)
    return PlanView(
        replace(snapshot(simulation.nodes, rows, [job for job in jobs if job.needs is None]), dependants=dependants),
        simulation.policy,
        NAMES,
        [*simulation.holdings()],
        simulation.shares,
        MANY,
        simulation.placement,
        orders=BY_AREA,
        estimates=MANY,
    )
