"""Pods with our marks that belong to no reservation."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class UnknownPod:
    """An unknown pod. `node` and `gpu_indices` are the GPUs that are not allocated meanwhile: those that it claims.

    Without a claim, they are all GPUs of its node, or as many as the cluster keeps for it there. Both are None if it is
    on no node, or holds nothing any more. `detail` says why it is unknown, and what the GPUs are.
    """

    name: str
    reservation_id: str
    node: str | None
    gpu_indices: tuple[int, ...] | None
    detail: str
    first_seen_at: datetime
    end_requested_at: datetime | None = None
    end_requested_by: str | None = None
