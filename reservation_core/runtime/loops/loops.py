"""Loops that outlive whatever goes wrong in a step, and what of a process fails since when.

A database may answer anything, and a picture in memory may be wrong: a process that ends for it takes all its other
loops with it, and meets the same again when it is back. So a loop that fails pauses, longer each time and at random,
and tries again. What it fails with is counted, logged, and told by `/readyz` and `/metrics`.

Only a cancellation, `stop`, and the errors that a loop was given as its end end it.
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
from reservation_core.runtime.loops.backoff import Backoff

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 5.0
SETTLED_S = 30.0
"""An endless run that has not failed for so long is well again."""
PATIENCE_S = 60.0
"""A process one of whose loops has failed for longer than this does not do its work."""

_PASSES = (DatabaseUnavailableError, ClusterUnavailableError)
_LOGGED_FIRST = 3
_LOGGED_AGAIN_S = 30.0
_TRACED_AGAIN_S = 300.0
_MOST_TRACED = 32
_log = structlog.get_logger(__name__)


class Loop:
    """One loop of a process: runs it, and knows how it goes.

    `failures` counts failed steps since the start of the process. `failing_since` (UTC) and `error` (a class and a
    SQLSTATE, never a value or a parameter) are of the failures since the last step that went well.
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
        """For how many seconds no step has gone well, by a clock that nobody sets; 0 while it goes well."""
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
        """Do `step` again and again until cancelled or `stop`; after one that went well rest for `rest_s` seconds.

        After one that failed it pauses, `longest_s` at most. A step that went well, or for longer than that, lets the
        pauses begin with the shortest again. Raises the errors that `ends` names, alone or in a group. A task that was
        cancelled ends, also where its step told that as an error, as a group of tasks does when one fails then.
        """
        backoff = Backoff(FIRST_PAUSE_S, longest_s)
        pause_s = rest_s if rests_first else 0.0
        with self._going():
            while await _paused(pause_s, stop):
                again_s = await self._tried(step, backoff, longest_s, ends)
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
        """Do `run`, which goes on until it is cancelled or ends by itself; begin it again when it fails before `stop`.

        It goes well when it has not failed for `settled_s` seconds, or calls `went_well` earlier. All else as `repeat`.
        """
        backoff = Backoff(FIRST_PAUSE_S, longest_s)

        async def settling() -> None:
            settled = asyncio.get_running_loop().call_later(settled_s, self.went_well)
            try:
                await run()
            finally:
                settled.cancel()

        again_s: float | None = 0.0
        with self._going():
            while again_s is not None and await _paused(again_s, stop):
                again_s = await self._tried(settling, backoff, longest_s, ends)

    def went_well(self) -> None:
        """A step has done its work, whatever it waits for now."""
        if self.failing_since is not None:
            _log.info(
                "a loop has recovered", loop=self.name, failed_s=round(self.failing_s, 1), failures=self._in_a_row
            )
        self._forget()

    def failed(self, error: BaseException, *, again_s: float | None = None) -> None:
        """A step has failed: count it, and log it unless it has been logged just now."""
        self.failures += 1
        self._in_a_row += 1
        if self.failing_since is None:
            self.failing_since, self._since_s = self._now(), self._counted()
        first = _first(error)
        self.error = _described(first)
        with suppress(OSError, ValueError):  # a log that can't be written, on a full disk say, ends no loop
            self._log_failure(error, first, again_s)

    def __str__(self) -> str:
        """How it goes, in a line."""
        if self.failing_since is None:
            return f"{self.name}: well"
        since = self.failing_since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        times = "1 failure" if self._in_a_row == 1 else f"{self._in_a_row} failures"
        return f"{self.name}: failing since {since} ({self.error}; {times})"

    @contextmanager
    def _going(self) -> Iterator[None]:
        """What does not run any more does not fail."""
        try:
            yield
        finally:
            self._forget()

    async def _tried(
        self,
        step: Callable[[], Awaitable[object]],
        backoff: Backoff,
        longest_s: float,
        ends: tuple[type[Exception], ...],
    ) -> float | None:
        """None when the step went well, or else how long to pause."""
        task = asyncio.current_task()
        begun_s = self._counted()
        try:
            await step()
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, Exception) and _holds(error, ends):
                raise
            if task is not None and task.cancelling():
                # In a group of errors a cancellation would look as if the loop had failed.
                raise asyncio.CancelledError from error
            # Else a cancellation came from something that the step waited for: that is a failure like others.
            if self._counted() - begun_s > longest_s:
                backoff.reset()
            again_s = backoff.next()
            self.failed(error, again_s=again_s)
            return again_s
        backoff.reset()
        self.went_well()
        return None

    def _forget(self) -> None:
        self.failing_since, self.error, self._in_a_row = None, "", 0

    def _log_failure(self, error: BaseException, first: BaseException, again_s: float | None) -> None:
        now_s = self._counted()
        said: dict[str, object] = {"loop": self.name, "failures": self._in_a_row}
        if again_s is not None:
            said["again_s"] = round(again_s, 1)
        expected = _passes(error)
        place = "" if expected else _place(first)
        if not expected and now_s - self._traced.get(place, -_TRACED_AGAIN_S) >= _TRACED_AGAIN_S:
            if len(self._traced) >= _MOST_TRACED:
                self._traced.clear()
            self._traced[place] = self._logged_s = now_s
            _log.error("a step failed; trying again", error=self.error, exc_info=error, **said)
        elif self._in_a_row <= _LOGGED_FIRST or now_s - self._logged_s >= _LOGGED_AGAIN_S:
            self._logged_s = now_s
            # The words of an error that nobody foresaw may quote what it was about: they are in the traceback alone.
            _log.warning("a step is postponed; trying again", error=str(first) if expected else self.error, **said)


class Loops:
    """All loops of a process, by name. `now` is the time in UTC, `counted` a clock in seconds that nobody sets."""

    def __init__(
        self, now: Callable[[], datetime] | None = None, counted: Callable[[], float] = time.monotonic
    ) -> None:
        self._now = SystemClock().now if now is None else now
        self._counted = counted
        self._loops: dict[str, Loop] = {}

    def __getitem__(self, name: str) -> Loop:
        """The loop of this name; a new one when it is first asked for."""
        if name not in self._loops:
            self._loops[name] = Loop(name, self._now, self._counted)
        return self._loops[name]

    def __iter__(self) -> Iterator[Loop]:
        return iter([*self._loops.values()])

    async def keep(self, name: str, run: Callable[[], Awaitable[object]]) -> None:
        """Run it until cancelled; begin it again whenever it fails. See pod_scheduling.ports.keeping.Keep."""
        await self[name].keep(run)

    def failing(self, longer_than_s: float = 0.0) -> list[Loop]:
        """Those in which no step has gone well for longer than this; the longest first."""
        found = [loop for loop in self if loop.failing_since is not None and loop.failing_s >= longer_than_s]
        return sorted(found, key=lambda loop: -loop.failing_s)


async def _paused(seconds: float, stop: asyncio.Event | None) -> bool:
    """Pause, but not past `stop`; false when that has come."""
    if stop is None or seconds <= 0:
        await asyncio.sleep(max(0.0, seconds))
    else:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await stop.wait()
    return stop is None or not stop.is_set()


def _first(error: BaseException) -> BaseException:
    """The first error of a group that is not a group itself."""
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _holds(error: Exception, kinds: tuple[type[Exception], ...]) -> bool:
    if isinstance(error, ExceptionGroup):
        return any(_holds(inner, kinds) for inner in error.exceptions)
    return isinstance(error, kinds)


def _passes(error: BaseException) -> bool:
    """Whether it is trouble of the database's or the cluster's alone, which says nothing of this program."""
    if isinstance(error, BaseExceptionGroup):
        return all(_passes(inner) for inner in error.exceptions)
    return isinstance(error, _PASSES)


def _described(error: BaseException) -> str:
    """Its class, and PostgreSQL's code for it where there is one."""
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
    """What it is and where it was raised: the same mistake again has the same."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{_described(error)} {where}"
