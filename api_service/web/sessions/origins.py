"""The origin of our pages.

Browsers send the session's cookie with a WebSocket whichever page opens it, so the page's origin is checked.
"""

from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.websockets import WebSocket

from api_service.problems import ProblemError
from api_service.web.sessions.cookies import Cookies

_SCHEMES = {"ws": "http", "wss": "https"}


def handshake_request(socket: WebSocket) -> Request:
    """The request that opens a WebSocket."""
    scheme = _SCHEMES.get(socket.scope["scheme"], socket.scope["scheme"])
    return Request({**socket.scope, "type": "http", "scheme": scheme})


def own_origin(request: Request, public_url: str | None) -> str:
    """The origin of the pages that a request comes to."""
    if public_url is not None:
        parts = urlsplit(public_url)
        return f"{parts.scheme}://{parts.netloc}".lower()
    scheme = "https" if Cookies.of(request, public_url).secure else "http"
    return f"{scheme}://{request.headers.get('host', '')}".lower()


def require_own_origin(request: Request, public_url: str | None) -> None:
    """Raises ProblemError (403) unless a page of exactly this server asks; every browser says which page it is."""
    given = request.headers.getlist("origin")
    if given != [own_origin(request, public_url)]:
        raise ProblemError(
            403,
            "from_elsewhere",
            "This was opened by another site, or a proxy hides the address of the page. If it is a "
            "proxy, ask an administrator to set GPU_DEV_WEB__PUBLIC_URL.",
        )
