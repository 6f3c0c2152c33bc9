"""Run the components side by side, and restart each one that ends.

A failure of one ends neither the others nor the process, on which the jobs of hundreds of people depend. Only a
component that can't even start, because of its settings or a programming error, ends the process, which says why.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta

import structlog

from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.loops.loops import Loop, Loops
from reservation_core.runtime.settings.error import SettingsError

CAN_NOT_START_S = 1.0
"""A component that fails within this time of its first start can't start; one that fails later is started again."""
LONGEST_PAUSE_S = 30.0
_PATIENCE = timedelta(seconds=20)
_PASSES = (ClusterUnavailableError, DatabaseUnavailableError)

_log = structlog.get_logger(__name__)

Start = Callable[[], Awaitable[None]]
"""Runs a component until the process is to end."""


class ComponentFailedError(Exception):
    """A component can't start, or ended by itself; the text says why."""


class _CanNotStartError(Exception):
    """Ends the process; its cause is the component's own error."""


async def run_together(
    components: Mapping[str, Start], stop: asyncio.Event, loops: Loops, *, patience: timedelta = _PATIENCE
) -> None:
    """Run all components until `stop` is set and they have ended; one that ends before is started again.

    Components that have not ended `patience` after `stop` are cancelled. Each is a loop of `loops` (see `loop_name`),
    so that the metrics and `/readyz` show its failures. If one can't start, `stop` is set and all end in order. Raises
    SettingsError if a setting is the reason, or else ComponentFailedError.
    """
    tasks = {
        asyncio.create_task(_keep(name, start, stop, loops[loop_name(name)]), name=name)
        for name, start in components.items()
    }
    try:
        _, running = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        if running:
            _, running = await asyncio.wait(running, timeout=patience.total_seconds())
        for task in running:
            _log.warning("a component does not end and is cancelled", component=task.get_name())
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    failed = [task for task in tasks if not task.cancelled() and task.exception() is not None]
    for task in failed:
        reason = _reason(task.exception())
        if isinstance(reason, SettingsError):
            raise reason
        _log.error("a component can't start", component=task.get_name(), exc_info=reason)
    for task in failed:
        reason = _reason(task.exception())
        shown = str(reason) if isinstance(reason, ComponentFailedError) else f"{type(reason).__name__}: {reason}"
        raise ComponentFailedError(f"The {task.get_name()} can't start: {shown}") from reason


def loop_name(component: str) -> str:
    """The name of a component in metrics and `/readyz`, such as `component_ending_of_pods`."""
    return f"component_{component.lower().replace(' ', '_')}"


async def _keep(name: str, start: Start, stop: asyncio.Event, loop: Loop) -> None:
    """Run a component until `stop`, and restart it if it ends before. Raises _CanNotStartError."""
    clock = asyncio.get_running_loop().time
    tries = 0

    async def run() -> None:
        nonlocal tries
        tries += 1
        begun = clock()
        try:
            await _run_until(stop, start, name)
        except Exception as error:
            if tries == 1 and _can_not_start(error, clock() - begun):
                raise _CanNotStartError from error
            raise

    await loop.keep(run, longest_s=LONGEST_PAUSE_S, ends=(_CanNotStartError,), stop=stop)


async def _run_until(stop: asyncio.Event, start: Start, name: str) -> None:
    await start()
    if not stop.is_set():
        raise ComponentFailedError(f"The {name} ended unexpectedly.")


def _can_not_start(error: Exception, after_s: float) -> bool:
    if _settings_error(error) is not None:
        return True
    if isinstance(error, ExceptionGroup):
        _, error_left = error.split(_PASSES)
        return error_left is not None and after_s < CAN_NOT_START_S
    return not isinstance(error, _PASSES) and after_s < CAN_NOT_START_S


def _reason(error: BaseException | None) -> BaseException | None:
    """The component's own error; of several, the wrong setting."""
    cause = error.__cause__ if isinstance(error, _CanNotStartError) else error
    return _settings_error(cause) or cause


def _settings_error(error: BaseException | None) -> SettingsError | None:
    if isinstance(error, BaseExceptionGroup):
        return next((found for inner in error.exceptions if (found := _settings_error(inner)) is not None), None)
    return error if isinstance(error, SettingsError) else None
