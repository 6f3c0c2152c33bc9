"""The planner's reads and writes, and its lease."""

from dataclasses import dataclass


class LostLeadershipError(Exception):
    """Another planner has taken over: drop the plan and become a follower."""


@dataclass(frozen=True, slots=True)
class PlanOutcome:
    """The result of a plan's commit: the ids that really started. The others had left the queue meanwhile."""

    started: frozenset[str]
