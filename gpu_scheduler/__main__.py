"""`python -m gpu_scheduler`: binds pods that carry a scheduling map to the nodes that it names."""

import argparse
import asyncio
import sys
from functools import partial
from pathlib import Path

import structlog

from gpu_scheduler.health import create_app
from pod_scheduling.runtime.map_scheduling import run_map_scheduler
from pod_scheduling.runtime.settings.scheduler import SchedulerSettings
from reservation_core.runtime.http.bounded_protocol import ServerBounds
from reservation_core.runtime.http.serving import QuietServer, address_of, open_socket, quiet_config
from reservation_core.runtime.processes.garbage import calm_garbage_collector
from reservation_core.runtime.processes.programs import describe_settings, run_with_settings
from reservation_core.runtime.processes.shutdown import stop_on_signals

PROGRAM = "gpu_scheduler"
_CONNECTIONS = 64
_STOP_PATIENCE_S = 5
_log = structlog.get_logger(__name__)


def main(arguments: list[str]) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {PROGRAM}",
        description="Binds pods with schedulerName gpu-scheduler to the nodes that their gpu-scheduling-map names.",
        epilog=describe_settings(SchedulerSettings),
        allow_abbrev=False,
    )
    parser.add_argument(
        "--kubeconfig", type=Path, metavar="FILE",
        help="how to reach the API server; without it as inside a cluster, or GPU_DEV_KUBERNETES__KUBECONFIG",
    )  # fmt: skip
    parser.add_argument(
        "--health-listen", default="0.0.0.0:8080", metavar="HOST:PORT",
        help="where /health, /ready and /metrics are answered (0.0.0.0:8080)",
    )  # fmt: skip
    chosen = parser.parse_args(arguments)
    return run_with_settings(PROGRAM, SchedulerSettings, partial(_run, chosen.kubeconfig, chosen.health_listen))


async def _run(kubeconfig: Path | None, listen: str, settings: SchedulerSettings) -> None:
    if kubeconfig is not None:
        kubernetes = settings.kubernetes.model_copy(update={"kubeconfig": kubeconfig})
        settings = settings.model_copy(update={"kubernetes": kubernetes})
    stop = stop_on_signals()
    opened = open_socket(listen, "--health-listen")
    try:
        async with run_map_scheduler(settings) as running:
            config = quiet_config(create_app(running), stop_patience_s=_STOP_PATIENCE_S, lifespan="off")
            server = QuietServer(
                config,
                lambda: _log.info("health_listening", address=address_of(opened)),
                ServerBounds(settings.http.limits(_CONNECTIONS)),
            )
            calm_garbage_collector()
            stopping = asyncio.create_task(_stop(server, stop))
            try:
                await server.serve(sockets=[opened])
            finally:
                stopping.cancel()
                await asyncio.gather(stopping, return_exceptions=True)
    finally:
        opened.close()


async def _stop(server: QuietServer, stop: asyncio.Event) -> None:
    await stop.wait()
    server.should_exit = True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
