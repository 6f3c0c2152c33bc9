"""TCP connections to ports inside a running job."""

from typing import Annotated, NoReturn

from fastapi import APIRouter, Path, Query, WebSocket
from pydantic import BaseModel, ConfigDict

from api_service.documents import problems
from api_service.problems import ProblemError
from api_service.routes.sessions.programs import JobReference, Rank, upgrade_required
from api_service.services import Caller, Services
from api_service.sessions.handshakes import read_query, refusal, visitor_of
from api_service.sessions.streaming import stream_port
from reservation_core.domain.sessions.ways_in import Way
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.sessions.pod_streams import PodNotReachableError, PortClosedError

router = APIRouter(prefix="/v1/jobs", tags=["sessions"])

_LARGEST_PORT = 65_535


class ForwardQuery(BaseModel):
    """Which pod to connect to."""

    model_config = ConfigDict(extra="forbid")

    rank: Rank = 0


@router.get(
    "/{job_id}/forward/{port}",
    summary="Connect to a port in a job",
    status_code=101,
    response_model=None,
    responses=problems(404, 409, 426, 429),
)
async def describe_forward(
    caller: Caller,  # noqa: ARG001
    job_id: JobReference,  # noqa: ARG001
    port: Annotated[int, Path(ge=1, le=_LARGEST_PORT, description="A port at which a process of the job listens.")],  # noqa: ARG001
    query: Annotated[ForwardQuery, Query()],  # noqa: ARG001
) -> NoReturn:
    """Upgrade this request to a WebSocket, which is one TCP connection: binary messages are its bytes.

    An empty message ends one direction; the other goes on.
    """
    raise upgrade_required()


@router.websocket("/{job_id}/forward/{port}")
async def forward_to_job(socket: WebSocket, job_id: str, port: str) -> None:
    """Connect to a port until one side ends the connection."""
    services: Services = socket.app.state.services
    query = read_query(socket, ForwardQuery)
    if not (port.isascii() and port.isdigit() and 1 <= int(port[:6]) <= _LARGEST_PORT):
        raise ProblemError(422, "invalid_request", f"The port must be a number from 1 to {_LARGEST_PORT}.")
    visitor = visitor_of(socket.scope, services)
    async with services.connections.enter(visitor, job_id, query.rank, Way.FORWARD) as connection:
        try:
            opened = await services.runtime.pod_streams.connect(connection.entered.pod, int(port))
        except (PodNotReachableError, PortClosedError, ClusterUnavailableError) as error:
            raise refusal(error) from error
        await stream_port(socket, opened, connection)
