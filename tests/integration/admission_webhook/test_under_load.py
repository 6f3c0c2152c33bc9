"""The webhook while a real kube-apiserver asks it about many pods: replicas end, certificates change, none is lost."""

import asyncio
import base64
import json
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reservation_core.adapters.certificates.pairs import Pair
from tests.clusters.webhook_registration import registered, trust
from tests.integration.admission_webhook.mapped_pods import EXPECTED, SEED, pod, pods_of, told
from tests.kubernetes.api_client import ApiAnswerError, ApiClient, JsonObject
from tests.kubernetes.api_server import ApiServer
from tests.network.tcp_balancer import TcpBalancer
from tests.programs.webhook_process import (
    WebhookProcess,
    admission_review,
    client_of,
    new_pair,
    trusting,
    webhook_process,
    write_pair,
)
from tests.waiting import PATIENCE_S, eventually

SECRET = "webhook-tls"


@pytest.fixture(autouse=True)
def _only_a_real_server_asks(api_server: ApiServer) -> None:
    if not api_server.real:
        pytest.skip("the emulator calls no webhooks; set KUBEBUILDER_ASSETS")


@pytest.fixture(scope="module")
def pair() -> Pair:
    return new_pair()


class Creating:
    """Creates pods at a steady rate, as a client does that tries again after an error."""

    def __init__(self, client: ApiClient, namespace: str, count: int, per_s: float, prefix: str = "load") -> None:
        self._client = client
        self._prefix = prefix
        self._path = pods_of(namespace)
        self._count = count
        self._per_s = per_s
        self.errors: list[ApiAnswerError] = []
        self.done = 0

    async def run(self) -> None:
        """Returns when every pod was answered with success once."""
        clock = asyncio.get_running_loop().time
        began = clock()
        async with asyncio.TaskGroup() as group:
            for number in range(self._count):
                # The rate is the test's subject: this waits for no condition.
                await asyncio.sleep(max(0.0, began + number / self._per_s - clock()))
                group.create_task(self._create(number))

    async def _create(self, number: int) -> None:
        given = pod(f"{self._prefix}-{number}", None)
        given["metadata"]["annotations"] = {"gpu-scheduling-map": SEED, "gpu-scheduling-index": str(number % 5)}
        while True:
            try:
                await self._client.call("POST", self._path, given)
            except ApiAnswerError as problem:
                if problem.code == 409 and "already exists" in str(problem):
                    break  # it was made, and the answer was lost
                if problem.code != 500 or "failed calling webhook" not in str(problem):
                    raise
                self.errors.append(problem)
                continue
            break
        self.done += 1

    async def check(self) -> None:
        """Every pod is there once, with the variables of its index."""
        items: list[JsonObject] = (await self._client.call("GET", self._path))["items"]
        ours = [resource for resource in items if resource["metadata"]["name"].startswith(f"{self._prefix}-")]
        assert len(ours) == self._count
        for resource in ours:
            number = int(resource["metadata"]["name"].removeprefix(f"{self._prefix}-"))
            assert told(resource) == EXPECTED[number % 5], resource["metadata"]["name"]


@pytest.fixture
def two(tmp_path: Path, pair: Pair) -> Iterator[list[WebhookProcess]]:
    """Two replicas with one certificate."""
    write_pair(pair, tmp_path)
    replicas = [WebhookProcess(tmp_path, name, GPU_DEV_WEBHOOK__DRAIN_S="2") for name in ("first", "second")]
    try:
        yield [replica.await_listening() for replica in replicas]
    finally:
        for replica in replicas:
            replica.stop()


def busiest(replicas: list[WebhookProcess], balancer: TcpBalancer) -> WebhookProcess:
    """The one that most connections went to: an API server that needs one alone keeps to it."""
    return max(replicas, key=lambda replica: balancer.taken[replica.port])


async def test_a_replica_that_is_killed_lets_no_pod_by_and_loses_none(
    api_server: ApiServer, namespace: str, two: list[WebhookProcess], pair: Pair
) -> None:
    with TcpBalancer(process.port for process in two) as balancer:
        url = f"https://127.0.0.1:{balancer.port}"
        async with registered(api_server, namespace, namespace, url, [pair]), api_server.client() as client:
            creating = Creating(client, namespace, 500, per_s=50)
            running = asyncio.create_task(creating.run())
            await eventually(lambda: creating.done >= 250, timeout=120)
            killed = busiest(two, balancer)
            killed.signal(signal.SIGKILL)
            await running
            assert killed.process.wait(PATIENCE_S) == -signal.SIGKILL
            await creating.check()
        reviewed = [Counter(process.events()) for process in two]
        assert all(any(event.startswith("Injecting") for event in events) for events in reviewed), "both had a share"
        assert all(balancer.taken.values())


async def test_a_replica_that_is_asked_to_end_costs_nobody_an_error(
    api_server: ApiServer, namespace: str, two: list[WebhookProcess], pair: Pair
) -> None:
    with TcpBalancer(process.port for process in two) as balancer:
        url = f"https://127.0.0.1:{balancer.port}"
        async with registered(api_server, namespace, namespace, url, [pair]), api_server.client() as client:
            creating = Creating(client, namespace, 300, per_s=50)
            running = asyncio.create_task(creating.run())
            await eventually(lambda: creating.done >= 80, timeout=120)
            ended = busiest(two, balancer)
            balancer.leave(ended.port)  # as a Service does while its pod is told to end
            ended.signal(signal.SIGTERM)
            await running
            await creating.check()
            assert creating.errors == []
            assert await asyncio.to_thread(ended.process.wait, 30) == 0


@contextmanager
def renewing(kubeconfig: Path, namespace: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`python -m admission_webhook certs --watch`, looking all the time, until the block's end."""
    command = [sys.executable, "-m", "admission_webhook", "certs", "--watch", "--kubeconfig", str(kubeconfig)]
    command += ["--service", "webhook", "--namespace", namespace, "--name", "127.0.0.1", "--secret", SECRET]
    command += ["--configuration", namespace, "--every", "0.2", "--settle", "2", "--valid-days", "90"]
    with log.open("ab") as file:
        process = subprocess.Popen(command, stderr=file, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        assert process.wait(PATIENCE_S) == 0, log.read_text()


async def as_a_kubelet(client: ApiClient, namespace: str, folder: Path) -> None:
    """Write the Secret's certificate where the webhook looks, whenever it has changed."""
    written = None
    while True:
        data = (await client.call("GET", f"/api/v1/namespaces/{namespace}/secrets/{SECRET}"))["data"]
        certificate, key = (base64.b64decode(data[name]) for name in ("tls.crt", "tls.key"))
        if certificate != written:
            write_pair(Pair(certificate, b"", key), folder)
            written = certificate
        await asyncio.sleep(0.1)


async def test_the_program_renews_a_certificate_while_pods_are_created(
    api_server: ApiServer, namespace: str, tmp_path: Path
) -> None:
    """What `certs --watch` does to Secret and configuration costs no pod its variables, and nobody an error."""
    due = new_pair()  # it lasts an hour, and is to be renewed a month before its end
    given = {"tls.crt": due.certificate, "tls.key": due.key, "ca.crt": due.authority}
    secret = {
        "metadata": {"name": SECRET, "annotations": {"gpu-dev/certificates": "kept"}},
        "type": "kubernetes.io/tls",
        "data": {name: base64.b64encode(value).decode() for name, value in given.items()},
    }
    write_pair(due, tmp_path)
    with webhook_process(tmp_path) as webhook:
        async with registered(api_server, namespace, namespace, webhook.url, [due]), api_server.client() as client:
            await client.call("POST", f"/api/v1/namespaces/{namespace}/secrets", secret)
            copying = asyncio.create_task(as_a_kubelet(client, namespace, tmp_path))
            creating = Creating(client, namespace, 500, per_s=50)
            running = asyncio.create_task(creating.run())
            await eventually(lambda: creating.done >= 50, timeout=120)
            log = tmp_path / "certs.log"
            with renewing(api_server.kubeconfig, namespace, log):
                taken = asyncio.create_task(
                    eventually(lambda: webhook.events().count("certificate_taken") == 2, timeout=240)
                )
                await running
                await taken
                # Pods made with the new certificate alone, on connections that are new.
                webhook_only_new = Creating(client, namespace, 100, per_s=50, prefix="after")
                await webhook_only_new.run()
            copying.cancel()
            await asyncio.gather(copying, return_exceptions=True)
            await creating.check()
            await webhook_only_new.check()
            assert creating.errors == webhook_only_new.errors == []
            steps = [json.loads(line).get("step") for line in log.read_text().splitlines() if line.startswith("{")]
            assert [step for step in steps if step] == ["stage", "trust", "promote"]


async def test_authority_and_certificate_change_while_pods_are_created(
    api_server: ApiServer, namespace: str, tmp_path: Path
) -> None:
    old, new = new_pair(), new_pair()
    write_pair(old, tmp_path)
    with webhook_process(tmp_path) as webhook:
        async with registered(api_server, namespace, namespace, webhook.url, [old]), api_server.client() as client:
            creating = Creating(client, namespace, 300, per_s=50)
            running = asyncio.create_task(creating.run())
            for step, trusted in enumerate(([old, new], [new]), start=1):
                await eventually(lambda step=step: creating.done >= 60 * step, timeout=120)  # type: ignore[misc]
                await trust(client, namespace, trusted)
                if step == 1:
                    # Both are trusted by every API server before the new one is used: here that of this test.
                    await eventually(lambda: creating.done >= 100, timeout=120)
                    write_pair(new, tmp_path)
                    await eventually(lambda: webhook.events().count("certificate_taken") == 2)
            await running
            await creating.check()
            assert creating.errors == []


async def test_whoever_finds_no_room_comes_again_by_itself(
    api_server: ApiServer, namespace: str, tmp_path: Path, pair: Pair
) -> None:
    """The API server is answered 503 with `Retry-After`, and whoever makes the pod learns nothing of it."""
    write_pair(pair, tmp_path)
    room = {f"GPU_DEV_WEBHOOK__{name}": str(2**20) for name in ("MAX_BODY_BYTES", "MAX_BYTES_IN_FLIGHT")}
    large = pod("large-0")
    large["metadata"]["annotations"]["other"] = "x" * 200_000
    with webhook_process(tmp_path, GPU_DEV_WEBHOOK__BODY_S="300", **room) as webhook:
        async with registered(api_server, namespace, namespace, webhook.url, [pair]), api_server.client() as client:
            path = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{namespace}"
            configuration = await client.call("GET", path)
            configuration["webhooks"][0]["timeoutSeconds"] = 30
            await client.call("PUT", path, configuration)
            reader, writer = await asyncio.open_connection("127.0.0.1", webhook.port, ssl=trusting(pair))
            head = (
                "POST /mutate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 1048576\r\n\r\n"
            )
            writer.write(head.encode() + b" " * (2**20 - 1))
            await writer.drain()
            with client_of(webhook, pair) as asking:

                def refused() -> bool:
                    return asking.post("/mutate", json=admission_review(large)).status_code == 503

                def busy() -> float:
                    (count,) = re.findall(r'reviews_total{outcome="busy"} (\S+)', asking.get("/metrics").text)
                    return float(count)

                await eventually(lambda: asyncio.to_thread(refused))
                before = await asyncio.to_thread(busy)
                making = asyncio.create_task(client.call("POST", pods_of(namespace), large))

                async def was_refused() -> bool:
                    return await asyncio.to_thread(busy) > before

                await eventually(was_refused)
            assert not making.done()
            writer.transport.abort()
            assert told(await making) == EXPECTED[0]
            del reader
