"""`python -m api_service`: the API as a process of its own."""

import argparse
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from api_service.app import create_app
from api_service.server import serve
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.processes.companions import beside
from reservation_core.runtime.processes.programs import describe_settings, run_with_settings
from reservation_core.runtime.processes.shutdown import stop_on_signals
from reservation_core.runtime.reading.policy_file import take_over
from reservation_core.runtime.reading.reading import open_reads
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.wiring import open_runtime


async def _run(settings: ApiSettings) -> None:
    stop = stop_on_signals()
    async with open_runtime(settings, application="gpu-dev-api") as runtime, AsyncExitStack() as closing:
        taking_over = partial(take_over, runtime, settings.policy_file)
        try:
            await taking_over()
        except DatabaseUnavailableError:
            # Meanwhile the API answers that the database is away, and probes see a live process: it serves, and takes
            # the file over as soon as it can.
            later = runtime.loops["policy_file"].keep(taking_over, stop=stop)
            await closing.enter_async_context(beside(later, name="policy file"))
        reads = await closing.enter_async_context(open_reads(settings, runtime, application="gpu-dev-api"))
        await serve(create_app(runtime, settings, reads=reads), settings.listen, stop=stop)


def main() -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m api_service",
        description="The GPU Dev Server's REST API, until SIGTERM or SIGINT.",
        epilog=describe_settings(ApiSettings),
    )
    parser.add_argument("--tls-cert", type=Path, metavar="FILE", help="PEM: the certificate with its chain; serve TLS")
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="PEM: its key, without a password")
    chosen = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    return run_with_settings("api_service", ApiSettings, _run, changed=lambda read: read.model_copy(update=chosen))


if __name__ == "__main__":
    sys.exit(main())
