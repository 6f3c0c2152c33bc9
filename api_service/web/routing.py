"""The routes of pages."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from starlette.responses import Response

from api_service.web.visit import Visit

Handler = Callable[[Visit], Awaitable[Response]]


class PageAccess(StrEnum):
    """Visitors who may open a page."""

    ANYBODY = "anybody"
    SIGNED_IN = "signed_in"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class WebRoute:
    method: str
    path: str
    handler: Handler
    access: PageAccess = PageAccess.SIGNED_IN
