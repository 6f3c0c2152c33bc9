"""A pod's log through what goes wrong between it and its reader."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.kubernetes.jobs import log_streams
from reservation_core.adapters.kubernetes.jobs.cluster import ClusterRules, KubernetesCluster
from reservation_core.domain.model import PodPhase
from reservation_core.ports.cluster import ClusterUnavailableError
from tests.integration.cluster_behaviour import AT_ONCE, SpecMaker, finished, log_of, reaches
from tests.integration.reservation_core.adapters.kubernetes.conftest import transport_to
from tests.kubernetes.fault_proxy import FaultProxy, Harm
from tests.kubernetes.node.kubelet import Kubelet
from tests.kubernetes.node.pods import Way
from tests.waiting import eventually


@pytest.fixture
async def proxied(
    fault_proxy: FaultProxy, rules: ClusterRules, kubelet: Kubelet, runtime_class: None
) -> AsyncIterator[KubernetesCluster]:
    """The cluster behind the fault proxy."""
    cluster = KubernetesCluster(transport_to(fault_proxy.kubeconfig(), timeout_s=1), rules, SystemClock())
    yield cluster
    await cluster.close()


async def test_a_pod_that_has_not_started_is_waited_for(
    cluster: KubernetesCluster, kubelet: Kubelet, make_spec: SpecMaker
) -> None:
    kubelet.let("*", Way.KEEPS_CREATING)
    spec = make_spec("echo", "hello")
    await cluster.create_pod(spec)
    following = asyncio.create_task(log_of(cluster, spec, follow=True))
    await eventually(reaches(cluster, spec, PodPhase.PENDING))
    assert await log_of(cluster, spec) == ""
    assert not following.done()
    kubelet.let_be()
    assert await following == "hello\n"


async def test_a_pod_that_goes_before_it_starts_ends_its_log(
    cluster: KubernetesCluster, kubelet: Kubelet, make_spec: SpecMaker
) -> None:
    kubelet.let("*", Way.IMAGE_PULL_FAILS)
    spec = make_spec("echo", "hello")
    await cluster.create_pod(spec)
    following = asyncio.create_task(log_of(cluster, spec, follow=True))
    await eventually(reaches(cluster, spec, PodPhase.PENDING))
    await cluster.delete_pod(str(spec.name), AT_ONCE)
    assert await following == ""


@pytest.mark.parametrize("lines", [0, 1, 7])
async def test_a_followed_log_survives_broken_streams_without_doubled_or_lost_lines(
    proxied: KubernetesCluster, fault_proxy: FaultProxy, make_spec: SpecMaker, lines: int
) -> None:
    spec = make_spec("sh", "-c", "for i in $(seq 40); do echo $i; sleep 0.02; done; printf end")
    cuts = fault_proxy.inject(Harm.CUT_STREAM, "GET", "/log", lines=lines, times=2)
    await proxied.create_pod(spec)
    await eventually(reaches(proxied, spec, PodPhase.RUNNING))
    assert await log_of(proxied, spec, follow=True) == "".join(f"{n}\n" for n in range(1, 41)) + "end"
    assert cuts.used == 2


async def test_many_lines_of_one_moment_survive_too(
    proxied: KubernetesCluster, fault_proxy: FaultProxy, make_spec: SpecMaker
) -> None:
    spec = make_spec("sh", "-c", "seq 1 3000")
    await proxied.create_pod(spec)
    await finished(proxied, spec)
    cuts = [fault_proxy.inject(Harm.CUT_STREAM, "GET", "/log", lines=lines, times=1) for lines in (1000, 1500, 2999)]
    assert await log_of(proxied, spec) == "".join(f"{n}\n" for n in range(1, 3001))
    assert [cut.used for cut in cuts] == [1, 1, 1]


async def test_the_last_lines_can_be_asked_for(
    proxied: KubernetesCluster, fault_proxy: FaultProxy, make_spec: SpecMaker, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    lines = "for i in 1 2 3 4 5 6; do echo $i; sleep 0.01; done"
    spec = make_spec("sh", "-c", f'{lines}; while [ ! -e "$0" ]; do sleep 0.05; done; echo more', str(gate))
    await proxied.create_pod(spec)

    async def printed() -> bool:
        return (await log_of(proxied, spec)).endswith("6\n")

    await eventually(printed)
    cut = fault_proxy.inject(Harm.CUT_STREAM, "GET", "tailLines=3", lines=2, times=1)
    followed = b""
    async for chunk in proxied.pod_logs(str(spec.name), follow=True, tail_lines=3):
        followed += chunk
        gate.touch()  # which lines are the last is settled
    assert followed == b"4\n5\n6\nmore\n"
    assert cut.used == 1
    last = [chunk async for chunk in proxied.pod_logs(str(spec.name), follow=False, tail_lines=1)]
    assert b"".join(last) == b"more\n"


async def test_bytes_pass_as_they_are(cluster: KubernetesCluster, make_spec: SpecMaker) -> None:
    spec = make_spec("sh", "-c", r"printf '\377\000\033[1m\r50%%\n\n2026-11-20T12:00:00Z not a stamp\n'")
    await cluster.create_pod(spec)
    await finished(cluster, spec)
    chunks = [chunk async for chunk in cluster.pod_logs(str(spec.name), follow=False)]
    assert b"".join(chunks) == b"\xff\x00\x1b[1m\r50%\n\n2026-11-20T12:00:00Z not a stamp\n"


async def test_a_log_that_can_not_be_read_is_told(
    cluster: KubernetesCluster, fault_proxy: FaultProxy, rules: ClusterRules, make_spec: SpecMaker
) -> None:
    spec = make_spec("sh", "-c", "echo hello; sleep 600")
    await cluster.create_pod(spec)
    await eventually(lambda: log_of(cluster, spec))
    fault_proxy.inject(Harm.ANSWER, "GET", "/log", code=500)
    impatient = KubernetesCluster(transport_to(fault_proxy.kubeconfig(), timeout_s=0.5), rules, SystemClock())
    for follow in (False, True):
        with pytest.raises(ClusterUnavailableError):
            await log_of(impatient, spec, follow=follow)
    await impatient.close()


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("lines", [0, 2])
async def test_a_log_that_does_not_go_on_is_told_and_not_asked_for_without_end(
    proxied: KubernetesCluster,
    fault_proxy: FaultProxy,
    make_spec: SpecMaker,
    monkeypatch: pytest.MonkeyPatch,
    lines: int,
    follow: bool,
) -> None:
    monkeypatch.setattr(log_streams, "_STALLED_S", 1.0)
    spec = make_spec("sh", "-c", "echo 1; echo 2; echo 3")
    await proxied.create_pod(spec)
    await finished(proxied, spec)
    stall = fault_proxy.inject(Harm.STALL_STREAM, "GET", "/log", lines=lines)
    got = bytearray()

    async def read() -> None:
        async for chunk in proxied.pod_logs(str(spec.name), follow=follow):
            got.extend(chunk)

    with pytest.raises(ClusterUnavailableError, match="sent nothing"):
        await read()
    assert got.decode().splitlines() == ["1", "2", "3"][:lines]
    assert stall.used <= 3


async def test_a_log_that_stalls_once_is_read_to_its_end(
    proxied: KubernetesCluster, fault_proxy: FaultProxy, make_spec: SpecMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_streams, "_STALLED_S", 1.0)
    spec = make_spec("sh", "-c", "echo 1; echo 2; echo 3")
    await proxied.create_pod(spec)
    await finished(proxied, spec)
    fault_proxy.inject(Harm.STALL_STREAM, "GET", "/log", lines=1, times=1)
    assert await log_of(proxied, spec) == "1\n2\n3\n"


async def test_a_reader_that_leaves_lets_go_of_the_stream(
    proxied: KubernetesCluster, fault_proxy: FaultProxy, make_spec: SpecMaker
) -> None:
    spec = make_spec("sh", "-c", "echo hello; sleep 600")
    await proxied.create_pod(spec)
    reader = proxied.pod_logs(str(spec.name), follow=True)
    assert await anext(aiter(reader)) == b"hello\n"
    await reader.aclose()  # type: ignore[attr-defined]
    await eventually(lambda: any("/log" in seen.path for seen in fault_proxy.requests))
