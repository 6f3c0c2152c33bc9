"""Ways into pods that don't work, or not as usual: each says why."""

import asyncio
from pathlib import Path

import pytest

from reservation_core.adapters.kubernetes.jobs.cluster import ClusterRules, KubernetesCluster
from reservation_core.adapters.kubernetes.sessions.pod_streams import KubernetesPodStreams
from reservation_core.domain.model import PodName
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.sessions.pod_streams import PodNotReachableError, Program, ProgramEnd, TerminalSize
from tests.integration.cluster_behaviour import SpecMaker
from tests.integration.reservation_core.adapters.kubernetes.conftest import transport_to
from tests.integration.sessions.pod_worlds import ClusterWorld, Reader, ran, result_of, sh
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.kubeconfigs import write_kubeconfig
from tests.kubernetes.node import streams as kubelet_streams
from tests.kubernetes.node.kubelet import Kubelet, Way
from tests.programs.ports import own_port
from tests.waiting import eventually


async def test_a_server_of_before_v5_cannot_end_the_input(world: ClusterWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubelet_streams, "EXEC_PROTOCOLS", ("v4.channel.k8s.io",))
    pod = await world.start()
    program = await world.streams.run(pod, sh("read line; echo $line; exit 3"))
    await program.close_input()
    await program.write(b"still\n")
    assert await result_of(program) == (b"still\n", b"", ProgramEnd(3))
    await program.close()


async def test_an_image_without_a_shell_is_said(world: ClusterWorld) -> None:
    pod = await world.start("/bin/sleep", "600", env=(("PATH", "/nowhere"),))
    with pytest.raises(PodNotReachableError, match="`sh`, which its image needs"):
        await world.streams.run(pod, Program(("true",)))


async def test_a_pod_that_has_not_started_is_said(world: ClusterWorld, kubelet: Kubelet) -> None:
    kubelet.let("*", Way.KEEPS_CREATING)
    spec = world.make_spec("sleep", "600")
    await world.cluster.create_pod(spec)
    for entering in (
        world.streams.run(spec.name, Program(("true",))),
        world.streams.connect(spec.name, 80),
        world.streams.attach(spec.name, TerminalSize()),
    ):
        with pytest.raises(PodNotReachableError, match="has not started"):
            await entering


async def test_a_program_that_reads_nothing_is_hung_up_when_it_is_left(world: ClusterWorld) -> None:
    pod = await world.start()
    program = await world.streams.run(pod, sh("echo $$; exec sleep 600"))
    reader = Reader(program)
    await reader.has("\n")
    await program.close()

    async def is_over() -> bool:
        return (await ran(world, pod, sh('kill -0 "$1"', reader.text.strip())))[2].exit_code != 0

    await eventually(is_over)


async def test_a_connection_that_breaks_is_no_end_of_the_program(world: ClusterWorld, kubelet: Kubelet) -> None:
    pod = await world.start()
    program = await world.streams.run(pod, sh("echo ready; exec sleep 600"))
    reader = Reader(program)
    await reader.has("ready")
    kubelet.call(kubelet.cut_streams())
    with pytest.raises(ClusterUnavailableError, match="though the pod runs on"):
        await reader.end()
    await program.close()


async def test_a_program_is_over_when_its_node_has_lost_it(world: ClusterWorld, kubelet: Kubelet) -> None:
    """The status does not come, as the connection breaks with the container."""
    pod = await world.start()
    program = await world.streams.run(pod, sh("echo ready; exec sleep 600"))
    reader = Reader(program)
    await reader.has("ready")
    kubelet.let(str(pod), Way.OUT_OF_MEMORY)
    await eventually(lambda: world.ended(pod))
    end = await reader.end()
    assert end.exit_code in (None, 137)
    await program.close()


async def test_a_server_that_is_away_is_said(world: ClusterWorld, tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", f"http://127.0.0.1:{own_port()}", "token")
    streams = KubernetesPodStreams(transport_to(kubeconfig, timeout_s=30.0), "anywhere")
    with pytest.raises(ClusterUnavailableError, match="no connection"):
        await streams.run(PodName("job-x", 1, 0), Program(("true",)))
    await streams.close()
    with pytest.raises(ClusterUnavailableError, match="closed"):
        await streams.run(PodName("job-x", 1, 0), Program(("true",)))


async def test_a_permission_that_is_missing_is_named(
    world: ClusterWorld, api_server: ApiServer, rules: ClusterRules
) -> None:
    if not api_server.real:
        pytest.skip("the emulator allows everything")
    pod = await world.start()
    token = await api_server.token_of(rules.pods.namespace, "default")
    transport = transport_to(api_server.kubeconfig_with(token, "without-a-role"))
    streams = KubernetesPodStreams(transport, rules.pods.namespace)
    with pytest.raises(ClusterUnavailableError, match="verb create on pods/exec"):
        await streams.run(pod, Program(("true",)))
    with pytest.raises(ClusterUnavailableError, match="verb create on pods/portforward"):
        await streams.connect(pod, 80)
    await streams.close()


async def test_a_token_that_is_refused_is_read_again(
    api_server: ApiServer, cluster: KubernetesCluster, rules: ClusterRules, make_spec: SpecMaker, tmp_path: Path
) -> None:
    if not api_server.real:
        pytest.skip("the emulator takes any token")
    kubeconfig = api_server.kubeconfig_with("not-a-token", "rotated")
    streams = KubernetesPodStreams(transport_to(kubeconfig), rules.pods.namespace)
    world = ClusterWorld(streams, str(tmp_path), cluster, make_spec)
    pod = await world.start()
    with pytest.raises(ClusterUnavailableError, match="does not accept our credentials"):
        await streams.run(pod, Program(("true",)))
    api_server.kubeconfig_with(api_server.admin_token, "rotated")
    assert (await ran(world, pod, Program(("true",))))[2] == ProgramEnd(0)
    await streams.close()


async def test_a_start_that_is_given_up_leaves_no_connection(world: ClusterWorld) -> None:
    pod = await world.start()
    for _ in range(10):
        starting = asyncio.create_task(world.streams.run(pod, Program(("cat",))))
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
    assert (await ran(world, pod, Program(("true",))))[2] == ProgramEnd(0)
