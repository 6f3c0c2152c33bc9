"""Fair share: what somebody was given counts for less the longer ago it was, and who was given less goes first.

A GPU-second counts 2^(-age / half-life). Time that was booked and not used counts like time that was used.
"""

from collections.abc import Mapping

_ALIKE_S = 60.0
"""Usages that differ by less than about this many GPU-seconds make no order."""


def ranks(shares: Mapping[int, float]) -> dict[int, int]:
    """Rank users among equals: 1 for the least usage, the same number for usages that are alike.

    A user that is not in it was given nothing, and goes before all (0).
    """
    alike = {user: round(usage / _ALIKE_S) for user, usage in shares.items()}
    places = {level: place for place, level in enumerate(sorted(set(alike.values()) - {0}), start=1)}
    return {user: places[level] for user, level in alike.items() if level}
