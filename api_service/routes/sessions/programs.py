"""Programs and terminals inside a running job."""

from typing import Annotated, NoReturn

from fastapi import APIRouter, Path, Query, WebSocket
from pydantic import BaseModel, ConfigDict, Field

from api_service.documents import problems
from api_service.problems import ProblemError
from api_service.services import Caller, Services
from api_service.sessions.handshakes import read_query, refusal, subprotocol_of, visitor_of
from api_service.sessions.streaming import stream_program
from reservation_core.domain.sessions.ways_in import Way
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.sessions.pod_streams import (
    NoTerminalError,
    PodNotReachableError,
    Program,
    RunningProgram,
    Terminal,
    TerminalSize,
)

router = APIRouter(prefix="/v1/jobs", tags=["sessions"])

JobReference = Annotated[
    str, Path(min_length=1, max_length=200, description="A job's id, or the name of one running job.")
]
TerminalName = Annotated[str, Field(pattern=r"^[0-9]{1,20}(-[0-9]{1,10})?$")]
Rank = Annotated[int, Field(ge=0, le=4095, description="The rank of the pod in a job of several nodes.")]


class ExecQuery(BaseModel):
    """What to run."""

    model_config = ConfigDict(extra="forbid")

    command: Annotated[
        list[str],
        Field(
            description="The command, a parameter for each word; without it, a login shell. "
            "The address may have up to 8 KiB."
        ),
    ] = []
    tty: Annotated[bool, Field(description="Give the program a terminal.")] = False
    rank: Rank = 0
    columns: Annotated[int, Field(ge=1, le=10_000, description="The terminal's width.")] = 80
    rows: Annotated[int, Field(ge=1, le=10_000, description="The terminal's height.")] = 24
    term: Annotated[str, Field(pattern=r"^[A-Za-z0-9._+-]{1,64}$", description="The terminal's kind (TERM).")] = (
        "xterm-256color"
    )
    attach: Annotated[
        bool, Field(description="Join your newest open terminal, or else the newest, instead of running a command.")
    ] = False
    terminal: Annotated[
        TerminalName | None, Field(description="With `attach`: the name or key of the terminal to join.")
    ] = None

    @property
    def size(self) -> TerminalSize:
        return TerminalSize(self.columns, self.rows)


@router.get(
    "/{job_id}/exec",
    summary="Run a program in a job",
    status_code=101,
    response_model=None,
    responses=problems(400, 404, 409, 414, 426, 429),
)
async def describe_exec(caller: Caller, job_id: JobReference, query: Annotated[ExecQuery, Query()]) -> NoReturn:  # noqa: ARG001
    """Upgrade this request to a WebSocket with the subprotocol `v5.channel.k8s.io`, as Kubernetes' `exec` has it.

    The first byte of each binary message is its channel: 0 input, 1 output, 2 errors, 3 how the program ended, 4 the
    terminal's size, 255 closes the channel that follows. By the answer's header `Gpu-Dev-Terminal` the terminal can
    be joined again: `attach=true&terminal=`.
    """
    raise upgrade_required()


@router.websocket("/{job_id}/exec")
async def exec_in_job(socket: WebSocket, job_id: str) -> None:
    """Run a program, or join a terminal, until it ends or the client leaves."""
    services: Services = socket.app.state.services
    query = read_query(socket, ExecQuery, repeated="command")
    subprotocol = subprotocol_of(socket)
    way = Way.ATTACH if query.attach else Way.EXEC
    visitor = visitor_of(socket.scope, services)
    async with services.connections.enter(visitor, job_id, query.rank, way) as connection:
        streams = services.runtime.pod_streams
        pod = connection.entered.pod
        try:
            program: RunningProgram
            if query.attach:
                program = await streams.attach(pod, query.size, person=visitor.user, name=query.terminal)
            else:
                terminal = Terminal(query.size, query.term) if query.tty else None
                program = await streams.run(pod, Program(tuple(query.command), terminal, person=visitor.user))
        except (PodNotReachableError, NoTerminalError, ClusterUnavailableError) as error:
            raise refusal(error) from error
        greets = query.tty and not query.command and not query.attach
        await stream_program(
            socket,
            program,
            connection,
            subprotocol=subprotocol,
            terminal=query.tty or query.attach,
            first=connection.entered.greeting.encode() if greets else b"",
        )


def upgrade_required() -> ProblemError:
    """The answer to a request for a WebSocket that is none."""
    detail = "This address takes WebSockets only. `gpu-dev` and the pages of the server open them."
    return ProblemError(426, "upgrade_required", detail, headers={"Upgrade": "websocket", "Connection": "Upgrade"})
