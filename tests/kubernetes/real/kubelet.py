"""A real kubelet on containerd, beside a real API server: one node of this machine whose pods run busybox.

It wants root, `unshare`, and in the folder of `KUBEBUILDER_ASSETS`: `kubelet`, `containerd`, `containerd-shim-runc-v2`,
`ctr`, `runc`, `busybox` (static), and `cni` with the plugins `bridge`, `host-local` and `loopback`.

Mounts and processes are in namespaces of their own and go with the kubelet; so do the settings of the kernel that a
kubelet changes. What stays until the end is a bridge and a folder of cgroups.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.real import guarded
from tests.kubernetes.real.images import (
    WORKLOAD_IMAGE,
    missing_for_tools,
    write_server_image,
    write_tools_image,
    write_workload_image,
)
from tests.programs.ports import own_port
from tests.waiting import eventually_sync

_PATIENCE_S = 120.0
_BRIDGE = "gpu-dev-tests"
HOST = "10.244.0.1"
"""The address of this machine as pods see it."""
_CGROUPS = "gpu-dev-tests"
_PROGRAMS = ("kubelet", "containerd", "containerd-shim-runc-v2", "ctr", "runc", "busybox", "cni/bridge")
_CGROUP_MOUNTS = Path("/sys/fs/cgroup")

# Arguments: the folder, the command of the kubelet. A kubelet that is killed while `away` is there waits for its end.
_START = """set -e
folder=$1
mount --make-rshared /
for place in /run/netns /run/containerd /var/lib/cni /var/lib/kubelet /var/log/containers; do
  mkdir -p $place
  mount -t tmpfs tmpfs $place
done
for name in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops \\
    kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
  copy=$folder/sysctl-$(echo $name | tr / -)
  cat /proc/sys/$name >$copy
  mount --bind $copy /proc/sys/$name
done
containerd --config $folder/containerd.toml >$folder/containerd.log 2>&1 &
until ctr --address $folder/containerd.sock version >/dev/null 2>&1; do sleep 0.1; done
for image in $folder/*.tar; do ctr --address $folder/containerd.sock --namespace k8s.io images import $image; done
shift
while "$@" || true; [ -e $folder/away ]; do
  while [ -e $folder/away ]; do sleep 0.1; done
done
"""


def missing_for_kubelet() -> str:
    """What keeps a real kubelet from running here; empty if nothing does."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets:
        return "KUBEBUILDER_ASSETS names no real API server"
    absent = [name for name in _PROGRAMS if not (Path(assets) / name).is_file()]
    if absent:
        return f"KUBEBUILDER_ASSETS lacks {', '.join(absent)}"
    if os.geteuid() != 0:
        return "a kubelet needs root"
    return ""


@dataclass(frozen=True, slots=True)
class RealKubelet:
    """A running kubelet. Its containers go on without it."""

    folder: Path
    guard: subprocess.Popen[bytes]

    def kill(self) -> None:
        """End it by SIGKILL, until `start_again`."""
        (self.folder / "away").touch()
        for process in psutil.Process(self.guard.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # others come and go
                if process.name() == "kubelet":
                    process.kill()
                    process.wait(_PATIENCE_S)

    def start_again(self) -> None:
        """Start a killed one. It answers after some seconds."""
        (self.folder / "away").unlink()


@contextmanager
def started_kubelet(server: ApiServer, node: str) -> Iterator[RealKubelet]:
    """A kubelet that runs the pods of its node while the block runs."""
    assets = Path(os.environ["KUBEBUILDER_ASSETS"])
    folder = server.folder / f"kubelet{len([*server.folder.glob('kubelet*')])}"
    folder.mkdir()
    write_workload_image(assets / "busybox", folder / "workload.tar")
    write_server_image(assets / "busybox", folder / "server.tar")
    if not missing_for_tools():
        write_tools_image(assets / "busybox", folder / "session-tools.tar")
    _write_configuration(server, assets, folder)
    roots = _make_cgroups()
    account = server.kubeconfig_with(server.admin_token, "kubelet")
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command += ["env", f"PATH={assets}:{os.environ['PATH']}", "sh", "-c", _START, "sh", str(folder)]
    command += [str(assets / "kubelet"), f"--kubeconfig={account}"]
    command += [
        f"--config={folder / 'kubelet.yaml'}",
        f"--root-dir={folder / 'root'}",
        f"--cert-dir={folder / 'certs'}",
    ]
    command += [f"--hostname-override={node}", "--node-labels=gpu-dev/node=true"]
    log = folder / "kubelet.log"
    kubelet = guarded.start(command, log)
    try:
        eventually_sync(lambda: _is_ready(server, node, kubelet, log), _PATIENCE_S)
        yield RealKubelet(folder, kubelet)
    finally:
        guarded.end(kubelet)
        subprocess.run(["ip", "link", "delete", _BRIDGE], check=False, capture_output=True)
        for root in roots:
            _remove_cgroups(root)
        _unmount_below(folder)


def _is_ready(server: ApiServer, node: str, kubelet: subprocess.Popen[bytes], log: Path) -> bool:
    if kubelet.poll() is not None:
        raise RuntimeError(f"The kubelet ended. It said: {log.read_text()[-3000:]}")
    command = [
        str(Path(os.environ["KUBEBUILDER_ASSETS"]) / "kubectl"),
        f"--kubeconfig={server.kubeconfig}",
        "get",
        "node",
    ]
    answer = subprocess.run([*command, node, "-o", "json"], check=False, capture_output=True)
    if answer.returncode:
        return False
    conditions = json.loads(answer.stdout)["status"].get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _write_configuration(server: ApiServer, assets: Path, folder: Path) -> None:
    network = {
        "cniVersion": "0.4.0",
        "name": "tests",
        "plugins": [
            {
                "type": "bridge",
                "bridge": _BRIDGE,
                "isGateway": True,
                "ipam": {
                    "type": "host-local",
                    "dataDir": str(folder / "addresses"),
                    "ranges": [[{"subnet": "10.244.0.0/24"}]],
                },
            }
        ],
    }
    (folder / "net").mkdir()
    (folder / "net" / "tests.conflist").write_text(json.dumps(network))
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    runtimes = "".join(
        f"""[{cri}.containerd.runtimes.{name}]
runtime_type = "io.containerd.runc.v2"
[{cri}.containerd.runtimes.{name}.options]
BinaryName = "{assets / "runc"}"
"""
        for name in ("runc", "nvidia")
    )
    (folder / "containerd.toml").write_text(
        f"""version = 2
root = "{folder / "containerd"}"
state = "{folder / "state"}"
[grpc]
address = "{folder / "containerd.sock"}"
[{cri}]
sandbox_image = "{WORKLOAD_IMAGE}"
restrict_oom_score_adj = true
[{cri}.cni]
bin_dir = "{assets / "cni"}"
conf_dir = "{folder / "net"}"
[{cri}.containerd]
default_runtime_name = "runc"
{runtimes}"""
    )
    (folder / "kubelet.yaml").write_text(json.dumps(_kubelet_configuration(server, folder)))


def _kubelet_configuration(server: ApiServer, folder: Path) -> dict[str, object]:
    assert server.process is not None
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(server.process.webhooks_authority)},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "port": own_port(),
        "healthzPort": 0,
        "containerRuntimeEndpoint": f"unix://{folder / 'containerd.sock'}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{_CGROUPS}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "enforceNodeAllocatable": [],
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "resolvConf": "",
        "maxPods": 200,
        "podLogsDir": str(folder / "logs"),
    }


def _make_cgroups() -> list[Path]:
    """The kubelet's root in every hierarchy."""
    is_v2 = (_CGROUP_MOUNTS / "cgroup.controllers").exists()
    mounts = [_CGROUP_MOUNTS] if is_v2 else [*_CGROUP_MOUNTS.iterdir()]
    roots = [mount / _CGROUPS for mount in mounts]
    for root in roots:
        root.mkdir(exist_ok=True)
        for name in ("cpuset.cpus", "cpuset.mems"):  # a new cpuset of version 1 has none
            file = root / name
            if not is_v2 and file.exists() and not file.read_text().strip():
                file.write_text((root.parent / name).read_text())
    return roots


def _remove_cgroups(root: Path) -> None:
    for folder, _, _ in os.walk(root, topdown=False):
        with suppress(OSError):
            Path(folder).rmdir()


def _unmount_below(folder: Path) -> None:
    """Nothing should be mounted outside of the namespace; if it is, it must not be deleted into."""
    for line in Path("/proc/mounts").read_text().splitlines():
        if line.split()[1].startswith(f"{folder}/"):
            subprocess.run(["umount", "--lazy", line.split()[1]], check=False)
    shutil.rmtree(folder / "root", ignore_errors=True)
