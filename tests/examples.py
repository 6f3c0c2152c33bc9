"""How many examples a property is tried with, and which.

`make test` tries the same each time, `make explore` as many others, `make quick` few.
"""

import os
from enum import Enum
from typing import Any

from hypothesis import find, settings
from hypothesis import strategies as st


class Profile(Enum):
    """What a session is for."""

    REPEATABLE = "repeatable"
    """The same examples each time: what a commit is held to does not change by chance."""
    EXPLORING = "exploring"
    """Others each time."""
    QUICK = "quick"
    """Few, the same each time."""


_FEW = 5
_USUALLY = 100
PROFILE = Profile(os.environ.get("GPU_DEV_TESTS_EXAMPLES", Profile.REPEATABLE.value))


def examples(most: int, **others: Any) -> settings:
    """For a property that needs another number of examples than is usual."""
    return settings(max_examples=_at_most(most), deadline=None, **others)


def _at_most(most: int) -> int:
    return min(most, _FEW) if PROFILE is Profile.QUICK else most


# How long an example takes says more of what else the machine does than of the code.
settings.register_profile(
    PROFILE.value, deadline=None, derandomize=PROFILE is not Profile.EXPLORING, max_examples=_at_most(_USUALLY)
)
settings.load_profile(PROFILE.value)
# Hypothesis warns of a random generator of its own that nothing else is seen to hold. Python 3.14 sees no holder among
# modules that tests/conftest.py exempts from garbage collection after this import, so the generator is made now.
find(st.booleans(), bool, settings=settings(database=None))
