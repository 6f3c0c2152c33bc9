"""`python -m reservation_expiry`."""

import sys

from reservation_core.runtime.programs import run_program
from reservation_core.runtime.settings import ExpirySettings
from reservation_core.runtime.wiring import open_runtime
from reservation_expiry.expire import run_once


async def main(settings: ExpirySettings) -> None:
    """Look once."""
    async with open_runtime(settings, application="reservation_expiry") as runtime:
        await run_once(runtime, settings)


if __name__ == "__main__":
    sys.exit(
        run_program(
            "reservation_expiry",
            "Warns before, ends at, and cleans up after the end of reservations, once.",
            ExpirySettings,
            main,
            sys.argv[1:],
        )
    )
