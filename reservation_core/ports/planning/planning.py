"""The planner's reads and writes, and its lease."""

from dataclasses import dataclass
from typing import NamedTuple

from reservation_core.domain.plan import Waiting
from reservation_core.ports.queues import QueuedMessage


class LostLeadershipError(Exception):
    """Another planner has taken over: drop the plan and become a follower."""


@dataclass(frozen=True, slots=True)
class PlanOutcome:
    """The result of a plan's commit: the ids that really started. The others had left the queue meanwhile."""

    started: frozenset[str]


class PlannerNews(NamedTuple):
    """Messages to the planner, the oldest first, and the waiting ones of the jobs that they name."""

    messages: list[QueuedMessage]
    waiting: list[Waiting]
