"""Search jobs, bookings, nodes and users."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from api_service.documents import problems
from api_service.services import Caller, Served
from reservation_core.contracts.base import Line, SearchHit, SearchResult
from reservation_core.usecases.search import search

router = APIRouter(prefix="/v1/search", tags=["search"])

_OF_A_KIND = 8
_MOST_OF_A_KIND = 50
_LONGEST = 100


class SearchQuery(BaseModel):
    """What to search for."""

    model_config = ConfigDict(extra="forbid")

    q: Annotated[
        Line,
        Field(
            min_length=1,
            max_length=_LONGEST,
            pattern=r"\S",
            description="A part of a name, or the beginning of an id, with or without `job-` or `bkg-`.",
        ),
    ]
    limit: Annotated[int, Field(ge=1, le=_MOST_OF_A_KIND, description="How many of a kind at most.")] = _OF_A_KIND


@router.get("", response_model=SearchResult, summary="Search", responses=problems(400))
async def find_things(services: Served, caller: Caller, query: Annotated[SearchQuery, Query()]) -> Response:
    """Your jobs, those shared with you, your bookings and the nodes that match, best first; for administrators
    everybody's, and users. Searched are jobs that are not over (the newest 20,000), the newest 500 of each status of
    the others, and the last 1,000 that were shared with you; of bookings the first 500 of each open status and the last
    500 of each final one, by their start; and the job or booking of just this id.
    """
    found = await services.reads(lambda uow: search(uow, caller, query.q.strip(), query.limit))
    result = SearchResult(
        items=[
            SearchHit(
                kind=thing.kind,
                id=thing.id,
                name=thing.name,
                status=thing.status,
                user=thing.user,
                start=thing.starts_at,
            )
            for thing in found
        ]
    )
    return Response(result.model_dump_json(), media_type="application/json")
