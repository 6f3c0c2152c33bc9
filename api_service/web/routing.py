"""The routes of pages."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from starlette.responses import Response
from starlette.websockets import WebSocket

from api_service.services import Services
from api_service.web.visit import Visit

Handler = Callable[[Visit], Awaitable[Response]]
SocketHandler = Callable[[WebSocket, Services], Awaitable[None]]


class PageAccess(StrEnum):
    """Visitors who may open a page."""

    ANYBODY = "anybody"
    SIGNED_IN = "signed_in"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class WebRoute:
    """`needs_fresh_page`: refuse forms of pages that are older than the session, and those of other sites by a token.

    Without it, the browser's word on the sender is all: for what harms nobody.
    `part_of`: the page that scripts request this part of; a browser that opens the part is led there.
    """

    method: str
    path: str
    handler: Handler
    access: PageAccess = PageAccess.SIGNED_IN
    needs_fresh_page: bool = True
    part_of: str | None = None


@dataclass(frozen=True, slots=True)
class SocketRoute:
    """A WebSocket of our pages. The caller is signed in, and the page that opens it is ours."""

    path: str
    handler: SocketHandler
