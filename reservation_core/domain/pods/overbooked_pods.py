"""Which pods of a booking are ended when they use more GPUs together than it has: the youngest.

Pods created at the same moment may each be admitted to the same GPUs, since each sees them free. They are counted here
together with the booking's jobs; no pod is ended that fits beside the older ones.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Occupant:
    """A pod, or a job, on a booking's GPUs since `began` (None: about to begin).

    `cards` are the node and index of each, if known: several pods may share one on purpose. `goes` is false for jobs,
    whose GPUs the ledger assigns; `leaves`: it was asked to end before.
    """

    uid: str
    gpus: int
    began: datetime | None
    cards: frozenset[tuple[str, int]] | None = None
    goes: bool = True
    leaves: bool = False


def too_many(gpus: int, occupants: Iterable[Occupant]) -> tuple[str, ...]:
    """The uids of the pods to end on a booking with `gpus` GPUs, the youngest first, independent of the input's order.

    A pod that was asked to end before is asked again before any other.
    """
    taken, known = 0, set[tuple[str, int]]()
    ending = []
    for occupant in sorted(occupants, key=_age_order):
        more = occupant.gpus if occupant.cards is None else len(occupant.cards - known)
        if occupant.goes and taken + more > gpus:
            ending.append(occupant.uid)
            continue
        taken += more
        known |= occupant.cards or set()
    return tuple(reversed(ending))


def _age_order(occupant: Occupant) -> tuple[bool, bool, float, bool, str]:
    began = 0.0 if occupant.began is None else occupant.began.timestamp()
    return occupant.leaves, occupant.began is None, began, occupant.goes, occupant.uid
