"""Calls of a driver that may hang: each in a thread, and nobody waits longer than a limit."""

import threading
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class BoundedCalls(Generic[K]):
    """Runs calls side by side for at most `limit_s` seconds.

    A call that hangs keeps its thread, which can't be ended, and its key gets no other call until it returns: a driver
    that never answers costs one thread a key. The threads keep no process from ending.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._hanging: dict[K, threading.Thread] = {}

    def run(self, calls: Mapping[K, Callable[[], T]]) -> dict[K, T | Exception]:
        """The results of the calls that returned in time, or the exceptions that they raised; blocks."""
        found: dict[K, T | Exception] = {}
        until = time.monotonic() + self._limit_s
        hanging = self.hanging
        begun = [key for key in calls if key not in hanging]
        for key in begun:
            thread = threading.Thread(target=_note, args=(found, key, calls[key]), name=f"driver-{key}", daemon=True)
            thread.start()
            self._hanging[key] = thread
        for key in begun:  # nobody waits for one that hangs since an earlier run
            self._hanging[key].join(max(0.0, until - time.monotonic()))
        self._hanging = {key: thread for key, thread in self._hanging.items() if thread.is_alive()}
        return dict(found)

    @property
    def hanging(self) -> frozenset[K]:
        """The keys whose calls have not returned."""
        return frozenset(key for key, thread in self._hanging.items() if thread.is_alive())


def _note(found: dict[K, T | Exception], key: K, call: Callable[[], T]) -> None:
    try:
        found[key] = call()
    except Exception as error:  # noqa: BLE001 -- the caller looks at it
        found[key] = error
