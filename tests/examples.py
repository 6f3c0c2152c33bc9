"""How many examples a property is tried with, and which.

`make explore`, which runs each week, tries all and others each time. `make test` tries the same each time: a third, and
of what guards the ledger a half. `make quick` tries few.
"""

import os
from enum import Enum
from typing import Any, TypeVar

from hypothesis import find, settings
from hypothesis import strategies as st

T = TypeVar("T")


class Profile(Enum):
    """What a session is for."""

    REPEATABLE = "repeatable"
    """The same examples each time, a part of all: what a commit is held to does not change by chance."""
    EXPLORING = "exploring"
    """All, and others each time."""
    QUICK = "quick"
    """Few, the same each time."""


_FEW = 5
_USUALLY = 100
_LEAST = 8
"""Of each property at each commit, where it has so many."""
_LEAST_OF_LEDGER = 100
PROFILE = Profile(os.environ.get("GPU_DEV_TESTS_EXAMPLES", Profile.REPEATABLE.value))


def examples(most: int, **others: Any) -> settings:
    """For a property that needs another number of examples than is usual."""
    return settings(max_examples=_of(most, most // 3, _LEAST), deadline=None, **others)


def ledger_examples(most: int = _USUALLY, **others: Any) -> settings:
    """For a property that guards the ledger: no GPU is given twice, and no promise is broken."""
    return settings(max_examples=_of(most, most // 2, _LEAST_OF_LEDGER), deadline=None, **others)


def amount(part: T, all_of_it: T) -> T:
    """How much of what has no examples, as jobs of a run: all of it where others are explored, else a part.

    A test that takes this is marked `hypothesis`, so that `make explore` runs it.
    """
    return all_of_it if PROFILE is Profile.EXPLORING else part


def _of(most: int, part: int, least: int) -> int:
    match PROFILE:
        case Profile.EXPLORING:
            return most
        case Profile.REPEATABLE:
            return min(most, max(part, least))
        case Profile.QUICK:
            return min(most, _FEW)


# How long an example takes says more of what else the machine does than of the code.
settings.register_profile(
    PROFILE.value,
    deadline=None,
    derandomize=PROFILE is not Profile.EXPLORING,
    max_examples=_of(_USUALLY, _USUALLY // 3, _LEAST),
)
settings.load_profile(PROFILE.value)
# Hypothesis warns of a random generator of its own that nothing else is seen to hold. Python 3.14 sees no holder among
# modules that tests/conftest.py exempts from garbage collection after this import, so the generator is made now.
find(st.booleans(), bool, settings=settings(database=None))
