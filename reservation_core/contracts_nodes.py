"""The wire of what administrators say about nodes, and of pods there that nobody knows."""

from typing import Annotated

from pydantic import Field

from reservation_core.contracts import Prose, Time, Wire


class NodeFence(Wire):
    """An administrator's word that a node is without power, and why if they like."""

    reason: Annotated[Prose, Field(min_length=1, max_length=1000)] | None = None


class NodeCordon(Wire):
    """An administrator's word that nothing new is to be placed on a node, and why if they like."""

    reason: Annotated[Prose, Field(min_length=1, max_length=200)] | None = None


class UnknownPodOut(Wire):
    """A pod with our marks that no reservation accounts for.

    The GPUs that it says it holds are not given out while it is there; null: it does not say, or it has finished.
    """

    name: str
    node: str | None
    gpu_indices: list[int] | None
    detail: str
    first_seen_at: Time
    end_requested_at: Time | None
    end_requested_by: str | None
