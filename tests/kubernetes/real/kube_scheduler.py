"""A real kube-scheduler, where `KUBEBUILDER_ASSETS` has one beside a real API server."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.real import guarded
from tests.waiting import eventually_sync

_PATIENCE_S = 60.0


def kube_scheduler_of(server: ApiServer) -> Path | None:
    """The program, None where there is none."""
    program = Path(os.environ.get("KUBEBUILDER_ASSETS", "")) / "kube-scheduler"
    return program if server.real and program.is_file() else None


@contextmanager
def started_kube_scheduler(
    server: ApiServer, program: Path, config: Path | None = None, *, account: Path | None = None, port: int = 0
) -> Iterator[None]:
    """It binds the pods of all namespaces while the block runs; `config` is a KubeSchedulerConfiguration.

    `account` is the kubeconfig by which it asks who asks it at `port`, the administrator's otherwise.
    """
    log = server.folder / "kube-scheduler.log"
    command = [str(program), f"--secure-port={port}", "--bind-address=127.0.0.1", "--v=2"]
    if port:
        command.append(f"--cert-dir={server.folder / 'kube-scheduler-certificates'}")
    if config is None:
        command += [f"--kubeconfig={server.kubeconfig}", "--leader-elect=false"]
    else:
        command.append(f"--config={config}")
    asks = account or server.kubeconfig
    command += [f"--authentication-kubeconfig={asks}", f"--authorization-kubeconfig={asks}"]
    before = len(log.read_text()) if log.exists() else 0
    scheduler = guarded.start(command, log)

    def works() -> bool:
        said = log.read_text()[before:]
        if scheduler.poll() is not None:
            raise RuntimeError(f"kube-scheduler ended. It said: {said[-3000:]}")
        return "Starting Kubernetes Scheduler" in said

    try:
        eventually_sync(works, _PATIENCE_S)
        yield
    finally:
        guarded.end(scheduler)
