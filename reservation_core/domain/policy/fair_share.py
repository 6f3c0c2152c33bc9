"""Fair share: past use counts less with age, and the user with the least use goes first.

A GPU-second counts 2^(-age / half-life). Booked but unused time counts like used time.
"""

from collections.abc import Mapping
from datetime import timedelta
from math import log

_ALIKE_S = 60.0
"""Usages that differ by less than about this many GPU-seconds are equal."""


def ranks(shares: Mapping[int, float]) -> dict[int, int]:
    """Rank users: 1 for the least usage, the same number for equal usages.

    Users without usage have no rank and go before all (0).
    """
    alike = {user: round(usage / _ALIKE_S) for user, usage in shares.items()}
    places = {level: place for place, level in enumerate(sorted(set(alike.values()) - {0}), start=1)}
    return {user: places[level] for user, level in alike.items() if level}


def decayed(
    usage: Mapping[int, float], held: Mapping[int, int], half_life: timedelta, passed: timedelta
) -> dict[int, float]:
    """The usage of users after some more time, in which they held so many GPUs all along; the ledger sums it in SQL."""
    half_life_s = half_life.total_seconds()
    kept = 2 ** (-passed.total_seconds() / half_life_s)
    fresh = half_life_s / log(2) * (1 - kept)
    return {user: usage.get(user, 0.0) * kept + held.get(user, 0) * fresh for user in {**usage, **held}}
