"""`python -m gpu_admission` as it is delivered, beside an API server."""

import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clusters.card_cluster import CardCluster, card_pod, container
from tests.kubernetes.api_server import ApiServer
from tests.programs.extender_process import ExtenderProcess, extender_process
from tests.programs.ports import own_port
from tests.waiting import eventually, eventually_sync

PATIENCE_S = 120


@pytest.fixture
def process(api_server: ApiServer, cards: CardCluster, tmp_path: Path) -> Iterator[ExtenderProcess]:
    quotas = {"GPU_DEV_ADMISSION__QUOTA_NAME": cards.quota_name, "LOG_LEVEL": "4"}
    with extender_process(tmp_path / "admission.log", api_server.kubeconfig, **quotas) as running:
        yield running


@pytest.fixture
async def client(process: ExtenderProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=process.url, trust_env=False, timeout=60) as client:
        yield client


async def test_a_pod_goes_its_way_from_the_question_to_the_node(
    cards: CardCluster, client: httpx.AsyncClient, process: ExtenderProcess
) -> None:
    small, large = await cards.add_node(gpus=1), await cards.add_node(gpus=8)
    pod = await cards.add(card_pod("train-0", container(gpu=2)))
    question = {"Pod": pod, "Nodes": None, "NodeNames": [small, large]}

    async def known() -> dict[str, Any]:
        found = (await client.post("/scheduler/predicates", json=question)).json()
        return dict(found) if found["NodeNames"] == [large] else {}

    found = await eventually(known, PATIENCE_S)
    assert found["Error"] == ""
    assert small in {**found["FailedNodes"], **found["FailedAndUnresolvableNodes"]}
    ((host, score),) = (
        (priority["Host"], priority["Score"])
        for priority in (await client.post("/scheduler/priorities", json={**question, "NodeNames": [large]})).json()
    )
    assert (host, 0 <= score <= 10) == (large, True)
    volcano = {"task": {"Pod": pod}, "node": {"Name": large}}
    assert (await client.post("/scheduler/vpredicates", json=volcano)).json() == {}
    refused = (await client.post("/scheduler/vpredicates", json={**volcano, "node": {"Name": small}})).json()
    assert refused == {"errorMessage": refused["status"], "status": refused["status"], "code": 2}
    metadata = pod["metadata"]
    binding = {"PodName": "train-0", "PodNamespace": cards.namespace, "PodUID": metadata["uid"], "Node": large}
    assert (await client.post("/scheduler/bind", json=binding)).json() == {"Error": ""}
    assert (await cards.bound()) == {"train-0": large}
    assert any(line["event"] == "filtered" and line["level"] == "debug" for line in process.log())
    assert "gpu_dev_admission_bound_total 1.0" in (await client.get("/metrics")).text


def test_metrics_have_an_address_where_nothing_else_is_answered(api_server: ApiServer, tmp_path: Path) -> None:
    """A client that reaches the extender can have pods bound; a reader of its metrics need not."""
    own = {"GPU_DEV_ADMISSION__METRICS_ADDRESS": "127.0.0.1:0"}
    with extender_process(tmp_path / "admission.log", api_server.kubeconfig, **own) as process:
        process.await_ready()

        def listens() -> str:
            return next((line["address"] for line in process.log() if line["event"] == "metrics_listening"), "")

        with httpx.Client(base_url=eventually_sync(listens, PATIENCE_S), trust_env=False, timeout=60) as client:
            said = client.get("/metrics")
            assert "gpu_dev_admission_quotas_invalid 0.0" in said.text
            assert said.text.count("gpu_dev_admission_certificate_ends_seconds 0.0") == 1
            for path in ("/scheduler/bind", "/scheduler/predicates", "/health", "/debug/pprof/"):
                assert client.post(path, json={}).status_code == 404
                assert client.get(path).status_code == 404


async def test_a_config_map_that_is_none_is_told_by_health(cards: CardCluster, client: httpx.AsyncClient) -> None:
    node = await cards.add_node(gpus=8)
    await cards.put_quotas({cards.namespace: {"quota": {"H100": 2}, "pool": []}})
    pod = await cards.add(card_pod("train-0", container(gpu=4)))
    question = {"Pod": pod, "Nodes": None, "NodeNames": [node]}

    async def refused() -> bool:
        found = (await client.post("/scheduler/predicates", json=question)).json()
        return found["NodeNames"] == [] and "H100" in json.dumps(found)

    await eventually(refused, PATIENCE_S)
    await cards.put_quotas("{")

    async def told() -> list[str]:
        return list((await client.get("/health")).json()["problems"])

    (problem,) = await eventually(told, PATIENCE_S)
    assert "quotas" in problem
    assert (await client.get("/health")).status_code == 200  # the last good one counts on
    assert (await client.get("/ready")).status_code == 200
    assert await refused()
    assert "gpu_dev_admission_problems 1.0" in (await client.get("/metrics")).text
    await cards.put_quotas({cards.namespace: {"quota": {"H100": 4}, "pool": []}})

    async def fits() -> bool:
        return bool((await client.post("/scheduler/predicates", json=question)).json()["NodeNames"])

    await eventually(fits, PATIENCE_S)
    assert (await client.get("/health")).json()["problems"] == []


async def test_a_quota_names_a_type_in_the_administrators_word(
    api_server: ApiServer, cards: CardCluster, tmp_path: Path
) -> None:
    node, other = await cards.add_node(gpus=8), await cards.add_node(gpus=8, product="Tesla-T4")
    await cards.put_quotas({cards.namespace: {"quota": {"Hopper": 2}}})
    pod = await cards.add(card_pod("train-0", container(gpu=2)))
    words = {"GPU_DEV_GPU__TYPES": json.dumps({"NVIDIA H100 80GB HBM3": "hopper"})}
    quotas = {"GPU_DEV_ADMISSION__QUOTA_NAME": cards.quota_name}
    with extender_process(tmp_path / "log", api_server.kubeconfig, **words, **quotas) as running:
        question = {"Pod": pod, "Nodes": None, "NodeNames": [node, other]}
        found = httpx.post(f"{running.url}/scheduler/predicates", json=question, trust_env=False, timeout=60).json()
        assert found["NodeNames"] == [node]
        assert "it may use Hopper" in found["FailedAndUnresolvableNodes"][other]


def test_it_ends_in_order(process: ExtenderProcess) -> None:
    process.signal(signal.SIGTERM)
    assert process.process.wait(PATIENCE_S) == 0
    assert "Traceback" not in process.text()


def test_its_own_profiles_show_it_at_work(process: ExtenderProcess) -> None:
    with httpx.Client(base_url=process.debug_url, trust_env=False, timeout=60) as client:
        assert "follow" in client.get("/debug/pprof/goroutine").text
        assert client.get("/debug/pprof/profile?seconds=0.2").status_code == 200
    assert httpx.get(f"{process.url}/debug/pprof/heap", trust_env=False, timeout=PATIENCE_S).status_code == 404


def test_logs_go_to_files(api_server: ApiServer, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    process = ExtenderProcess(
        tmp_path / "stderr.log", api_server.kubeconfig, f"--log-dir={folder}", "--vmodule=a=1",
        GPU_DEV_ADMISSION__QUOTA_NAME=f"none-{uuid.uuid4().hex[:8]}",
    )  # fmt: skip
    try:
        process.await_ready()
    finally:
        process.stop()
    lines = [json.loads(line) for line in (folder / "gpu_admission.log").read_text().splitlines()]
    assert {"listening", "option_without_effect"} <= {line["event"] for line in lines}
    assert process.text() == (folder / "gpu_admission.log").read_text()


@pytest.fixture
def to_nobody(tmp_path: Path) -> Path:
    """A kubeconfig for an API server that is not there."""
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}], "users": [{"name": "u", "user": {}}],
    }  # fmt: skip
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    return tmp_path / "kubeconfig"


def test_an_address_without_a_host_is_every_address(to_nobody: Path, tmp_path: Path) -> None:
    port = own_port()
    process = ExtenderProcess(tmp_path / "log", to_nobody, f"--address=:{port}")
    try:
        eventually_sync(lambda: any(line["event"] == "listening" for line in process.log()), 120)
        for host in ("127.0.0.1", "[::1]") if socket.has_dualstack_ipv6() else ("127.0.0.1",):
            assert httpx.get(f"http://{host}:{port}/health", trust_env=False, timeout=60).status_code == 200
    finally:
        process.stop()


def test_without_an_api_server_it_waits_and_answers_nothing(to_nobody: Path, tmp_path: Path) -> None:
    process = ExtenderProcess(tmp_path / "log", to_nobody)
    try:

        def silent() -> httpx.Response | None:
            with suppress(StopIteration, httpx.TransportError):
                question = {"Pod": {"metadata": {"namespace": "a", "uid": "u"}, "spec": {}}, "NodeNames": ["n1"]}
                return httpx.post(f"{process.url}/scheduler/predicates", json=question, trust_env=False, timeout=60)
            return None

        found = eventually_sync(silent, 120)
        assert found is not None
        assert (found.json()["NodeNames"], found.json()["Error"] != "") == (None, True)
        assert httpx.get(f"{process.url}/ready", trust_env=False, timeout=PATIENCE_S).status_code == 503

        def said() -> bool:
            why = httpx.get(f"{process.url}/ready", trust_env=False, timeout=PATIENCE_S).json()["why"]
            return "can't read the cluster" in why and "no connection to 127.0.0.1:9" in why

        eventually_sync(said, 120)
        assert httpx.get(f"{process.url}/health", trust_env=False, timeout=PATIENCE_S).status_code == 200
    finally:
        process.stop()


def ended(*arguments: str, **variables: str) -> tuple[int, str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GPU_DEV_")}
    done = subprocess.run(
        [sys.executable, "-m", "gpu_admission", *arguments],
        env={**kept, **variables}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "out", "err"),
    [
        (["--version"], 0, "gpu_admission v", ""),
        (["--version=true"], 0, "gpu_admission v", ""),
        (["-h"], 0, "--pprofAddress HOST:PORT", ""),
        (["--no-such-option"], 2, "", "there is no option --no-such-option"),
        (["--address", "nowhere"], 2, "", "--address must be host:port"),
        (["--policy=random"], 2, "", "--policy must be binpack, spread, fgd or priced"),
        (["--kubeconfig=/no/such/file", "--address=127.0.0.1:0", "--pprofAddress="], 2, "", "no kubeconfig at"),
    ],
)
def test_what_ends_at_once(arguments: list[str], code: int, out: str, err: str) -> None:
    found, written, told = ended(*arguments)
    assert found == code, told
    assert out in written
    assert err in told
    assert "Traceback" not in told
