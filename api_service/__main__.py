"""`python -m api_service`: the API as a process of its own."""

import sys

from api_service.app import create_app
from api_service.server import serve
from reservation_core.runtime.policy_file import take_over
from reservation_core.runtime.programs import run_program
from reservation_core.runtime.reading import open_reads
from reservation_core.runtime.settings import ApiSettings
from reservation_core.runtime.shutdown import stop_on_signals
from reservation_core.runtime.wiring import open_runtime


async def _run(settings: ApiSettings) -> None:
    stop = stop_on_signals()
    async with open_runtime(settings, application="gpu-dev-api") as runtime:
        await take_over(runtime, settings.policy_file)
        async with open_reads(settings, runtime, application="gpu-dev-api") as reads:
            await serve(create_app(runtime, settings, reads=reads), settings.listen, stop=stop)


def main() -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code."""
    return run_program(
        "api_service", "The GPU Dev Server's REST API, until SIGTERM or SIGINT.", ApiSettings, _run, sys.argv[1:]
    )


if __name__ == "__main__":
    sys.exit(main())
