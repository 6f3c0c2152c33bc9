"""The ways into the pods of one namespace."""

import asyncio
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

from reservation_core.adapters.kubernetes.api_server.errors import (
    ApiServerError,
    ApiServerForbidsError,
    ObjectNotFoundError,
)
from reservation_core.adapters.kubernetes.api_server.plain_json import as_list, as_mapping
from reservation_core.adapters.kubernetes.api_server.refusals import unavailable
from reservation_core.adapters.kubernetes.api_server.requests import Query
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.adapters.kubernetes.pods.built_pods import CONTAINER
from reservation_core.adapters.kubernetes.pods.pod_statuses import read_pod_status
from reservation_core.adapters.kubernetes.sessions import forwarded_ports
from reservation_core.adapters.kubernetes.sessions.channels import Channel, ChannelSocket
from reservation_core.adapters.kubernetes.sessions.forwarded_ports import ForwardedPort
from reservation_core.adapters.kubernetes.sessions.process_groups import HangUps, ProcessGroup
from reservation_core.adapters.kubernetes.sessions.program_starts import (
    LONGEST_NUMBER,
    PROTOCOLS,
    exec_query,
    read_end,
    signal_command,
    size_message,
    start_command,
)
from reservation_core.adapters.kubernetes.sessions.running_programs import KubernetesProgram
from reservation_core.domain.model import PodName, PodPhase
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.sessions.pod_streams import (
    InputClosedError,
    KeptTerminal,
    NoTerminalError,
    Outlet,
    Output,
    PodNotReachableError,
    Program,
    ProgramEnd,
    SignalRefusedError,
    TerminalSize,
)

_START_S = 30.0
_LATE_START_S = 600.0
_FAREWELL_S = 5.0
_NO_TERMINALS = "This cluster keeps no terminals. Run `tmux` or `screen` in the job to have one that can be joined."
_NOT_RUNNING = ("container not found", "not running", "not in running state")
_NO_SHELL = ("executable file not found", "no such file or directory", "permission denied", "exec format error")


class KubernetesPodStreams:
    """Enters the workload's container of each pod. `transport` is closed with it.

    Programs are hung up by a second exec, whose shell sends the signal. A process that ends without closing its
    streams leaves programs that read no input running until their pods end. Commands and variables pass through the
    API server's audit log.
    """

    def __init__(self, transport: Transport, namespace: str) -> None:
        self._transport = transport
        self._namespace = namespace
        self._open: set[KubernetesProgram | ForwardedPort] = set()
        self._left_early: set[asyncio.Task[None]] = set()
        self._hang_ups = HangUps(self._send_signals)

    async def run(self, pod: PodName, program: Program) -> KubernetesProgram:
        """As the port says. The image needs `sh`."""
        terminal = program.terminal
        query = exec_query(start_command(program), stdin=True, terminal=terminal is not None)
        socket = await self._connect(pod, "exec", query, PROTOCOLS)
        try:
            if terminal is not None:
                await self._resize(socket, terminal.size)
            async with asyncio.timeout(_START_S):
                number, early = await self._read_number(pod, socket)
        except asyncio.CancelledError:
            self._leave_early(pod, socket)
            raise
        except TimeoutError as problem:
            self._leave_early(pod, socket)
            raise ClusterUnavailableError(
                f"Pod {pod} did not start the program within {_START_S:g} s. Try again; if that does not help, check"
                " its node."
            ) from problem
        except BaseException:
            await socket.close()
            raise
        group = ProcessGroup(pod, number, self._send_signals, self._hang_ups)
        return self._opened(socket, pod, group, early, terminal=terminal is not None)

    async def attach(
        self,
        pod: PodName,
        size: TerminalSize,
        *,
        person: str = "",  # noqa: ARG002 -- there is one at most
        name: str | None = None,
    ) -> KubernetesProgram:
        """Join the terminal of the job's command. Pods of ours have none, unless admission gives them one."""
        if name is not None:
            raise NoTerminalError(_NO_TERMINALS)
        container = await self._container_of(pod)
        if not (container.get("tty") and container.get("stdin")):
            raise NoTerminalError(_NO_TERMINALS)
        query: Query = {"container": CONTAINER, "stdin": True, "stdout": True, "stderr": False, "tty": True}
        socket = await self._connect(pod, "attach", query, PROTOCOLS)
        try:
            await self._resize(socket, size)
        except BaseException:
            await socket.close()
            raise
        return self._opened(socket, pod, None, [], terminal=True)

    async def terminals(self, pod: PodName) -> list[KeptTerminal]:  # noqa: ARG002
        """Raises NoTerminalError: a terminal ends with its connection."""
        raise NoTerminalError(_NO_TERMINALS)

    async def connect(self, pod: PodName, port: int) -> ForwardedPort:
        """As the port says; a refusal that comes late is raised when the connection is read."""
        socket = await self._connect(pod, "portforward", {"ports": port}, forwarded_ports.PROTOCOLS)
        connection = ForwardedPort(socket, port, partial(self._container_of, pod), self._open.discard)
        try:
            async with asyncio.timeout(_START_S):
                await connection.begin()
        except TimeoutError as problem:
            await socket.close()
            raise ClusterUnavailableError(
                f"The API server did not connect to pod {pod} within {_START_S:g} s. Try again; if that does not help,"
                " check its node."
            ) from problem
        except BaseException:
            await socket.close()
            raise
        self._open.add(connection)
        return connection

    async def listening_ports(self, pod: PodName) -> None:
        """None: Kubernetes does not say."""

    async def close(self) -> None:
        """Close all streams of this process and the connections to the API server, within some seconds."""
        closing = [asyncio.ensure_future(stream.close()) for stream in [*self._open]]
        if closing:
            _, late = await asyncio.wait(closing, timeout=_FAREWELL_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*closing, return_exceptions=True)
        for task in self._left_early:
            task.cancel()
        await asyncio.gather(*self._left_early, return_exceptions=True)
        await self._hang_ups.close()
        await self._transport.close()

    def _opened(
        self,
        socket: ChannelSocket,
        pod: PodName,
        group: ProcessGroup | None,
        early: list[Output],
        *,
        terminal: bool,
    ) -> KubernetesProgram:
        program = KubernetesProgram(
            socket,
            terminal=terminal,
            find_loss=partial(self._find_loss, pod),
            group=group,
            early=early,
            forget=self._open.discard,
        )
        self._open.add(program)
        return program

    def _leave_early(self, pod: PodName, socket: ChannelSocket) -> None:
        """Hang a program up once it has started, as nobody waits for it any more."""

        async def leave() -> None:
            try:
                async with asyncio.timeout(_LATE_START_S):
                    number, _ = await self._read_number(pod, socket)
                    await self._hang_ups.hang_up(pod, number)
            except (PodNotReachableError, ClusterUnavailableError, TimeoutError):
                return
            finally:
                await socket.close()

        task = asyncio.create_task(leave())
        self._left_early.add(task)
        task.add_done_callback(self._left_early.discard)

    async def _connect(self, pod: PodName, way: str, query: Query, protocols: tuple[str, ...]) -> ChannelSocket:
        path = f"{self._path(pod)}/{way}"
        try:
            return ChannelSocket(await self._transport.open_websocket(path, query, protocols))
        except ApiServerForbidsError as error:
            raise unavailable(error, "create", f"pods/{way}", self._namespace) from error
        except ApiServerError as error:
            raise await self._problem(pod, f"the API server refused with {error.status}") from error

    async def _read_number(self, pod: PodName, socket: ChannelSocket) -> tuple[int, list[Output]]:
        """The process number that a program begins with, and what it has written after it or besides."""
        head, early = b"", list[Output]()
        while b"\n" not in head:
            received = await socket.receive()
            if received is None:
                raise await self._problem(pod, "the API server ended the connection")
            channel, data = received
            if channel == Channel.STATUS:
                raise await self._problem(pod, read_end(data).detail or "the program's shell has ended")
            if channel == Channel.STDERR:
                early.append(Output(Outlet.STDERR, data))
            elif channel == Channel.STDOUT:
                head += data
            if len(head.partition(b"\n")[0]) > LONGEST_NUMBER:
                break
        number, _, rest = head.partition(b"\n")
        if not number.strip().isdigit():
            raise PodNotReachableError(f"The `sh` of pod {pod} is no POSIX shell. Use an image that has one.")
        if rest:
            early.append(Output(Outlet.STDOUT, rest))
        return int(number), early

    async def _send_signals(self, pod: PodName, groups: Collection[int], names: tuple[str, ...]) -> None:
        """Signal process groups of a pod. Raises SignalRefusedError, where the pod's shell does not know a signal."""
        query = exec_query(signal_command(groups, names), stdin=False, terminal=False)
        socket = await self._connect(pod, "exec", query, PROTOCOLS)
        try:
            while (received := await socket.receive()) is not None:
                if received[0] == Channel.STATUS:
                    end = read_end(received[1])
                    if end.exit_code:
                        raise SignalRefusedError(f"The job's processes do not take signal {names[0]}.")
                    if end.exit_code is None:
                        raise await self._problem(pod, end.detail)
                    return
        finally:
            await socket.close()

    async def _resize(self, socket: ChannelSocket, size: TerminalSize) -> None:
        try:
            await socket.send(Channel.RESIZE, size_message(size.columns, size.rows))
        except InputClosedError:
            return  # the reader finds out why

    async def _find_loss(self, pod: PodName) -> ProgramEnd:
        """How a program ended whose connection broke. Raises ClusterUnavailableError when its pod runs on."""
        try:
            await self._container_of(pod)
        except PodNotReachableError as lost:
            return ProgramEnd(None, str(lost))
        raise ClusterUnavailableError(
            f"The connection to a program in pod {pod} broke, though the pod runs on. Try again; if that does not help,"
            " check the API server and the pod's node."
        )

    async def _problem(self, pod: PodName, why: str) -> PodNotReachableError | ClusterUnavailableError:
        """The error for a pod that can't be entered, from the pod's own state and from `why`."""
        try:
            await self._container_of(pod)
        except (PodNotReachableError, ClusterUnavailableError) as problem:
            return problem
        if any(text in why.lower() for text in _NOT_RUNNING):  # its kubelet has not reported it yet
            return PodNotReachableError(f"Pod {pod} does not run: {why}")
        if any(text in why.lower() for text in _NO_SHELL):
            return PodNotReachableError(f"Pod {pod} can't run `sh`, which its image needs for this: {why}")
        return ClusterUnavailableError(
            f"Pod {pod} could not be entered: {why}. Try again; if that does not help, check its node."
        )

    async def _container_of(self, pod: PodName) -> Mapping[str, Any]:
        """The workload's container as the pod's object has it. Raises PodNotReachableError unless it runs."""
        try:
            thing = await self._transport.request("GET", self._path(pod))
        except ObjectNotFoundError:
            raise PodNotReachableError(f"Pod {pod} does not exist any more.") from None
        except ApiServerError as error:
            raise unavailable(error, "get", "pods", self._namespace) from error
        status = read_pod_status(thing)
        if status is None:
            raise PodNotReachableError(f"Pod {pod} was not created by this server.")
        if status.phase is PodPhase.PENDING:
            raise PodNotReachableError(f"Pod {pod} has not started yet. Try again when it runs.")
        if status.phase is not PodPhase.RUNNING or "deletionTimestamp" in as_mapping(thing.get("metadata")):
            raise PodNotReachableError(f"Pod {pod} has ended.")
        containers = as_list(as_mapping(thing.get("spec")).get("containers"))
        return next((as_mapping(item) for item in containers if as_mapping(item).get("name") == CONTAINER), {})

    def _path(self, pod: PodName) -> str:
        return f"/api/v1/namespaces/{self._namespace}/pods/{quote(str(pod), safe='')}"
