"""The planner's reads and writes, and its lease."""

from dataclasses import dataclass

from reservation_core.domain.model import Node
from reservation_core.domain.plan import Commitment, Waiting


class LostLeadershipError(Exception):
    """Another planner has taken over: forget the plan and start again as a follower."""


@dataclass(frozen=True, slots=True)
class PlanOutcome:
    """What a plan's commit achieved: the ids that really started. The others had left the line meanwhile."""

    started: frozenset[str]


@dataclass(frozen=True, slots=True)
class PlanningSnapshot:
    """Everything the planner keeps in memory, read in one consistent view."""

    nodes: tuple[Node, ...]
    commitments: tuple[Commitment, ...]
    waiting: tuple[Waiting, ...]
    complete_types: frozenset[str | None]
