"""SSH over a WebSocket, for places from which only the API can be reached."""

from typing import NoReturn

from fastapi import APIRouter, WebSocket

from api_service.documents import problems
from api_service.problems import ProblemError
from api_service.routes.sessions.programs import upgrade_required
from api_service.services import Caller, Services
from api_service.sessions.handshakes import visitor_of

router = APIRouter(prefix="/v1/ssh", tags=["sessions"])


@router.get("", summary="Connect to the SSH server", status_code=101, response_model=None, responses=problems(426, 503))
async def describe_ssh(caller: Caller) -> NoReturn:  # noqa: ARG001
    """Upgrade this request to a WebSocket whose binary messages are the bytes of an SSH connection.

    The SSH client authenticates inside, with a key or a certificate; its user name is the id or name of a job.
    """
    raise upgrade_required()


@router.websocket("")
async def ssh(socket: WebSocket) -> None:
    """Serve an SSH client until one side closes."""
    from api_service.sessions.ssh_transport import serve_ssh  # noqa: PLC0415 - see SshDoor

    services: Services = socket.app.state.services
    address = visitor_of(socket.scope, services).address or "unknown"
    client = socket.scope.get("client")
    connection = await services.ssh.connection((address, client[1] if client else 0))
    if connection is None:
        raise ProblemError(503, "too_many_clients", "The server has too many SSH clients. Try again in a minute.")
    await socket.accept()
    await serve_ssh(socket, connection)
