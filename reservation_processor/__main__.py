"""`python -m reservation_processor`."""

import sys
from contextlib import nullcontext

from reservation_core.runtime.cron_jobs import watch_cron_jobs
from reservation_core.runtime.http.health import serve_health
from reservation_core.runtime.processes.companions import beside
from reservation_core.runtime.processes.garbage import calm_garbage_collector
from reservation_core.runtime.processes.programs import run_program
from reservation_core.runtime.processes.shutdown import stop_on_signals
from reservation_core.runtime.settings.components import ProcessorSettings
from reservation_core.runtime.wiring import open_runtime
from reservation_processor.process import run


async def main(settings: ProcessorSettings) -> None:
    """Process until SIGTERM or SIGINT."""
    async with (
        open_runtime(settings, application="reservation_processor") as runtime,
        watch_cron_jobs(settings, runtime.loops) as collectors,
    ):
        listen, stop = settings.health_listen, stop_on_signals()
        health = None if listen is None else serve_health(runtime.uow, runtime.loops, listen, settings.http, collectors)
        async with nullcontext() if health is None else beside(health, name="health"):
            calm_garbage_collector(in_small_parts=True)
            await run(runtime, settings, stop)


if __name__ == "__main__":
    sys.exit(
        run_program(
            "reservation_processor",
            "Gives queued jobs exact GPUs, runs their pods and follows them.",
            ProcessorSettings,
            main,
            sys.argv[1:],
        )
    )
