"""A real kube-controller-manager, where `KUBEBUILDER_ASSETS` has one beside a real API server."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.real import guarded
from tests.waiting import eventually_sync

_PATIENCE_S = 120.0


def kube_controller_manager_of(server: ApiServer) -> Path | None:
    """The program, None where there is none."""
    program = Path(os.environ.get("KUBEBUILDER_ASSETS", "")) / "kube-controller-manager"
    return program if server.real and program.is_file() else None


@contextmanager
def started_controllers(server: ApiServer, program: Path, *names: str) -> Iterator[None]:
    """These controllers of all namespaces (`statefulset-controller`, …) work while the block runs."""
    log = server.folder / "kube-controller-manager.log"
    kubeconfig = server.kubeconfig
    command = [str(program), f"--kubeconfig={kubeconfig}", f"--controllers={','.join(names)}"]
    command += ["--leader-elect=false", "--secure-port=0", "--v=2"]
    command += [f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}"]
    before = len(log.read_text()) if log.exists() else 0
    manager = guarded.start(command, log)

    def works() -> bool:
        said = log.read_text()[before:]
        if manager.poll() is not None:
            raise RuntimeError(f"kube-controller-manager ended. It said: {said[-3000:]}")
        return all(f'controller="{name}"' in said for name in names)

    try:
        eventually_sync(works, _PATIENCE_S)
        yield
    finally:
        guarded.end(manager)
