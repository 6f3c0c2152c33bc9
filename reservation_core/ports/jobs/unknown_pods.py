"""Pods that carry our marks and that no reservation accounts for."""

from dataclasses import dataclass
from datetime import datetime


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
