"""One request for a page: who asks, from which zone, and how it is answered."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from secrets import token_urlsafe
from typing import Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

from starlette.requests import Request
from starlette.responses import Response

from api_service.problems import ProblemError
from api_service.services import Services
from api_service.web.fleet.fleet_reading import FleetReader
from api_service.web.fleet.node_markup import NodeMarkup
from api_service.web.forms.form import Form
from api_service.web.live import LiveTopics
from api_service.web.rendering import Templates, html
from api_service.web.rest_calls import RestCalls
from api_service.web.sessions import csrf
from api_service.web.sessions.cookies import Cookies
from reservation_core.ports.people.identities import Principal


@dataclass(frozen=True, slots=True)
class SignedInVisitor:
    """The signed-in user, with what they may do, and their session's secret."""

    principal: Principal
    secret: str
    rest: RestCalls


@dataclass(frozen=True, slots=True)
class Visit:
    """A request for a page. `form` is what was sent by POST, known to be from a page of ours.

    `position`: how far open pages were told of changes when the request came, see live.py.
    """

    request: Request
    services: Services
    templates: Templates
    topics: LiveTopics
    position: str
    fleet: FleetReader
    nodes: NodeMarkup
    cookies: Cookies
    nonce: str
    zone: ZoneInfo
    now: datetime
    visitor: SignedInVisitor | None
    form: Form

    @property
    def signed_in(self) -> SignedInVisitor:
        """The signed-in visitor. Routes for anybody must not ask."""
        if self.visitor is None:
            raise RuntimeError("nobody is signed in")
        return self.visitor

    @property
    def principal(self) -> Principal:
        """The principal of the visitor."""
        return self.signed_in.principal

    @property
    def rest(self) -> RestCalls:
        """REST, as whoever asks."""
        return self.signed_in.rest

    def stream_place(self) -> AbstractContextManager[None]:
        """For one more stream of whoever asks. Raises ProblemError (429) where there is no place left."""
        return self.services.page_streams.place(self.principal.user_id)

    @property
    def partial(self) -> bool:
        """Whether a part of the page is asked for by its scripts, not a whole page."""
        return self.request.headers.get("hx-request") == "true" and "hx-boosted" not in self.request.headers

    def query(self, name: str, default: str = "") -> str:
        """A parameter of the address."""
        return self.request.query_params.get(name, default).strip()

    def path(self, name: str) -> str:
        """A part of the address, such as a job's id, encoded for an address of REST."""
        return quote(str(self.request.path_params[name]), safe="")

    def instant(self, typed: str) -> str:
        """A time as REST takes it: without an offset it is one of the zone that the page shows.

        Raises ProblemError (422) for what is none.
        """
        try:
            read = datetime.fromisoformat(typed)
        except ValueError as error:
            raise ProblemError(422, "invalid_request", "Write times like 2030-01-31T09:00.") from error
        return (read if read.tzinfo is not None else read.replace(tzinfo=self.zone)).isoformat()

    @staticmethod
    def encoded(value: str) -> str:
        """A word for an address of REST."""
        return quote(value, safe="")

    def page(self, template: str, *, title: str, status: int = 200, live: str = "", **context: Any) -> Response:
        """A whole page. `live`: the topics (see live.py) that its parts wait for, with spaces between."""
        # A page of which a script takes a part shows no notice: it is for the one that somebody is led to.
        notice = None if self.partial else self.cookies.told(self.request)
        response = self._html(template, status, title=title, live=live, notice=notice, **context)
        if notice is not None:
            self.cookies.was_told(response)
        return response

    def part(self, template: str, status: int = 200, **context: Any) -> Response:
        """A part of a page."""
        return self._html(template, status, **context)

    def go(self, path: str, notice: str | None = None) -> Response:
        """Lead to another page, with a sentence on what was done."""
        if self.partial:
            response = Response(status_code=204, headers={"HX-Redirect": path, "Cache-Control": "no-store"})
        else:
            response = Response(status_code=303, headers={"Location": path, "Cache-Control": "no-store"})
        if notice is not None:
            self.cookies.tell(response, notice)
        return response

    def text(self, template: str, **context: Any) -> str:
        """A template, with what every template may use."""
        visitor = self.visitor
        context |= {
            "me": None if visitor is None else visitor.principal,
            "position": self.position,
            "csrf": "" if visitor is None else csrf.made_for(visitor.secret),
            "key": token_urlsafe(18),  # of whatever a form of this page makes: sent twice it is made once
            "nonce": self.nonce,
            "path": self.request.url.path,
            "address": self.request.url.path + (f"?{self.request.url.query}" if self.request.url.query else ""),
        }
        return self.templates.text(template, zone=self.zone, now=self.now, **context)

    def _html(self, template: str, status: int, **context: Any) -> Response:
        return html(self.request, self.text(template, **context), nonce=self.nonce, status=status)
