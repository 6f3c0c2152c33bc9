"""`python -m ssh_gateway`."""

import sys
from contextlib import nullcontext

from reservation_core.runtime.http.health import serve_health
from reservation_core.runtime.processes.companions import beside
from reservation_core.runtime.processes.garbage import calm_garbage_collector
from reservation_core.runtime.processes.programs import run_program
from reservation_core.runtime.processes.shutdown import stop_on_signals
from reservation_core.runtime.settings.components import SshGatewaySettings
from reservation_core.runtime.ssh.metrics import SshCollector
from reservation_core.runtime.wiring import open_runtime
from ssh_gateway.listening import run


async def main(settings: SshGatewaySettings) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = stop_on_signals()
    async with open_runtime(settings, application="ssh_gateway") as runtime:
        collectors = (SshCollector(runtime.ssh),)
        listen = settings.health_listen
        health = None if listen is None else serve_health(runtime.uow, runtime.loops, listen, settings.http, collectors)
        async with nullcontext() if health is None else beside(health, name="health"):
            calm_garbage_collector()
            await run(runtime, settings, stop)


if __name__ == "__main__":
    sys.exit(
        run_program(
            "ssh_gateway",
            "Lets people into their running jobs by SSH.",
            SshGatewaySettings,
            main,
            sys.argv[1:],
        )
    )
