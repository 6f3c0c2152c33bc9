"""`python -m availability_updater`."""

import sys

from availability_updater.update import run_once
from reservation_core.runtime.programs import run_program
from reservation_core.runtime.settings import UpdaterSettings
from reservation_core.runtime.wiring import open_runtime


async def main(settings: UpdaterSettings) -> None:
    """Look once."""
    async with open_runtime(settings, application="availability_updater") as runtime:
        await run_once(runtime)


if __name__ == "__main__":
    sys.exit(
        run_program(
            "availability_updater",
            "Reads nodes and GPUs from the cluster into the database, once.",
            UpdaterSettings,
            main,
            sys.argv[1:],
        )
    )
