"""`python -m reservation_expiry`: look once; with `--watch` end pods that people made as soon as they are due."""

import argparse
import sys
from contextlib import nullcontext

from reservation_core.runtime.processes.companions import beside
from reservation_core.runtime.processes.programs import describe_settings, run_with_settings
from reservation_core.runtime.processes.shutdown import stop_on_signals
from reservation_core.runtime.settings.components import ExpirySettings
from reservation_core.runtime.wiring import open_runtime
from reservation_expiry.expire import run_once, watch

PROGRAM = "reservation_expiry"


def main(arguments: list[str]) -> int:
    """Run; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {PROGRAM}",
        description="Warns before, ends at, and cleans up after the end of reservations, once.",
        epilog=describe_settings(ExpirySettings),
        allow_abbrev=False,
    )
    parser.add_argument(
        "--watch", action="store_true",
        help="follow the pods that people made and end them when they are due, and nothing else, until SIGTERM",
    )  # fmt: skip
    chosen = parser.parse_args(arguments)
    return run_with_settings(PROGRAM, ExpirySettings, _watch if chosen.watch else _look)


async def _look(settings: ExpirySettings) -> None:
    async with open_runtime(settings, application=PROGRAM, wait_s=settings.database_wait_s) as runtime:
        await run_once(runtime, settings)


async def _watch(settings: ExpirySettings) -> None:
    # Loaded only where it is wanted: a look, once a minute, serves nothing.
    from reservation_core.runtime.http.health import serve_health  # noqa: PLC0415

    listen, stop = settings.health_listen, stop_on_signals()
    async with (
        open_runtime(settings, application=f"{PROGRAM}-watch") as runtime,
        nullcontext()
        if listen is None
        else beside(serve_health(runtime.uow, runtime.loops, listen, settings.http), name="health"),
    ):
        await watch(runtime, settings, stop)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
