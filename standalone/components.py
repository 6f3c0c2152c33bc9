"""Running the components side by side: all of them, or none.

When one ends before it was asked to, for whatever reason, the others are stopped in order and the process fails: a
system of which a part is dead would accept work that nobody does.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any

import structlog

from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.settings_error import SettingsError

_PATIENCE = timedelta(seconds=20)

_log = structlog.get_logger(__name__)


class ComponentFailedError(Exception):
    """A component ended although nobody had asked it to."""


async def run_together(
    components: dict[str, Coroutine[Any, Any, None]], stop: asyncio.Event, *, patience: timedelta = _PATIENCE
) -> None:
    """Run all components until `stop` is set and they have ended.

    They get `patience` for that and are cancelled after it. Raises ComponentFailedError, with the component's own error
    as its cause, when one fails or ends early, and SettingsError as it is.
    """
    tasks = {asyncio.create_task(component, name=name) for name, component in components.items()}
    try:
        ended, running = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        early = next(iter(ended)) if not stop.is_set() else None
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
        if isinstance(task.exception(), SettingsError):
            continue  # told in plain words, not with a traceback
        _log.error("a component failed", component=task.get_name(), exc_info=task.exception())
    first = early if early is not None and early in failed else next(iter(failed), None)
    if first is not None:
        error = first.exception()
        if isinstance(error, SettingsError):
            raise error
        raise ComponentFailedError(f"The {first.get_name()} failed: {type(error).__name__}: {error}") from error
    if early is not None:
        raise ComponentFailedError(f"The {early.get_name()} ended by itself, which it never should.")


async def every(period: timedelta, act: Callable[[], Awaitable[object]], stop: asyncio.Event) -> None:
    """Act once each `period` until `stop` is set, first after one period.

    What the cluster or the database can't do just now is done at the next turn: what is acted on is the state, not the
    occasion. Everything else travels.
    """
    while True:
        try:
            await asyncio.wait_for(stop.wait(), period.total_seconds())
        except TimeoutError:
            try:
                await act()
            except* (ClusterUnavailableError, DatabaseUnavailableError) as errors:
                _log.warning("not now; trying again at the next turn", error=_said(errors))
        else:
            return


def _said(error: BaseException) -> str:
    """An error's own words; for a group of errors, the first one's."""
    return _said(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else str(error)
