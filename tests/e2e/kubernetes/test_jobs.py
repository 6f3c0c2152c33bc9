"""The way of a job on Kubernetes, with the whole system as a process: from REST to a pod and back to free cards.

The API server is the emulator, or a real one where `KUBEBUILDER_ASSETS` names its programs. What pods say is really
run, on this machine, by the test kubelet. One system serves all tests of this module: each leaves it as it was.
"""

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.systems.kubernetes_system import KubernetesSystem, kubernetes_system
from tests.kubernetes.api_client import MERGE
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.node.pods import Way
from tests.kubernetes.nodes import NodeSpec
from tests.waiting import PATIENCE_S, eventually_sync

NODES = ("node1", "node2", "node3")
MEET = """
import os, socket
rank, others = int(os.environ["NODE_RANK"]), int(os.environ["NNODES"]) - 1
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    server = socket.create_server(address, backlog=others)
    ranks = set()
    for _ in range(others):
        connection, _ = server.accept()
        ranks.add(int(connection.recv(16)))
        connection.sendall(b"welcome")
    print("rank 0 met", sorted(ranks), flush=True)
else:
    import time
    while True:
        try:
            connection = socket.create_connection(address)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    connection.sendall(str(rank).encode())
    assert connection.recv(16) == b"welcome"
"""


@pytest.fixture(scope="module")
def system(
    api_server: ApiServer, module_database_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KubernetesSystem]:
    folder = tmp_path_factory.mktemp("kubernetes-system")
    nodes = [NodeSpec(name, labels={"gpu-node-name": f"logical-{name}"}) for name in NODES]
    with kubernetes_system(api_server, module_database_url, folder, nodes) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _left_as_it_was(system: KubernetesSystem) -> Iterator[None]:
    yield
    system.left_as_it_was()


def until(gate: Path) -> str:
    """A script's line that waits for a file."""
    return f'until [ -e "{gate}" ]; do sleep 0.05; done'


def test_a_pod_without_its_labels_keeps_its_cards_and_ends_when_it_is_told_to(system: KubernetesSystem) -> None:
    """Nothing is given back while a pod runs, whatever became of its labels; nor is anything left behind."""
    held = [system.submit("sleep 600 & wait", gpus=4) for _ in NODES]
    for job in held:
        system.reaches(job, "running")
    stripped, other = held[0], held[1]
    for job, labels in ((stripped, ["managed", "reservation", "attempt", "rank"]), (other, ["reservation"])):
        path = f"/api/v1/namespaces/{system.namespace}/pods/{job}-1-0"
        gone = {"metadata": {"labels": {f"gpu-dev/{label}": None for label in labels}}}
        system.api("PATCH", path, gone, content_type=MERGE)
    waiting = system.submit("true", gpus=4)
    # One that comes and goes meanwhile: the watch and the comparison of rows with pods have gone on.
    system.cancel(held[2])
    system.reaches(held[2], "cancelled")
    system.reaches(waiting, "succeeded")
    for job in (stripped, other):
        assert system.job(job)["status"] == "running"
        assert f"{job}-1-0" in system.kubelet.running()
    assert "has lost labels" in system.process.log
    for job in (stripped, other):
        system.cancel(job)
        system.reaches(job, "cancelled")
        assert f"{job}-1-0" not in system.kubelet.running()
    system.comes_to_rest(*held, waiting)


def test_a_job_runs_on_the_node_and_the_cards_that_the_ledger_gave_it(system: KubernetesSystem) -> None:
    gate = system.gate()
    said = 'echo "$GPU_DEV_NODE|$CUDA_VISIBLE_DEVICES|$CUDA_DEVICE_ORDER|$GPU_DEV_JOB_ID|$HOSTNAME"'
    job = system.submit(f"{said}; {until(gate)}; echo 'the end'", gpus=2)
    running = system.reaches(job, "running")
    [allocation] = running["allocations"]
    [pod] = system.pods(job)
    assert pod["metadata"]["name"] == allocation["pod"] == f"{job}-1-0"
    assert pod["spec"]["nodeName"] == allocation["node"]
    indices = ",".join(str(index) for index in allocation["gpu_indices"])
    assert len(allocation["gpu_indices"]) == 2
    assert pod["metadata"]["annotations"]["gpu-dev/gpu-indices"] == indices
    assert "nvidia.com/gpu" not in pod["spec"]["containers"][0]["resources"].get("limits", {})
    line = f"{allocation['node']}|{indices}|PCI_BUS_ID|{job}|{allocation['pod']}\n"
    eventually_sync(lambda: system.log(job) == line)
    assert system.gpu_states(allocation["node"]) == {"held", "free"}

    gate.touch()
    done = system.reaches(job, "succeeded")
    assert (done["exit_code"], done["reason"]["code"]) == (0, "completed")
    system.comes_to_rest(job)
    assert system.log(job) == f"{line}the end\n", "the log outlives the pod"


def test_what_a_job_prints_after_it_was_asked_to_end_is_kept(system: KubernetesSystem) -> None:
    saves = "trap 'echo saving; sleep 0.5; echo saved; exit' TERM"
    jobs = [system.submit(f"{saves}; echo ready; while :; do sleep 0.1; done") for _ in range(3)]
    for job in jobs:
        system.reaches(job, "running")
        eventually_sync(lambda job=job: system.log(job) == "ready\n")
    for job in jobs:
        system.cancel(job)
    for job in jobs:
        system.reaches(job, "cancelled")
        eventually_sync(lambda job=job: system.log(job) == "ready\nsaving\nsaved\n")
    system.comes_to_rest(*jobs)


def test_a_followed_log_comes_while_the_job_runs_and_ends_with_it(system: KubernetesSystem) -> None:
    gate = system.gate()
    job = system.submit(f"echo first; {until(gate)}; echo last")
    with system.http as http, http.stream("GET", f"/v1/jobs/{job}/logs", params={"follow": "true"}) as answer:
        lines = answer.iter_lines()
        assert next(lines) == "first"
        assert system.job(job)["status"] in ("starting", "running")
        gate.touch()
        assert list(lines) == ["last"]
    system.reaches(job, "succeeded")


def test_a_command_that_fails_says_with_what(system: KubernetesSystem) -> None:
    job = system.submit("echo broken; exit 3")
    failed = system.reaches(job, "failed")
    assert (failed["exit_code"], failed["reason"]["code"]) == (3, "command_failed")
    system.comes_to_rest(job)
    assert system.log(job) == "broken\n"


def test_a_command_that_is_not_there_fails_without_another_start(system: KubernetesSystem) -> None:
    workload = {"command": ["/no/such/program"]}
    job = system.submit("", workload=workload)
    failed = system.reaches(job, "failed")
    assert (failed["exit_code"], failed["reason"]["code"]) == (127, "start_failed")
    assert failed["allocations"][0]["pod"].endswith("-1-0")
    system.comes_to_rest(job)


def test_a_job_whose_time_is_up_expires(system: KubernetesSystem) -> None:
    job = system.submit("trap 'echo asked to end; exit 1' TERM; while :; do sleep 0.05; done", duration=2)
    expired = system.reaches(job, "expired")
    assert expired["reason"]["code"] == "duration_reached"
    system.comes_to_rest(job)


def test_a_cancelled_job_is_asked_to_end_and_then_made_to(system: KubernetesSystem) -> None:
    goodbye = system.gate()
    polite = system.submit(f"trap 'touch {goodbye}; exit 0' TERM; echo ready; while :; do sleep 0.05; done")
    deaf = system.submit("trap '' TERM; echo ready; while :; do sleep 0.05; done")
    for job in (polite, deaf):
        system.reaches(job, "running")
        eventually_sync(lambda job=job: system.log(job) == "ready\n")
        system.cancel(job)
    for job in (polite, deaf):
        assert system.reaches(job, "cancelled")["reason"]["code"] == "cancelled_by_user"
    system.comes_to_rest(polite, deaf)
    assert system.log(polite) == system.log(deaf) == "ready\n"
    assert goodbye.exists()


def node_is_ready(system: KubernetesSystem, node: str) -> bool:
    """Whether the system believes so: what it gives out goes there then."""
    with system.http as http:
        [found] = [other_node for other_node in http.get("/v1/nodes").json()["items"] if other_node["name"] == node]
    return bool(found["ready"])


def test_a_job_that_was_cancelled_holds_its_cards_until_its_pod_is_known_to_be_gone(system: KubernetesSystem) -> None:
    job = system.submit("echo ready; while :; do sleep 0.05; done")
    [allocation] = system.reaches(job, "running")["allocations"]
    system.kubelet.silence(allocation["node"])
    try:
        system.cancel(job)
        eventually_sync(lambda: "deletionTimestamp" in system.pods(job)[0]["metadata"])
        eventually_sync(lambda: not node_is_ready(system, allocation["node"]))
        system.reaches(system.submit("true"), "succeeded")  # meanwhile the delete is over
        assert system.job(job)["status"] == "ending", "that its end was asked for is not its end"
    finally:
        system.kubelet.answer_again(allocation["node"])
    system.reaches(job, "cancelled")
    system.comes_to_rest(job)


def test_a_pod_that_has_failed_holds_its_cards_while_its_container_is_said_to_run(system: KubernetesSystem) -> None:
    """A kubelet that evicts a pod says so before its container has ended."""
    job = system.submit("while :; do sleep 0.05; done")
    [allocation] = system.reaches(job, "running")["allocations"]
    system.kubelet.silence(allocation["node"])
    try:
        path = f"/api/v1/namespaces/{system.namespace}/pods/{job}-1-0/status"
        system.api("PATCH", path, {"status": {"phase": "Failed", "reason": "Evicted"}}, content_type=MERGE)
        system.reaches(job, "ending")
        eventually_sync(lambda: "deletionTimestamp" in system.pods(job)[0]["metadata"])
        eventually_sync(lambda: not node_is_ready(system, allocation["node"]))
        system.reaches(system.submit("true"), "succeeded")  # meanwhile all that followed from it has come
        assert system.job(job)["status"] == "ending"
    finally:
        system.kubelet.answer_again(allocation["node"])
    assert system.reaches(job, "failed")["reason"]["code"] == "evicted"
    system.comes_to_rest(job)


def test_the_pods_of_a_gang_meet_at_rank_0(system: KubernetesSystem) -> None:
    command = ["python3", "-c", MEET]
    job = system.submit("", gpus=4, nodes=3, workload={"command": command})
    done = system.reaches(job, "succeeded")
    assert sorted(allocation["node"] for allocation in done["allocations"]) == list(NODES)
    system.comes_to_rest(job)
    with system.http as http:
        log = http.get(f"/v1/jobs/{job}/logs").text
    assert "rank 0 met [1, 2]" in log


def test_a_gang_is_told_where_and_who_it_is_and_one_lost_pod_ends_it(system: KubernetesSystem) -> None:
    job = system.submit("while :; do sleep 0.05; done", gpus=1, nodes=2)
    system.reaches(job, "running")
    pods = system.pods(job)
    [service] = [service for service in system.services() if service["metadata"]["name"] == f"{job}-1"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    for rank, pod in enumerate(pods):
        assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
        assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == (f"{job}-1-{rank}", f"{job}-1")
        env = {variable["name"]: variable["value"] for variable in pod["spec"]["containers"][0]["env"]}
        assert (env["NNODES"], env["NODE_RANK"]) == ("2", str(rank))
        assert env["MASTER_ADDR"] == f"{job}-1-0.{job}-1"
        assert 20_000 <= int(env["MASTER_PORT"]) < 30_000
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2

    system.api("DELETE", f"/api/v1/namespaces/{system.namespace}/pods/{job}-1-1", {"gracePeriodSeconds": 1})
    failed = system.reaches(job, "failed")
    assert failed["reason"]["code"] == "pod_deleted"
    assert f"{job}-1-1" in failed["reason"]["detail"]
    system.comes_to_rest(job)


@pytest.mark.parametrize(
    ("way", "code"), [(Way.OUT_OF_MEMORY, "out_of_memory"), (Way.EVICTED, "evicted")], ids=lambda each: str(each)
)
def test_a_pod_that_its_node_ends_is_told_why(system: KubernetesSystem, way: Way, code: str) -> None:
    job = system.submit("echo here; while :; do sleep 0.05; done")
    system.reaches(job, "running")
    eventually_sync(lambda: system.log(job) == "here\n")
    system.kubelet.let(f"{job}-*", way)
    assert system.reaches(job, "failed")["reason"]["code"] == code
    system.comes_to_rest(job)
    assert system.log(job) == "here\n"


def test_a_pod_that_somebody_deletes_ends_its_job_and_says_so(system: KubernetesSystem) -> None:
    job = system.submit("while :; do sleep 0.05; done")
    system.reaches(job, "running")
    system.api("DELETE", f"/api/v1/namespaces/{system.namespace}/pods/{job}-1-0", {"gracePeriodSeconds": 1})
    assert system.reaches(job, "failed")["reason"]["code"] == "pod_deleted"
    system.comes_to_rest(job)


def test_a_node_with_a_foreign_user_of_unknown_cards_gets_nothing_and_says_why(system: KubernetesSystem) -> None:
    with system.foreign_pod("node1", 1) as name:
        seen = eventually_sync(lambda: not (node := system.node("node1"))["schedulable"] and node)
        assert name in seen["detail"]
        jobs = [system.submit("true", gpus=4) for _ in range(3)]
        for job in jobs:
            [allocation] = system.reaches(job, "succeeded")["allocations"]
            assert allocation["node"] != "node1"
    eventually_sync(lambda: system.node("node1")["schedulable"])
    job = system.submit("true", gpus=4, nodes=3)
    system.reaches(job, "succeeded")


def test_a_silent_node_keeps_its_cards_until_it_is_fenced(system: KubernetesSystem) -> None:
    job = system.submit("while :; do sleep 0.05; done", gpus=4)
    [allocation] = system.reaches(job, "running")["allocations"]
    node = allocation["node"]
    with system.http as http:
        assert http.post(f"/v1/nodes/{node}/fence").status_code == 409
    system.kubelet.power_off(node)
    try:
        eventually_sync(lambda: not system.node(node)["ready"])
        assert system.job(job)["status"] == "running"
        other = system.submit("true", gpus=4)
        [elsewhere] = system.reaches(other, "succeeded")["allocations"]
        assert elsewhere["node"] != node
        assert system.job(job)["status"] == "running", "silence ends nothing"
        with system.http as http:
            http.post(f"/v1/nodes/{node}/fence", json={"reason": "its power supply was pulled"}).raise_for_status()
        failed = system.reaches(job, "failed")
        assert failed["reason"]["code"] == "node_lost"
        assert system.gpu_states(node) == {"quarantined"}
    finally:
        system.kubelet.answer_again(node)
        with system.http as http:
            http.post(f"/v1/nodes/{node}/unfence")
    system.comes_to_rest(job)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["in order", "killed"])
def test_a_restarted_system_takes_up_what_runs(system: KubernetesSystem, number: signal.Signals) -> None:
    gates = [system.gate(), system.gate()]
    before, during = (system.submit(f"echo here; {until(gate)}; exit 4") for gate in gates)
    for job in (before, during):
        system.reaches(job, "running")
    uids = [pod["metadata"]["uid"] for job in (before, during) for pod in system.pods(job)]
    code = system.process.end(number)
    assert code == (0 if number is signal.SIGTERM else -number), system.process.log[-4000:]
    gates[1].touch()  # ends while nobody looks
    eventually_sync(lambda: not [name for name in system.kubelet.running() if name.startswith(during)])
    system.process.start().close()
    assert system.reaches(during, "failed")["exit_code"] == 4
    assert system.job(before)["status"] == "running"
    assert [pod["metadata"]["uid"] for pod in system.pods(before)] == uids[:1]
    gates[0].touch()
    assert system.reaches(before, "failed")["exit_code"] == 4
    system.comes_to_rest(before, during)
    started = [name for name in system.kubelet.started if name.startswith((before, during))]
    assert sorted(started) == sorted([f"{before}-1-0", f"{during}-1-0"])


def test_user_input_reaches_no_name_and_no_label(system: KubernetesSystem) -> None:
    hostile = "../../etc; $(reboot) {{x}}"
    workload = {"command": ["sh", "-c", 'printf %s "$SAID"'], "env": {"SAID": hostile, "CUDA_VISIBLE_DEVICES": "7"}}
    with system.http as http:
        answer = http.post("/v1/jobs", json={"name": hostile, "gpus": 1, "duration": 60, "workload": workload})
        assert answer.status_code in (202, 422), answer.text
        if answer.status_code == 422:
            del workload["env"]["CUDA_VISIBLE_DEVICES"]
            answer = http.post("/v1/jobs", json={"name": hostile, "gpus": 1, "duration": 60, "workload": workload})
    job = answer.raise_for_status().json()["id"]
    assert re.fullmatch(r"job-[a-z0-9]+", job)
    system.reaches(job, "succeeded")
    assert system.log(job) == hostile
    system.comes_to_rest(job)


def test_readiness_needs_no_cluster_and_nodes_show_what_the_cluster_says(system: KubernetesSystem) -> None:
    with httpx.Client(base_url=system.process.url, trust_env=False, timeout=PATIENCE_S) as http:
        assert http.get("/readyz").status_code == 200
    node = system.node("node2")
    assert (node["gpus"], node["gpu_types"], node["logical_name"]) == (4, ["h100"], "logical-node2")
