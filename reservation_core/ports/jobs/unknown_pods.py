"""Pods that carry our marks and that no reservation accounts for."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class UnknownPod:
    """One such pod. `node` and `gpu_indices` are the cards that are not given out meanwhile: what it says it holds.

    When it does not say, they are all of its node, or as many as the cluster itself keeps for it there. Both are None
    when it is on no node, or holds nothing any more. `detail` says why nobody accounts for it, and what the cards are.
    """

    name: str
    reservation_id: str
    node: str | None
    gpu_indices: tuple[int, ...] | None
    detail: str
    first_seen_at: datetime
    end_requested_at: datetime | None = None
    end_requested_by: str | None = None


class UnknownPods(Protocol):
    """Unknown pods, as long as they exist. What changes cards tells the planner."""

    async def report(self, pods: Sequence[UnknownPod]) -> list[str]:
        """Write down what is true of these; returns the names that are new. Requests for their end stay."""
        ...

    async def forget(self, names: Sequence[str]) -> list[str]:
        """They are gone, or accounted for; returns the names that were written down."""
        ...

    async def request_end(self, name: str, by: str, now: datetime) -> UnknownPod | None:
        """Note that somebody wants its end, the first time; None when there is no such pod."""
        ...

    async def cards_for(self, name: str, node: str) -> list[int]:
        """All cards of a node, in the order in which they are counted for a pod that does not say which it holds.

        First those that were before: nothing flutters from look to look. Then those that nobody has.
        """
        ...

    async def count(self) -> int:
        """How many there are, for metrics."""
        ...

    async def page(self, *, after: str | None, limit: int) -> list[UnknownPod]:
        """By name."""
        ...

    async def of(self, reservation_ids: Sequence[str]) -> dict[str, UnknownPod]:
        """Those of these reservations, by name."""
        ...
