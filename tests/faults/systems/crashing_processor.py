"""The real processor, killed with SIGKILL at a named moment.

Called as `python -m tests.faults.systems.crashing_processor MOMENT N`. It dies when MOMENT (see `watched_runtime`)
comes for the Nth time, and prints it just before.
"""

import asyncio
import os
import signal
import sys

from reservation_core.runtime.processes.logs import configure
from reservation_core.runtime.settings.components import ProcessorSettings
from reservation_core.runtime.wiring import open_runtime
from reservation_processor.process import run
from tests.faults.systems.watched_runtime import Listener, watched

LAST_WORDS = "killed at: "


def killer(moment: str, times: int) -> Listener:
    """Kills this process when the moment comes for the nth time."""
    left = times

    def heard(what: str) -> None:
        nonlocal left
        left -= what == moment
        if left == 0:
            os.write(2, f"{LAST_WORDS}{moment}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)

    return heard


async def main(moment: str, times: int) -> None:
    """Process until death."""
    settings = ProcessorSettings()
    configure(settings)
    async with open_runtime(settings, application="crashing_processor") as runtime:
        await run(watched(runtime, killer(moment, times)), settings, asyncio.Event())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
