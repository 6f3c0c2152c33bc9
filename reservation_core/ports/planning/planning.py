"""The planner's reads and writes, and its lease."""

from dataclasses import dataclass

from reservation_core.domain.model import Node
from reservation_core.domain.plan import Commitment, Waiting


class LostLeadershipError(Exception):
    """Another planner has taken over: drop the plan and become a follower."""


@dataclass(frozen=True, slots=True)
class PlanOutcome:
    """The result of a plan's commit: the ids that really started. The others had left the queue meanwhile."""

    started: frozenset[str]


@dataclass(frozen=True, slots=True)
class PlanningSnapshot:
    """Everything that the planner keeps in memory, from one consistent read."""

    nodes: tuple[Node, ...]
    commitments: tuple[Commitment, ...]
    waiting: tuple[Waiting, ...]
    complete_types: frozenset[str | None]
