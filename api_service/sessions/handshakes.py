"""What all WebSockets into jobs share before they are accepted: the query, the visitor, and refusals in words."""

from collections.abc import Mapping
from typing import Any, TypeVar

import structlog
from pydantic import BaseModel, ValidationError
from starlette.websockets import WebSocket

from api_service.problems import ProblemError, of_validation
from api_service.requests import headers
from api_service.services import Services
from api_service.sessions.channels import SUBPROTOCOLS
from reservation_core.domain.network.client_addresses import address_of_client, trusted_networks
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.sessions.pod_streams import NoTerminalError, PodNotReachableError, PortClosedError
from reservation_core.usecases.sessions.enter import Visitor

M = TypeVar("M", bound=BaseModel)
_log = structlog.get_logger(__name__)


def read_query(socket: WebSocket, model: type[M], *, repeated: str = "") -> M:
    """The parameters of the address; `repeated` is the name of a list. Raises ProblemError (422)."""
    given: dict[str, Any] = dict(socket.query_params)
    if repeated:
        given[repeated] = socket.query_params.getlist(repeated)
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise of_validation(error) from error


def subprotocol_of(socket: WebSocket) -> str:
    """The newest subprotocol that both sides know. Raises ProblemError (400)."""
    offered = socket.scope["subprotocols"]
    for known in SUBPROTOCOLS:
        if known in offered:
            return known
    detail = f"Offer the subprotocol {SUBPROTOCOLS[0]} (Sec-WebSocket-Protocol) when you open the WebSocket."
    raise ProblemError(400, "bad_subprotocol", detail)


def visitor_of(scope: Mapping[str, Any], services: Services) -> Visitor:
    """The caller, and where the caller is."""
    principal: Principal = scope["principal"]
    return Visitor(principal.user_id, principal.user, principal.token_id, address_of(scope, services))


def address_of(scope: Mapping[str, Any], services: Services) -> str | None:
    """Where a client is, also behind trusted proxies."""
    trusted = trusted_networks(services.settings.trusted_proxies)
    client = scope.get("client")
    return address_of_client(client[0] if client else None, headers.values(scope, b"x-forwarded-for"), trusted)


Refused = PodNotReachableError | PortClosedError | NoTerminalError | ClusterUnavailableError


def refusal(error: Refused) -> ProblemError:
    """The problem of a job that can't be entered in this way now: 409, or 503 where it's the cluster's fault."""
    match error:
        case ClusterUnavailableError():
            _log.warning("session_not_opened", error=str(error))
            detail = "The job can't be entered now: its node or the cluster does not answer. Try again in a moment."
            return ProblemError(503, "cluster_unavailable", detail, headers={"Retry-After": "2"})
        case PortClosedError():
            code = "port_closed"
        case NoTerminalError():
            code = "no_terminal"
        case PodNotReachableError():
            code = "job_not_reachable"
    return ProblemError(409, code, str(error))
