"""Run a component as a program: `--help`, settings from the environment, logging, the event loop, exit codes."""

import argparse
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog
import uvloop

from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.loops.start_waiting import StoppedError
from reservation_core.runtime.open_files import raise_open_files
from reservation_core.runtime.processes.log_files import LogPlaces
from reservation_core.runtime.processes.logs import configure
from reservation_core.runtime.settings.components import CommonSettings
from reservation_core.runtime.settings.environment import read_settings, unknown_variables
from reservation_core.runtime.settings.error import SettingsError

S = TypeVar("S", bound=CommonSettings)

_log = structlog.get_logger(__name__)
_EXPECTED = (SettingsError, DatabaseUnavailableError, ClusterUnavailableError)
"""Errors that the operator can fix; all others are bugs and show their traceback."""


def run_program(
    name: str, about: str, settings_type: type[S], main: Callable[[S], Awaitable[None]], arguments: list[str]
) -> int:
    """Run `main` with its settings; returns the exit code (0 done, 1 unavailable now, 2 unusable settings)."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {name}", description=about, epilog=describe_settings(settings_type)
    )
    parser.parse_args(arguments)
    return run_with_settings(name, settings_type, main)


def run_with_settings(
    name: str,
    settings_type: type[S],
    main: Callable[[S], Awaitable[None]],
    *,
    changed: Callable[[S], S] | None = None,
    logs: LogPlaces | None = None,
) -> int:
    """The same for a program with its own arguments, with `describe_settings` as its parser's epilog.

    `changed` overrides settings with arguments, and may raise SettingsError.
    """
    try:
        settings = read_settings(settings_type)
        if changed is not None:
            settings = changed(settings)
        handlers = [] if logs is None else logs.open(name)
    except SettingsError as error:
        return _report(name, error)
    configure(settings, handlers)
    if unknown := unknown_variables():
        _log.warning("nothing reads these variables; `--help` shows the settings", variables=unknown)
    raise_open_files()
    try:
        uvloop.run(_awaited(main, settings))
    except StoppedError:
        return 0
    except _EXPECTED as error:
        return _report(name, error)
    except ExceptionGroup as group:
        expected, bugs = group.split(_EXPECTED)
        if expected is None or bugs is not None:
            raise
        return _report(name, _first(expected.subgroup(SettingsError) or expected))
    return 0


def describe_settings(settings_type: type[CommonSettings]) -> str:
    """The names of the settings' variables, for `--help`."""
    variables = sorted(f"GPU_DEV_{field.upper()}" for field in settings_type.model_fields)
    return "Settings come from the environment: " + ", ".join(variables) + "."


def _report(name: str, error: Exception) -> int:
    """Print an error, in one line for each setting; returns the exit code."""
    if isinstance(error, SettingsError):
        sys.stderr.writelines(f"{name}: {line}\n" for line in str(error).splitlines())
        return 2
    sys.stderr.write(f"{name}: {error}. Try again when it is back.\n")
    return 1


def _first(error: Exception) -> Exception:
    """The first error in a group, which is not a group itself."""
    return _first(error.exceptions[0]) if isinstance(error, ExceptionGroup) else error


async def _awaited(main: Callable[[S], Awaitable[None]], settings: S) -> None:
    await main(settings)
