"""The chain of the audit log: export it, check it, and note its head."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from api_service.documents import problems
from api_service.problems import ProblemError
from api_service.requests.pagination import PageQuery, decode, encode
from api_service.services import Caller, Served
from reservation_core.contracts.audit_log import ChainHeadOut, ChainLineOut
from reservation_core.contracts.base import Instant, Page
from reservation_core.usecases.history.audit_chain import (
    ChainStretch,
    chain_standing,
    read_chain,
    read_stretch,
    require_chain_reader,
)

router = APIRouter(prefix="/v1/events/chain", tags=["operators"])

_LIST = "chain"


class ChainQuery(PageQuery):
    """The links to list."""

    from_: Annotated[Instant | None, Field(alias="from", description="Only what was chained from this time on.")] = None
    to: Annotated[Instant | None, Field(description="Only what was chained before this time.")] = None


@router.get(
    "", response_model=Page[ChainLineOut], summary="Read the chain of the audit log", responses=problems(400, 403, 409)
)
async def list_links(services: Served, caller: Caller, query: Annotated[ChainQuery, Query()]) -> Response:
    """Administrators only: every event in the order of the chain, oldest first, with its digests. Events are chained
    some seconds after they are recorded. 409 `chain_trimmed`: retention has removed the first links of this page."""
    require_chain_reader(caller)
    if query.from_ is not None and query.to is not None and query.to <= query.from_:
        raise ProblemError(422, "bad_range", "The time must end after it begins. Ask for another time.")
    place = decode(_LIST, query.cursor, (int, int))
    async with services.runtime.uow() as uow:
        if place is None:
            stretch = await read_stretch(uow, query.from_, query.to)
        else:
            stretch = ChainStretch(after=int(place[0]), through=int(place[1]))
        found = await read_chain(uow, stretch, query.limit)
    rest = found.rest
    page = Page[ChainLineOut](
        items=[ChainLineOut.of(line) for line in found.lines],
        next_cursor=None if rest is None else encode(_LIST, (rest.after, rest.through)),
    )
    return Response(page.model_dump_json(), media_type="application/json")


@router.get("/head", response_model=ChainHeadOut, summary="Where the chain stands", responses=problems(403))
async def head(services: Served, caller: Caller) -> ChainHeadOut:
    """Administrators only: the newest digest of the audit log's chain. Note its position and digest elsewhere: anyone
    with write access to the database could rebuild the whole chain, but the noted digest would not be in it."""
    require_chain_reader(caller)
    async with services.runtime.uow() as uow:
        standing = await chain_standing(uow)
    link = standing.head.link
    return ChainHeadOut(
        position=link.position,
        digest=link.digest,
        event_id=link.event_id,
        chained_at=standing.head.chained_at,
        first_position=standing.first,
        unchained_since=standing.unchained_since,
    )
