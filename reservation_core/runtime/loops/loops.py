"""Loops that survive failures of their steps, and report them.

A process that ended after a failed step would stop all its other loops, and meet the same failure after its restart. So
a failing loop pauses, for a growing and random time, and tries again. Failures are counted, logged, and shown by
`/readyz` and `/metrics`. Only a cancellation, `stop`, and the errors in `ends` end a loop.
"""

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

import structlog

from reservation_core.adapters.clock import SystemClock
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.loops.backoff import Backoff, pause

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 5.0
SETTLED_S = 30.0
"""An endless run counts as recovered after so many seconds without a failure."""
PATIENCE_S = 60.0
"""A process is not ready when one of its loops has failed for longer than this."""

_PASSES = (DatabaseUnavailableError, ClusterUnavailableError)
_LOGGED_FIRST = 3
_LOGGED_AGAIN_S = 30.0
_TRACED_AGAIN_S = 300.0
_MOST_TRACED = 32
_log = structlog.get_logger(__name__)


class Loop:
    """One loop of a process, with the state of its failures.

    `failures` counts failed steps since the start of the process. `failing_since` (UTC) and `error` (a class and a
    SQLSTATE, never a value) describe the failures since the last successful step.
    """

    def __init__(self, name: str, now: Callable[[], datetime], counted: Callable[[], float]) -> None:
        self.name = name
        self.failures = 0
        self.failing_since: datetime | None = None
        self.error = ""
        self._now = now
        self._counted = counted
        self._since_s = 0.0
        self._in_a_row = 0
        self._logged_s = 0.0
        self._traced: dict[str, float] = {}

    @property
    def failing_s(self) -> float:
        """Seconds since the first failure in a row, by a monotonic clock; 0 without failures."""
        return 0.0 if self.failing_since is None else max(0.0, self._counted() - self._since_s)

    async def repeat(
        self,
        step: Callable[[], Awaitable[object]],
        *,
        rest_s: float = 0.0,
        rests_first: bool = False,
        longest_s: float = LONGEST_PAUSE_S,
        ends: tuple[type[Exception], ...] = (),
        stop: asyncio.Event | None = None,
    ) -> None:
        """Repeat `step` until cancelled or `stop`; rest for `rest_s` seconds after a success.

        After a failure it pauses, `longest_s` at most. A success, or a step longer than `longest_s`, resets the pauses.
        Raises errors of `ends`, alone or in a group. A cancelled task ends even if its step turned the cancellation
        into an error, as a task group does when another task fails.
        """
        backoff = Backoff(FIRST_PAUSE_S, longest_s)
        pause_s = rest_s if rests_first else 0.0
        with self._going():
            while await _pause_unless_stopped(pause_s, stop):
                again_s = await self._try(step, backoff, longest_s, ends)
                pause_s = rest_s if again_s is None else again_s

    async def keep(
        self,
        run: Callable[[], Awaitable[object]],
        *,
        settled_s: float = SETTLED_S,
        longest_s: float = LONGEST_PAUSE_S,
        ends: tuple[type[Exception], ...] = (),
        stop: asyncio.Event | None = None,
    ) -> None:
        """Keep an endless `run` going: restart it after a failure, until it ends by itself, is cancelled, or `stop`.

        It counts as recovered after `settled_s` seconds, or when it calls `note_success`. All else as in `repeat`.
        """
        backoff = Backoff(FIRST_PAUSE_S, longest_s)

        async def settling() -> None:
            settled = asyncio.get_running_loop().call_later(settled_s, self.note_success)
            try:
                await run()
            finally:
                settled.cancel()

        again_s: float | None = 0.0
        with self._going():
            while again_s is not None and await _pause_unless_stopped(again_s, stop):
                again_s = await self._try(settling, backoff, longest_s, ends)

    def note_success(self) -> None:
        """Record a success, and log a recovery."""
        if self.failing_since is not None:
            _log.info(
                "a loop has recovered", loop=self.name, failed_s=round(self.failing_s, 1), failures=self._in_a_row
            )
        self._forget()

    def failed(self, error: BaseException, *, again_s: float | None = None) -> None:
        """Count a failed step, and log it unless it was logged just now."""
        self.failures += 1
        self._in_a_row += 1
        if self.failing_since is None:
            self.failing_since, self._since_s = self._now(), self._counted()
        first = _first(error)
        self.error = _described(first)
        with suppress(OSError, ValueError):  # an unwritable log, as on a full disk, must not end the loop
            self._log_failure(error, first, again_s)

    def __str__(self) -> str:
        """The loop's state in a line."""
        if self.failing_since is None:
            return f"{self.name}: well"
        since = self.failing_since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        times = "1 failure" if self._in_a_row == 1 else f"{self._in_a_row} failures"
        return f"{self.name}: failing since {since} ({self.error}; {times})"

    @contextmanager
    def _going(self) -> Iterator[None]:
        """Clear the failures when the loop ends."""
        try:
            yield
        finally:
            self._forget()

    async def _try(
        self,
        step: Callable[[], Awaitable[object]],
        backoff: Backoff,
        longest_s: float,
        ends: tuple[type[Exception], ...],
    ) -> float | None:
        """Run a step; None after a success, else the pause in seconds."""
        task = asyncio.current_task()
        begun_s = self._counted()
        try:
            await step()
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, Exception) and _holds(error, ends):
                raise
            if task is not None and task.cancelling():
                # In an exception group, a cancellation would look like a failure.
                raise asyncio.CancelledError from error
            # Any other cancellation came from a task that the step waited for: a failure.
            if self._counted() - begun_s > longest_s:
                backoff.reset()
            again_s = backoff.next()
            self.failed(error, again_s=again_s)
            return again_s
        backoff.reset()
        self.note_success()
        return None

    def _forget(self) -> None:
        self.failing_since, self.error, self._in_a_row = None, "", 0

    def _log_failure(self, error: BaseException, first: BaseException, again_s: float | None) -> None:
        now_s = self._counted()
        fields: dict[str, object] = {"loop": self.name, "failures": self._in_a_row}
        if again_s is not None:
            fields["again_s"] = round(again_s, 1)
        expected = _passes(error)
        place = "" if expected else _place(first)
        if not expected and now_s - self._traced.get(place, -_TRACED_AGAIN_S) >= _TRACED_AGAIN_S:
            if len(self._traced) >= _MOST_TRACED:
                self._traced.clear()
            self._traced[place] = self._logged_s = now_s
            _log.error("a step failed; trying again", error=self.error, exc_info=error, **fields)
        elif self._in_a_row <= _LOGGED_FIRST or now_s - self._logged_s >= _LOGGED_AGAIN_S:
            self._logged_s = now_s
            # The text of an unexpected error may quote user data: it is in the traceback alone.
            _log.warning("a step is postponed; trying again", error=str(first) if expected else self.error, **fields)


class Loops:
    """All loops of a process by name. `now` is the time in UTC, `counted` a monotonic clock in seconds."""

    def __init__(
        self, now: Callable[[], datetime] | None = None, counted: Callable[[], float] = time.monotonic
    ) -> None:
        self._now = SystemClock().now if now is None else now
        self._counted = counted
        self._loops: dict[str, Loop] = {}

    def __getitem__(self, name: str) -> Loop:
        """The loop of this name, created on first use."""
        if name not in self._loops:
            self._loops[name] = Loop(name, self._now, self._counted)
        return self._loops[name]

    def __iter__(self) -> Iterator[Loop]:
        return iter([*self._loops.values()])

    async def keep(self, name: str, run: Callable[[], Awaitable[object]]) -> None:
        """Run it until cancelled, and restart it after failures. See pod_scheduling.ports.keeping.Keep."""
        await self[name].keep(run)

    def failing(self, longer_than_s: float = 0.0) -> list[Loop]:
        """Loops that have been failing for longer than this; the longest first."""
        failing = [loop for loop in self if loop.failing_since is not None and loop.failing_s >= longer_than_s]
        return sorted(failing, key=lambda loop: -loop.failing_s)


async def _pause_unless_stopped(seconds: float, stop: asyncio.Event | None) -> bool:
    """Pause, but not past `stop`; false when it is set."""
    await pause(seconds, stop)
    return stop is None or not stop.is_set()


def _first(error: BaseException) -> BaseException:
    """The first error in a group, which is not a group itself."""
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _holds(error: Exception, kinds: tuple[type[Exception], ...]) -> bool:
    if isinstance(error, ExceptionGroup):
        return any(_holds(inner, kinds) for inner in error.exceptions)
    return isinstance(error, kinds)


def _passes(error: BaseException) -> bool:
    """Whether only the database or the cluster is at fault."""
    if isinstance(error, BaseExceptionGroup):
        return all(_passes(inner) for inner in error.exceptions)
    return isinstance(error, _PASSES)


def _described(error: BaseException) -> str:
    """The class of an error, and its SQLSTATE if it has one."""
    name = type(error).__name__
    cause: BaseException | None = error
    while cause is not None:
        for holder in (cause, getattr(cause, "orig", None)):
            code = getattr(holder, "sqlstate", None)
            if isinstance(code, str):
                return f"{name}, SQLSTATE {code}"
        cause = cause.__cause__
    return name


def _place(error: BaseException) -> str:
    """The class and place of an error, which identify a recurring fault."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{_described(error)} {where}"
