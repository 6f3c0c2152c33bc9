"""The ways into Kubernetes pods keep the promises of the port, on a real API server or the emulator."""

import asyncio
import gc
from datetime import timedelta
from weakref import ref

import pytest

from reservation_core.adapters.kubernetes.sessions import pod_streams
from reservation_core.domain.model import PodName
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.sessions.pod_streams import InputClosedError, NoTerminalError, Program, TerminalSize
from tests.integration.sessions.pod_streams_contract import PodStreamsContract
from tests.integration.sessions.pod_worlds import ClusterWorld, PodWorld, Reader, echoing, ran, result_of, running, sh
from tests.waiting import eventually


class TestKubernetesPodStreams(PodStreamsContract):
    async def test_the_other_side_of_a_port_sees_the_end_of_input(self, world: PodWorld, pod: PodName) -> None:
        """Forwarding over WebSockets has no half-close: what was sent is answered, and the end comes with `close`."""
        port, server = await echoing(world, pod)
        connection = await world.streams.connect(pod, port)
        await connection.write(b"all")
        await connection.close_input()
        with pytest.raises(InputClosedError):
            await connection.write(b"more")
        assert await connection.read() == b"all"
        await connection.close()
        await server.close()

    async def test_pods_keep_no_terminals(self, world: PodWorld, pod: PodName) -> None:
        with pytest.raises(NoTerminalError, match="tmux"):
            await world.streams.attach(pod, TerminalSize())
        with pytest.raises(NoTerminalError, match="tmux"):
            await world.streams.attach(pod, TerminalSize(), name="3")
        with pytest.raises(NoTerminalError, match="tmux"):
            await world.streams.terminals(pod)

    async def test_the_ports_at_which_processes_listen_are_not_known(self, world: PodWorld, pod: PodName) -> None:
        assert await world.streams.listening_ports(pod) is None

    async def test_a_program_that_ends_with_its_pod_says_so(self, world: ClusterWorld, pod: PodName) -> None:
        async with running(world, pod, sh("echo ready; exec sleep 600")) as program:
            shown = Reader(program)
            await shown.has("ready")
            await world.cluster.delete_pod(str(pod), timedelta(seconds=1))
            end = await shown.end()
        assert end.exit_code is None
        assert end.detail in (f"Pod {pod} has ended.", f"Pod {pod} does not exist any more.")

    async def test_a_program_that_starts_too_late_is_hung_up(
        self, world: PodWorld, pod: PodName, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pod_streams, "_START_S", 0)
        with pytest.raises(ClusterUnavailableError, match="did not start the program within"):
            await world.streams.run(pod, Program(("sleep", "31337")))
        monkeypatch.undo()
        await eventually(lambda: not world.streams._left_early)  # type: ignore[attr-defined]

        async def is_over() -> bool:
            return b"sleep 31337" not in (await ran(world, pod, Program(("ps", "ax"))))[0]

        await eventually(is_over)

    async def test_a_program_that_is_left_does_not_wait_for_the_garbage_collector(
        self, world: PodWorld, pod: PodName
    ) -> None:
        """A full collection is rare in servers: they would keep the buffers of each stream."""
        program = await world.streams.run(pod, Program(("cat",)))
        socket = ref(program._socket)  # type: ignore[attr-defined]
        gc.disable()
        try:
            await program.close()
            del program
            await eventually(lambda: socket() is None)
        finally:
            gc.enable()

    async def test_closing_leaves_everything(self, world: PodWorld, pod: PodName) -> None:
        """Programs are hung up, as no pod keeps a terminal."""
        port, _ = await echoing(world, pod)
        connection = await world.streams.connect(pod, port)
        program = await world.streams.run(pod, Program(("cat",)))
        reading = asyncio.create_task(connection.read())
        await world.streams.close()
        assert (await result_of(program))[2].exit_code is None
        assert await reading == b""
