"""One request for a page: the visitor, the time zone, and the answer."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from html import escape
from http import HTTPStatus
from secrets import token_urlsafe
from typing import Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

from starlette.requests import Request
from starlette.responses import Response

from api_service.problems import ProblemError
from api_service.services import Services
from api_service.web.calendar.shared_rows import CalendarReader
from api_service.web.fleet.fleet_reading import FleetReader
from api_service.web.fleet.node_markup import NodeMarkup
from api_service.web.fleet.node_selection import NodeSelections
from api_service.web.fleet.use_reading import UseReader
from api_service.web.forms.form import Form
from api_service.web.live import LiveTopics
from api_service.web.rendering import Templates, html
from api_service.web.rest_calls import RestCalls
from api_service.web.sessions import csrf
from api_service.web.sessions.cookies import Cookies, Notice, PageZone
from api_service.web.sessions.return_address import safe_return
from reservation_core.domain.time_words import rfc3339
from reservation_core.domain.wall_times import NoSuchLocalTimeError, in_zone
from reservation_core.ports.people.identities import Principal

FORM_KEY = "key"
"""The field of forms by which the server knows one that is sent twice; see RestCalls."""
FORM_PAGE = "page_of_form"
"""The field of forms on the answer to a refused one with the address of its page."""


@dataclass(frozen=True, slots=True)
class SignedInVisitor:
    """The signed-in user with their session's secret, and REST on their behalf."""

    principal: Principal
    secret: str
    rest: RestCalls


@dataclass(frozen=True, slots=True)
class Visit:
    """A request for a page. `form` was sent by POST from a page of ours.

    `position`: how far open pages had been notified when the request arrived, see live.py.
    """

    request: Request
    services: Services
    templates: Templates
    topics: LiveTopics
    position: str
    fleet: FleetReader
    uses: UseReader
    calendars: CalendarReader
    nodes: NodeMarkup
    selections: NodeSelections
    cookies: Cookies
    nonce: str
    zoned: PageZone
    now: datetime
    visitor: SignedInVisitor | None
    form: Form

    @property
    def zone(self) -> ZoneInfo:
        """The zone in which the page's times are shown and typed."""
        return self.zoned.zone

    @property
    def signed_in(self) -> SignedInVisitor:
        """The visitor. Not for routes that anybody may open."""
        if self.visitor is None:
            raise RuntimeError("nobody is signed in")
        return self.visitor

    @property
    def principal(self) -> Principal:
        return self.signed_in.principal

    @property
    def rest(self) -> RestCalls:
        """REST on the visitor's behalf."""
        return self.signed_in.rest

    def stream_place(self) -> AbstractContextManager[None]:
        """A place for one more stream of the visitor. Raises ProblemError (429) without a free one."""
        return self.services.page_streams.place(self.principal.user_id)

    @property
    def partial(self) -> bool:
        """Whether a script requests a part of the page."""
        return self.request.headers.get("hx-request") == "true" and "hx-boosted" not in self.request.headers

    def query(self, name: str, default: str = "") -> str:
        """A parameter of the address."""
        return self.request.query_params.get(name, default).strip()

    def path(self, name: str) -> str:
        """A part of the address, such as a job's id, percent-encoded for REST."""
        return quote(str(self.request.path_params[name]), safe="")

    def instant(self, typed: str) -> str:
        """A time as REST takes it; without an offset it is in the page's zone.

        Raises ProblemError (422) for other text, and for a time that clocks skip. Of two such times it is the first.
        """
        try:
            read = datetime.fromisoformat(typed)
        except ValueError as error:
            raise ProblemError(422, "invalid_request", "Write a day and a time, such as 2030-01-31 09:00.") from error
        try:
            return rfc3339(read if read.tzinfo is not None else in_zone(read, self.zone))
        except (NoSuchLocalTimeError, OverflowError) as error:
            raise ProblemError(422, "invalid_request", str(error)) from error

    @staticmethod
    def encoded(value: str) -> str:
        return quote(value, safe="")

    def page(self, template: str, *, title: str, status: int = 200, live: str = "", **context: Any) -> Response:
        """A whole page. `live`: its topics (see live.py), separated by spaces."""
        # A page that a script takes a part of must not use up the notice.
        notice = None if self.partial else self.cookies.notice(self.request)
        context |= {"title": title, "live": live, "notice": notice, "refused": status >= HTTPStatus.BAD_REQUEST}
        response = self._html(template, status, **context)
        if notice is not None:
            self.cookies.drop_notice(response)
        return response

    def part(self, template: str, status: int = 200, **context: Any) -> Response:
        return self._html(template, status, **context)

    def go(self, path: str, notice: str | None = None, *, warns: bool = False) -> Response:
        """Redirect to another page, with a sentence on what was done; `warns`: not all that was asked for was."""
        if self.partial:
            response = Response(status_code=204, headers={"HX-Redirect": path, "Cache-Control": "no-store"})
        else:
            response = Response(status_code=303, headers={"Location": path, "Cache-Control": "no-store"})
        if notice is not None:
            self.cookies.keep_notice(response, Notice(notice, warns=warns))
        return response

    def text(self, template: str, **context: Any) -> str:
        """A rendered template, with the values that every template may use; those of `context` come before them."""
        visitor = self.visitor
        context = {
            "me": None if visitor is None else visitor.principal,
            "position": self.position,
            "csrf": "" if visitor is None else csrf.made_for(visitor.secret),
            "nonce": self.nonce,
            "zone_chosen": self.zoned.chosen,
            "estimates": bool(self.services.settings.estimates),
            "may_load_again": self.request.method == "GET" and visitor is not None,
            "path": self.request.url.path,
            "address": self._address,
        } | context
        text = self.templates.text(template, zone=self.zone, now=self.now, **context)
        return _with_keys(text, context["csrf"], self._address if self.request.method == "POST" else "")

    @property
    def _address(self) -> str:
        """Where the page is found again: of an answer to a form, the page of that form, if the browser names it.

        A form on such an answer has that page as a field: the browser would name the address that answered.
        """
        url, page = self.request.url, None
        if self.request.method == "POST":
            sent_from = self.request.headers.get("referer", "")
            page = self.form.get(FORM_PAGE) or sent_from.partition(f"//{url.netloc}")[2]
        return safe_return(page) if page else url.path + (f"?{url.query}" if url.query else "")

    def _html(self, template: str, status: int, **context: Any) -> Response:
        return html(self.request, self.text(template, **context), nonce=self.nonce, status=status)


def _with_keys(text: str, csrf_token: str, page: str) -> str:
    """HTML in which every form has a key of this rendering, and its page if that has another address.

    So whoever wrote the form can't forget them.
    """
    if not csrf_token:
        return text
    token = f'<input type="hidden" name="{csrf.FIELD}" value="{csrf_token}">'
    added = f'<input type="hidden" name="{FORM_KEY}" value="{token_urlsafe(18)}">'
    if page:
        added += f'<input type="hidden" name="{FORM_PAGE}" value="{escape(page)}">'
    return text.replace(token, token + added)
