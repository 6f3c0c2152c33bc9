"""Who starts when: first come, first served in each pool of GPUs, with backfill that never delays the head of the line."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from reservation_core.domain.model import Node
from reservation_core.domain.plan import Commitment, PlacedGpu, Start, WaitEstimate, Waiting

__all__ = ["Commitment", "PlacedGpu", "PlanningState", "Start", "WaitEstimate", "Waiting"]


class PlanningState:
    """The planner's picture of the world: nodes, the ledger's open rows, and the line."""

    def __init__(
        self,
        nodes: Iterable[Node],
        commitments: Iterable[Commitment],
        waiting: Iterable[Waiting],
        complete_types: frozenset[str | None],
    ) -> None:
        raise NotImplementedError

    def set_nodes(self, nodes: Iterable[Node]) -> None:
        """Replace the inventory."""
        raise NotImplementedError

    def set_reservation(self, reservation_id: str, waiting: Waiting | None, commitments: Sequence[Commitment]) -> None:
        """Replace everything known about one reservation; None and nothing mean that it is gone."""
        raise NotImplementedError

    def needs_refill(self, low_water: int) -> list[tuple[str | None, tuple[int, int] | None]]:
        """Requested types whose line in memory is shorter than `low_water` and goes on in the database."""
        raise NotImplementedError

    def refill(self, gpu_type: str | None, jobs: Sequence[Waiting], *, complete: bool) -> None:
        """Append the next jobs of one requested type's line."""
        raise NotImplementedError

    def plan_starts(self, now: datetime, limit: int) -> list[Start]:
        """Who starts now, at most `limit`; the decision is applied to this picture at once."""
        raise NotImplementedError

    def estimates(self, now: datetime, limit: int) -> list[WaitEstimate]:
        """What the first `limit` waiting jobs are told, in the order of the line."""
        raise NotImplementedError
