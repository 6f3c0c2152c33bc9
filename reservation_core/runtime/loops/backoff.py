"""How long to wait before trying again: longer each time, within a bound, and not at the same time as all others."""

import random


class Backoff:
    """Pauses in seconds: they double from `first_s` to `longest_s`, each at random within its upper half."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = min(first_s, longest_s)
        self._longest_s = longest_s
        self._next_s = self._first_s

    def next(self) -> float:
        """The pause to make now."""
        pause = self._next_s * random.uniform(0.5, 1)  # noqa: S311 -- spreads load, keeps no secret
        self._next_s = min(self._longest_s, 2 * self._next_s)
        return pause

    def reset(self) -> None:
        """It went well: begin again with the shortest."""
        self._next_s = self._first_s
