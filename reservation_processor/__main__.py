"""`python -m reservation_processor`."""

import sys

from reservation_core.runtime.programs import run_program
from reservation_core.runtime.settings import ProcessorSettings
from reservation_core.runtime.shutdown import stop_on_signals
from reservation_core.runtime.wiring import open_runtime
from reservation_processor.process import run


async def main(settings: ProcessorSettings) -> None:
    """Process until SIGTERM or SIGINT."""
    async with open_runtime(settings, application="reservation_processor") as runtime:
        await run(runtime, settings, stop_on_signals())


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
