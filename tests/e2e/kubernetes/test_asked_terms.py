"""What jobs ask for beside GPUs, by the command line and REST, down to pods and claims. The whole system is a process.

The API server is the emulator, or a real one where `KUBEBUILDER_ASSETS` names its programs. Volumes and snapshots are
made by the test, as a driver of the cluster's would.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reservation_core.runtime.sealing_keys import ensure_key_file
from tests.e2e.systems.kubernetes_system import KubernetesSystem, kubernetes_system
from tests.e2e.systems.system_process import ROOT
from tests.kubernetes.api_client import MERGE
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.custom_kinds import define_kind, remove_kind
from tests.kubernetes.node.pods import Way
from tests.kubernetes.nodes import NodeSpec
from tests.waiting import PATIENCE_S, eventually_sync

RUN = ("-g", "1", "-d", "5m")
SNAPSHOTS = "snapshot.storage.k8s.io"
NOTES_ITS_SIGNALS = """
trap 'echo "attempt $GPU_DEV_ATTEMPT: USR1"' USR1
trap 'touch "$0"; exit 0' TERM
echo "attempt $GPU_DEV_ATTEMPT: begins"
while [ "$GPU_DEV_ATTEMPT" = 1 ]; do sleep 0.1; done
"""


@pytest.fixture(scope="module")
def system(
    api_server: ApiServer, module_database_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KubernetesSystem]:
    nodes = [NodeSpec("node1", gpus=4, cpu="16", memory="64Gi")]
    settings = {
        "GPU_DEV_KUBERNETES__DISK_CLASS": "shared",
        "GPU_DEV_KUBERNETES__SNAPSHOT_CLASS": "snaps",
        "GPU_DEV_CPU_JOB_SHARE": "0.5",
    }
    folder = tmp_path_factory.mktemp("asked-terms")
    settings["GPU_DEV_SECRETS_KEY_FILE"] = str(ensure_key_file(folder))
    with kubernetes_system(api_server, module_database_url, folder, nodes, kubeconfig=None, **settings) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _left_as_it_was(system: KubernetesSystem) -> Iterator[None]:
    yield
    system.left_as_it_was()


def gpu_dev(system: KubernetesSystem, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command line to its end, as the administrator."""
    environment = {
        "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": str(system.folder), "TZ": "UTC",
        "GPU_DEV_SERVER": system.process.url, "GPU_DEV_TOKEN": system.process.token,
    }  # fmt: skip
    command = [sys.executable, "-m", "gpu_dev", *words]
    return subprocess.run(
        command, env=environment, input=stdin, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def submitted(system: KubernetesSystem, *words: str) -> str:
    """Submit a job by the command line; its id."""
    done = gpu_dev(system, "submit", *words)
    assert done.returncode == 0, done.stderr
    system.process.jobs.append(done.stdout.strip())
    return system.process.jobs[-1]


def until(gate: Path) -> str:
    """A script's line that waits for a file."""
    return f'until [ -e "{gate}" ]; do sleep 0.05; done'


def put(system: KubernetesSystem, *words: str) -> str:
    """Run a command that succeeds; what it printed."""
    done = gpu_dev(system, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_cpus_and_memory_are_the_pods_requests(system: KubernetesSystem) -> None:
    gate = system.gate()
    asked = ("--cpus", "2", "--memory", "1Gi", "--", "sh", "-c", until(gate))
    with_gpu, without = submitted(system, *RUN, *asked), submitted(system, "--gpus", "0", "-d", "5m", *asked)
    for job in (with_gpu, without):
        system.reaches(job, "running")
        [pod] = system.pods(job)
        assert pod["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "2", "memory": "1Gi"}
    assert system.job(without)["allocations"][0]["gpu_indices"] == []
    gate.touch()
    for job in (with_gpu, without):
        system.reaches(job, "succeeded")
    system.comes_to_rest(with_gpu, without)


def test_the_elements_of_an_array_have_pods_logs_and_one_end(system: KubernetesSystem) -> None:
    gate = system.gate()
    prints = f'echo "element $GPU_DEV_ARRAY_INDEX of $GPU_DEV_ARRAY_SIZE"; {until(gate)}'
    array = submitted(system, *RUN, "--array", "0-4%2", "--", "sh", "-c", prints)
    eventually_sync(lambda: len([name for name in system.kubelet.running() if name.startswith(array)]) == 2)
    assert system.job(array)["array"]["running"] == 2  # before its pod runs, an element that holds its GPUs counts too
    gate.touch()
    system.reaches(array, "succeeded")
    assert put(system, "logs", array) == "".join(f"[{index}] element {index} of 5\n" for index in range(5))
    assert system.log(f"{array}.3") == "element 3 of 5\n"
    endless = submitted(system, *RUN, "--array", "0-9", "--", "sh", "-c", "while :; do sleep 0.05; done")
    eventually_sync(lambda: system.job(endless)["array"]["running"] == 4)
    put(system, "cancel", endless)
    assert system.reaches(endless, "cancelled")["array"]["cancelled"] == 10
    system.comes_to_rest(array, endless)


def test_jobs_wait_for_others_and_those_that_fail_run_again(system: KubernetesSystem) -> None:
    gate = system.gate()
    fails_once = f'echo "$GPU_DEV_ATTEMPT"; {until(gate)}; [ "$GPU_DEV_ATTEMPT" = 2 ]'
    first = submitted(system, *RUN, "--retries", "2", "--", "sh", "-c", fails_once)
    after = submitted(system, *RUN, "--after", f"ok:{first}", "--", "echo", "after it")
    never = submitted(system, *RUN, "--after", f"failed:{first}", "--", "true")
    system.reaches(first, "running")
    assert [system.pods(job) for job in (after, never)] == [[], []]
    gate.touch()
    assert system.reaches(first, "succeeded")["attempt"] == 2
    assert [put(system, "logs", first, "--attempt", number) for number in "12"] == ["1\n", "2\n"]
    system.reaches(after, "succeeded")
    assert system.log(after) == "after it\n"
    assert system.reaches(never, "cancelled")["reason"]["code"] == "dependency_failed"
    system.comes_to_rest(first, after, never)


def test_a_preempted_job_gets_its_signal_and_runs_again(system: KubernetesSystem) -> None:
    terms = ("-g", "4", "-d", "5m", "--preemptible", "--signal", "USR1@1")
    goodbye = system.gate()
    yielding = submitted(system, *terms, "--", "bash", "-c", NOTES_ITS_SIGNALS, str(goodbye))
    eventually_sync(lambda: "begins" in system.log(yielding))
    needed = submitted(system, *RUN, "--", "true")
    system.reaches(needed, "succeeded")
    last = system.reaches(yielding, "succeeded")
    assert (last["attempt"], last["preemption"]["done"]) == (2, 1)
    said = system.log(yielding, attempt="1").splitlines()
    assert [line for line in said if line.startswith("attempt")] == ["attempt 1: begins", "attempt 1: USR1"]
    assert goodbye.exists()
    assert system.log(yielding, attempt="2") == "attempt 2: begins\n"
    system.comes_to_rest(yielding, needed)


def test_a_secret_is_in_the_pods_secret_alone(system: KubernetesSystem) -> None:
    value = "correct-horse-battery"
    done = gpu_dev(system, "secret", "set", "HF_TOKEN", stdin=value)
    assert done.returncode == 0, done.stderr
    job = submitted(system, *RUN, "--secret", "HF_TOKEN", "--", "sh", "-c", "while :; do sleep 0.05; done")
    system.reaches(job, "running")
    [pod] = system.pods(job)
    [variable] = [one for one in pod["spec"]["containers"][0]["env"] if one["name"] == "HF_TOKEN"]
    source = variable["valueFrom"]["secretKeyRef"]
    kept = system.api("GET", f"/api/v1/namespaces/{system.namespace}/secrets/{source['name']}")
    assert kept["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
    assert source["key"] in kept["data"]
    assert value not in json.dumps(pod)
    assert value not in json.dumps(system.job(job))
    system.cancel(job)
    system.reaches(job, "cancelled")
    system.comes_to_rest(job)


@pytest.fixture
async def snapshots(api_server: ApiServer) -> Any:
    """The kind of snapshots, which an administrator installs."""
    async with api_server.client() as client:
        await define_kind(client, SNAPSHOTS, "v1", "VolumeSnapshot", "volumesnapshots", "Namespaced")
    yield
    async with api_server.client() as client:
        await remove_kind(client, SNAPSHOTS, "volumesnapshots")


def disk(system: KubernetesSystem, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(put(system, "disk", "show", name, "-o", "json"))
    return found


def claims(system: KubernetesSystem, plural: str = "api/v1", kind: str = "persistentvolumeclaims") -> dict[str, Any]:
    """Claims, or snapshots, by name."""
    items = system.api("GET", f"/{plural}/namespaces/{system.namespace}/{kind}")["items"]
    return {item["metadata"]["name"]: item for item in items if "deletionTimestamp" not in item["metadata"]}


def provision(system: KubernetesSystem) -> None:
    """Give all claims volumes, and say of all snapshots that they can be used."""
    for name in claims(system):
        path = f"/api/v1/namespaces/{system.namespace}/persistentvolumeclaims/{name}"
        system.api("PATCH", path, {"spec": {"volumeName": f"pv-{name}"}}, content_type=MERGE)
        system.api("PATCH", f"{path}/status", {"status": {"phase": "Bound"}}, content_type=MERGE)
    for name in claims(system, f"apis/{SNAPSHOTS}/v1", "volumesnapshots"):
        path = f"/apis/{SNAPSHOTS}/v1/namespaces/{system.namespace}/volumesnapshots/{name}/status"
        system.api("PATCH", path, {"status": {"readyToUse": True}}, content_type=MERGE)


def test_disks_are_claims_and_their_snapshots_and_clones_the_clusters(
    system: KubernetesSystem, snapshots: None
) -> None:
    put(system, "disk", "create", "data", "--size", "1Gi")
    eventually_sync(lambda: disk(system, "data")["state"] == "ready")
    [data] = claims(system)
    provision(system)
    put(system, "disk", "snapshot", "data", "--name", "monday")
    eventually_sync(lambda: claims(system, f"apis/{SNAPSHOTS}/v1", "volumesnapshots"))
    provision(system)
    eventually_sync(lambda: disk(system, "data")["snapshots"][0]["ready"])
    put(system, "disk", "clone", "data", "then", "--snapshot", "monday")
    put(system, "disk", "clone", "data", "now", "--size", "2Gi")
    eventually_sync(lambda: len(claims(system)) == 3)
    sources = [one["spec"]["dataSource"] for name, one in claims(system).items() if name != data]
    assert sorted((one["kind"], one["name"] == data) for one in sources) == [
        ("PersistentVolumeClaim", True),
        ("VolumeSnapshot", False),
    ]
    provision(system)
    eventually_sync(lambda: {disk(system, name)["state"] for name in ("then", "now")} == {"ready"})
    gate = system.gate()
    job = submitted(system, *RUN, "--disk", "data", "--disk", "then:/in:ro", "--", "sh", "-c", until(gate))
    system.reaches(job, "running")
    [pod] = system.pods(job)
    used = {
        mount["mountPath"]: volume["persistentVolumeClaim"]["claimName"]
        for volume in pod["spec"]["volumes"]
        for mount in pod["spec"]["containers"][0]["volumeMounts"]
        if mount["name"] == volume["name"] and "persistentVolumeClaim" in volume
    }
    clones = {name: one["spec"]["dataSource"]["name"] for name, one in claims(system).items() if name != data}
    [then] = [name for name, source in clones.items() if source != data]
    assert used == {"/disks/data": data, "/in": then}
    gate.touch()
    system.reaches(job, "succeeded")
    system.comes_to_rest(job)
    for name in ("data", "then", "now"):
        put(system, "disk", "delete", name)


def test_a_clone_that_the_cluster_refuses_says_so_with_its_job_and_goes(
    system: KubernetesSystem, snapshots: None
) -> None:
    put(system, "disk", "create", "source", "--size", "1Gi")
    eventually_sync(lambda: disk(system, "source")["state"] == "ready")
    before = set(claims(system))
    system.kubelet.let("*", Way.KEEPS_CREATING)  # as kubelets do while a claim has no volume
    put(system, "disk", "clone", "source", "copy")
    [claim] = eventually_sync(lambda: set(claims(system)) - before) or []
    job = submitted(system, *RUN, "--disk", "copy", "--", "true")
    eventually_sync(lambda: system.pods(job))
    about = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": system.namespace, "name": claim}
    event = {
        "metadata": {"name": f"{claim}.1"}, "reason": "ProvisioningFailed", "type": "Warning", "action": "Provision",
        "note": "the array can't clone", "regarding": about, "eventTime": "2026-11-28T06:00:00.000000Z",
        "reportingController": "test.example/none", "reportingInstance": "one",
    }  # fmt: skip
    system.api("POST", f"/apis/events.k8s.io/v1/namespaces/{system.namespace}/events", event)
    eventually_sync(lambda: "the array can't clone" in (disk(system, "copy")["problem"] or ""))
    eventually_sync(lambda: "the array can't clone" in put(system, "show", job))
    with system.http as http:
        [shown] = [one for one in http.get("/v1/disks").json()["items"] if one["name"] == "copy"]
    assert (shown["state"], "the array can't clone" in shown["problem"]) == ("creating", True)
    put(system, "cancel", job)
    system.reaches(job, "cancelled")
    put(system, "disk", "delete", "copy")
    eventually_sync(lambda: claim not in claims(system))
    eventually_sync(lambda: "copy" not in put(system, "disk", "list", "--deleted"))  # its claim goes first
    put(system, "disk", "delete", "source")
