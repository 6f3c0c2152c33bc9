"""A client of the SSH server: authenticated by key, in one job, with programs and ports open in it."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import AnyStr, cast

import structlog
from asyncssh import ChannelOpenError, PermissionDenied, SSHServer, SSHServerConnection, SSHServerConnectionOptions
from asyncssh.channel import SSHServerChannel
from asyncssh.constants import (
    DISC_BY_APPLICATION,
    OPEN_ADMINISTRATIVELY_PROHIBITED,
    OPEN_CONNECT_FAILED,
    OPEN_RESOURCE_SHORTAGE,
)
from asyncssh.session import SSHServerSession, SSHTCPSession

from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.domain.errors import DomainError, NotFoundError
from reservation_core.domain.sessions.ways_in import Way
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.sessions.pod_streams import (
    PodNotReachableError,
    PodStreams,
    PortClosedError,
    Program,
    RunningProgram,
)
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.sessions.connections import Connection, Connections
from reservation_core.runtime.settings.ssh import SshSettings
from reservation_core.runtime.ssh.counts import SshCounts, SshRefusal, StreamKind
from reservation_core.runtime.ssh.flow import Flow
from reservation_core.runtime.ssh.key_checks import MOST_TRIES, KeyChecks
from reservation_core.runtime.ssh.lobby import HANDSHAKE_BYTES, Lobby
from reservation_core.runtime.ssh.port_streams import PortStream
from reservation_core.runtime.ssh.program_streams import JobRefusedError, ProgramChannel, ProgramStream
from reservation_core.usecases.sessions.ssh_visitors import KeyHolder, choose_pod, choose_visitor

PACKET_BYTES = 32 * 1024
WINDOW_BYTES = 1024 * 1024
SSH_PORT = 22
_HERE = frozenset({"localhost", "127.0.0.1", "::1"})
_SUFFIX = ".gpu-dev"
_NO_DATABASE = "The server's database does not answer at this moment. Try again."
_IDLE = "This connection ends: it entered no job for a while."
_NO_AGENT = "Agent forwarding (-A) is refused: nothing of your agent reaches the job."
_NO_X11 = "X11 forwarding (-X) is refused. Open a program's page by a forwarded port (-L) instead."
_NO_REMOTE = "Remote forwarding (-R) is refused: a job opens no connections to your machine. Forward with -L."
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SshWorld:
    """What all clients of a server share. `ports`: those at which this server is reached itself."""

    uow: UnitOfWorkFactory
    connections: Connections
    pod_streams: PodStreams
    keys: KeyChecks
    lobby: Lobby
    counts: SshCounts
    settings: SshSettings
    options: SSHServerConnectionOptions
    ports: frozenset[int]


class Visit(SSHServer):
    """One client."""

    def __init__(self) -> None:
        self.holders: tuple[KeyHolder, ...] = ()
        self.flows: dict[Flow, StreamKind] = {}
        self._user = ""
        self._person = ""
        self._connection: GatewayConnection | None = None
        self._inside: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        self._staying: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._notes: list[str] = []

    # What the library calls.

    def connection_made(self, conn: SSHServerConnection) -> None:
        assert isinstance(conn, GatewayConnection)  # noqa: S101 - we make no others
        self._connection = conn
        conn.visit = self

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the channels have heard why
        for task in (self._staying, *self._tasks):
            if task is not None:
                task.cancel()
        self._world.lobby.leave(self.connection, admitted=self.connection.admitted)

    def begin_auth(self, username: str) -> bool:
        self._user = username
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: object) -> bool:  # noqa: ARG002
        return True  # the connection has looked it up

    def auth_completed(self) -> None:
        self.connection.admitted = True
        self._world.lobby.admit(self.connection)
        self._staying = self.create_task(self._stay())
        self.spawn(self._world.keys.note_use(self.holders))

    def session_requested(self) -> tuple[SSHServerChannel[bytes], SSHServerSession[bytes]]:
        self._require_room()
        loop = asyncio.get_running_loop()
        channel = ProgramChannel(
            self.connection,
            loop,
            allow_pty=True,
            line_editor=False,
            line_echo=False,
            line_history=0,
            max_line_length=0,
            encoding=None,
            errors="strict",
            window=WINDOW_BYTES,
            max_pktsize=PACKET_BYTES,
        )
        return channel, ProgramStream(self)

    async def connection_requested(
        self,
        dest_host: str,
        dest_port: int,
        orig_host: str,  # noqa: ARG002
        orig_port: int,  # noqa: ARG002
    ) -> SSHTCPSession[bytes]:
        self._require_room()
        here = dest_host.lower() in _HERE
        jumps = dest_port == SSH_PORT or dest_port in self._world.ports
        if here:
            try:
                return await self._open_port(dest_port)
            except (JobRefusedError, PodNotReachableError, PortClosedError, ClusterUnavailableError) as error:
                if not jumps:
                    raise ChannelOpenError(OPEN_CONNECT_FAILED, str(error)) from error
        if jumps:
            host = "" if here else dest_host.removesuffix(_SUFFIX)
            return cast("SSHTCPSession[bytes]", GatewayConnection(self._world, self.connection.peer, host))
        self._world.counts.refused[SshRefusal.FORWARDING] += 1
        raise ChannelOpenError(
            OPEN_ADMINISTRATIVELY_PROHIBITED, f"only ports of the job itself are forwarded (localhost), not {dest_host}"
        )

    async def _open_port(self, number: int) -> PortStream:
        port = await self._world.pod_streams.connect((await self._connected()).entered.pod, number)
        if self.connection.is_closed():  # then the library forgets the stream
            await port.close()
        return PortStream(self, port)

    def unix_connection_requested(self, dest_path: str) -> bool:  # noqa: ARG002
        self._world.counts.refused[SshRefusal.FORWARDING] += 1
        raise ChannelOpenError(OPEN_ADMINISTRATIVELY_PROHIBITED, "only TCP ports of the job are forwarded")

    def server_requested(self, listen_host: str, listen_port: int) -> bool:  # noqa: ARG002
        self.refuse_forwarding(_NO_REMOTE)
        return False

    def unix_server_requested(self, listen_path: str) -> bool:  # noqa: ARG002
        self.refuse_forwarding(_NO_REMOTE)
        return False

    # What its streams call.

    async def start(self, program: Program) -> RunningProgram:
        """Start a program in the job. Raises JobRefusedError, and what `PodStreams.run` does.

        A client that leaves meanwhile leaves the program, too: nobody else would, as it has begun already.
        """
        pod = (await self._connected()).entered.pod
        started = replace(program, person=self._person)
        starting = asyncio.ensure_future(self._world.pod_streams.run(pod, started))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            with suppress(PodNotReachableError, ClusterUnavailableError):
                await (await starting).close()
            raise

    async def greet(self) -> str:
        """What a login shell shows first. Raises JobRefusedError."""
        return (await self._connected()).entered.greeting

    async def until_writable(self) -> None:
        await self.connection.writable.wait()

    def note_bytes(self) -> None:
        if self._inside.done() and self._inside.exception() is None:
            self._inside.result().note_bytes()

    def create_task(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        """Start a task that the server awaits before it ends."""
        task = asyncio.get_running_loop().create_task(work)
        tasks = self._world.lobby.tasks
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    def begin(self, flow: Flow, kind: StreamKind) -> None:
        self.flows[flow] = kind
        self._world.counts.streams[kind] += 1
        self._world.counts.open_streams[kind] += 1

    def end(self, flow: Flow) -> None:
        kind = self.flows.pop(flow)
        self._world.counts.open_streams[kind] -= 1

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Do something beside, as long as the connection lasts."""
        task = self.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def variables(self) -> tuple[tuple[str, str], ...]:
        """The variables of sshd: where the client is."""
        address, port = self.connection.peer
        return ("SSH_CLIENT", f"{address} {port} 22"), ("SSH_CONNECTION", f"{address} {port} 127.0.0.1 22")

    def take_notes(self) -> list[str]:
        """Take the refusals that the client has not seen."""
        notes, self._notes = self._notes, []
        return notes

    # What its connection calls.

    @property
    def connection(self) -> "GatewayConnection":
        assert self._connection is not None  # noqa: S101 - the library says which one first
        return self._connection

    @property
    def _world(self) -> SshWorld:
        return self.connection.world

    def refuse_forwarding(self, why: str) -> None:
        """Count a refused request, and tell the client with the next program."""
        self._world.counts.refused[SshRefusal.FORWARDING] += 1
        if why not in self._notes:
            self._notes.append(why)

    def _require_room(self) -> None:
        if len(self.flows) >= self._world.settings.streams_per_connection:
            self._world.counts.refused[SshRefusal.TOO_MANY_STREAMS] += 1
            raise ChannelOpenError(OPEN_RESOURCE_SHORTAGE, f"this connection has {len(self.flows)} streams already")

    async def _connected(self) -> Connection:
        """The connection to the job, once there is one. Raises JobRefusedError."""
        return await asyncio.shield(self._inside)

    async def _stay(self) -> None:
        """Be in the job until the client leaves or must leave."""
        references = [name for name in (self.connection.host, self._user) if name]
        refused: JobRefusedError | None = None
        for reference in references:
            try:
                return await self._stay_in(reference)
            except DatabaseUnavailableError as error:
                refused = JobRefusedError(_NO_DATABASE)
                _log.warning("ssh_job_not_entered", error=str(error))
                break
            except DomainError as error:
                refused = refused or JobRefusedError(error.detail)
                if not isinstance(error, NotFoundError):
                    break
        self._world.counts.refused[SshRefusal.JOB] += 1
        self._inside.set_exception(refused or JobRefusedError("Say which job to enter: ssh JOB@SERVER."))
        self._inside.exception()  # it is told when a stream asks for the job
        while True:
            await asyncio.sleep(self._world.settings.idle_s)
            if not self.flows:
                self._leave(_IDLE, keep=False)
                return None

    async def _stay_in(self, reference: str) -> None:
        world = self._world
        async with world.uow() as uow:
            named, rank = await choose_pod(uow, self.holders, reference)
            visitor, job = await choose_visitor(uow, self.holders, named, self.connection.peer[0])
        async with world.connections.enter(visitor, job, rank, Way.SSH) as inside:
            inside.show = self._show
            self._person = visitor.user
            self._inside.set_result(inside)
            _log.info("ssh_entered", job=inside.entered.pod.reservation_id, user=visitor.user, address=visitor.address)
            await inside.over.wait()
            self._leave(inside.why, keep=inside.stopping)

    def _show(self, text: str) -> None:
        for flow in self.flows:
            if isinstance(flow, ProgramStream):
                flow.show(text)

    def _leave(self, why: str, *, keep: bool) -> None:
        """End the connection and say why; with `keep` its terminals go on."""
        for flow in self.flows:
            if isinstance(flow, ProgramStream):
                flow.finish(why, keep=keep)
        self.connection.disconnect(DISC_BY_APPLICATION, why)


class GatewayConnection(SSHServerConnection):
    """The SSH protocol with one client, over TCP, a WebSocket, or a channel of another connection."""

    def __init__(self, world: SshWorld, peer: tuple[str, int], host: str = "") -> None:
        loop = asyncio.get_running_loop()
        super().__init__(loop, world.options)
        self.world = world
        self.peer = peer
        self.host = host
        self.used_at = loop.time()
        self.admitted = False
        self.writable = asyncio.Event()
        self.writable.set()
        self.visit: Visit | None = None
        self._strange_bytes = 0
        self._wrong_keys = 0
        self._known: tuple[bytes, tuple[KeyHolder, ...]] = (b"", ())
        world.lobby.enter(self, peer[0])

    @property
    def busy(self) -> bool:
        """Whether nothing may displace it."""
        return self.admitted

    def displace(self) -> None:
        self.abort()

    def data_received(self, data: bytes, datatype: int | None = None) -> None:
        if not self.admitted:
            self.used_at = asyncio.get_running_loop().time()
            self._strange_bytes += len(data)
            if self._strange_bytes > HANDSHAKE_BYTES:
                self.abort()
                return
        super().data_received(data, datatype)

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    async def reload_config(self) -> None:
        """There is no configuration by user."""

    async def validate_public_key(self, username: str, key_data: bytes, msg: bytes, signature: bytes) -> bool:
        """Whether a key or certificate is somebody's and, if `msg` is signed, the signature right."""
        known, holders = self._known
        if known != key_data:
            holders = await self.world.keys.holders(key_data)
            self._known = key_data, holders
        if not holders:
            self._wrong_keys += 1
            if self._wrong_keys > MOST_TRIES:
                raise PermissionDenied(
                    "Too many keys were offered that this server does not know. Name the right one: "
                    "-i FILE -o IdentitiesOnly=yes."
                )
            await self.world.keys.refuse(key_data, username, self.peer[0])
            return False
        right = await super().validate_public_key(username, key_data, msg, signature)
        if right and msg and self.visit is not None:
            self.visit.holders = holders
        return right

    async def create_agent_listener(self) -> bool:
        if self.visit is not None:
            self.visit.refuse_forwarding(_NO_AGENT)
        return False

    async def attach_x11_listener(
        self,
        chan: SSHServerChannel[AnyStr],  # noqa: ARG002
        auth_proto: bytes,  # noqa: ARG002
        auth_data: bytes,  # noqa: ARG002
        screen: int,  # noqa: ARG002
    ) -> str | None:
        if self.visit is not None:
            self.visit.refuse_forwarding(_NO_X11)
        return None
