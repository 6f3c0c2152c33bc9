"""Which pods of a booking go when they use more cards together than it has: the youngest.

Pods that are made at one moment may each be let in on the same cards, as each sees them free. Here they are counted
together, with the jobs that run in the booking: nobody goes who could stay beside those who began earlier.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Occupant:
    """A pod, or a job, that is on a booking's cards since `began` (None: it is about to begin).

    `cards` are the node and index of each where they are known: several may be on one card of their own accord. `goes`
    is false of jobs, which are on cards of the ledger's; `leaves`: it was asked to go before.
    """

    uid: str
    gpus: int
    began: datetime | None
    cards: frozenset[tuple[str, int]] | None = None
    goes: bool = True
    leaves: bool = False


def too_many(cards: int, occupants: Iterable[Occupant]) -> tuple[str, ...]:
    """The uids of those that go from a booking of so many cards, the youngest first; the same in whatever order.

    An occupant that was asked to go once is asked again before any other.
    """
    taken, known = 0, set[tuple[str, int]]()
    going = []
    for occupant in sorted(occupants, key=_oldest_first):
        more = occupant.gpus if occupant.cards is None else len(occupant.cards - known)
        if occupant.goes and taken + more > cards:
            going.append(occupant.uid)
            continue
        taken += more
        known |= occupant.cards or set()
    return tuple(reversed(going))


def _oldest_first(each: Occupant) -> tuple[bool, bool, float, bool, str]:
    began = 0.0 if each.began is None else each.began.timestamp()
    return each.leaves, each.began is None, began, each.goes, each.uid
