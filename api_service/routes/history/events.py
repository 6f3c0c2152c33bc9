"""The audit log: who did what to what, when and why."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from api_service.access.sight import sight_of
from api_service.documents import problems
from api_service.presenting import jobs_and_nodes
from api_service.problems import ProblemError
from api_service.requests.pagination import Key, PageQuery, decode, encode, moment_of
from api_service.services import Caller, Served
from reservation_core.contracts.audit_log import Actor, EventOut, KindText, Subject
from reservation_core.contracts.base import Instant, Page
from reservation_core.domain.calendar import to_micros
from reservation_core.ports.history.audit import EventFilter, EventOrder, Place
from reservation_core.usecases.history.audit import read_record

router = APIRouter(prefix="/v1/events", tags=["operators"])

_LISTS = {EventOrder.NEWEST_FIRST: "events", EventOrder.OLDEST_FIRST: "events, oldest first"}
"""The names in cursors: one is good for its order alone."""


class EventsQuery(PageQuery):
    """Which events to list."""

    kind: Annotated[
        list[KindText] | None, Field(max_length=16, description="Only these kinds; may be given several times.")
    ] = None
    actor: Annotated[Actor | None, Field(description="Only what this user did; `system` is the server.")] = None
    subject: Annotated[
        Subject | None,
        Field(description="Only what is about this: an id, a node, or `user:NAME`, `project:NAME`, `policy:SCOPE`."),
    ] = None
    from_: Annotated[Instant | None, Field(alias="from", description="Only from this time on.")] = None
    to: Annotated[Instant | None, Field(description="Only before this time.")] = None
    order: Annotated[EventOrder, Field(description="Whether the newest or the oldest come first.")] = (
        EventOrder.NEWEST_FIRST
    )


@router.get("", response_model=Page[EventOut], summary="Read the audit log", responses=problems(400, 403, 404))
async def list_events(services: Served, caller: Caller, query: Annotated[EventsQuery, Query()]) -> Response:
    """Every change of state or policy, newest first unless `order` is `oldest`. Administrators see all events; others
    must name a `subject` of their own. A page may be short, or empty, and have a `next_cursor`: one request searches a
    bounded part."""
    if query.from_ is not None and query.to is not None and query.to <= query.from_:
        raise ProblemError(422, "bad_range", "The time must end after it begins. Ask for another time.")
    which = EventFilter(
        kinds=None if query.kind is None else frozenset(query.kind),
        actor=query.actor,
        subject=query.subject,
        from_=query.from_,
        to=query.to,
    )
    listed = _LISTS[query.order]
    behind = _place(decode(listed, query.cursor, (int, int)))
    async with services.runtime.uow() as uow:
        found = await read_record(uow, caller, which, order=query.order, behind=behind, limit=query.limit)
        sight = await sight_of(uow, caller, services.settings.holders)
    next_place = found.goes_on_behind
    page = Page[EventOut](
        items=[jobs_and_nodes.audit_event(event, sight) for event in found.events],
        next_cursor=None if next_place is None else encode(listed, (to_micros(next_place[0]), next_place[1])),
    )
    return Response(page.model_dump_json(), media_type="application/json")


def _place(key: Key | None) -> Place | None:
    return None if key is None else (moment_of(key[0]), int(key[1]))
