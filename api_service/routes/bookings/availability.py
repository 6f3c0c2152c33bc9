"""When GPUs are free: slots for a request, and counts over time."""

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from starlette.responses import Response

from api_service.documents import problems
from api_service.presenting import bookings
from api_service.requests.pagination import PageQuery, decode, encode
from api_service.services import Served
from reservation_core.contracts.base import MAX_GPUS_PER_NODE, MAX_NODES, Duration, GpuTypeName, Instant, Page
from reservation_core.contracts.bookings import Availability, FreeSlotOut, NodeName
from reservation_core.domain.bookings.asked_slots import FARTHEST_START
from reservation_core.domain.bookings.nouns import FreeSlot, Wanted
from reservation_core.domain.calendar import to_micros
from reservation_core.usecases.bookings.find_slots import find_slots, free_over_time

router = APIRouter(prefix="/v1", tags=["bookings"])

_LIST = "slots"
_MINUTE = timedelta(minutes=1)


def _written_seconds(value: object) -> object:
    """Read seconds written as text, as every query parameter is."""
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) <= 9 else value


QueryDuration = Annotated[Duration, BeforeValidator(_written_seconds, json_schema_input_type=int | str)]


def _check_times(start: datetime | None, end: datetime | None) -> None:
    if start is not None and end is not None:
        if end <= start:
            raise ValueError("The time must end after it begins")
        if end - start > FARTHEST_START:
            raise ValueError(f"The time must end at most {FARTHEST_START.days} days after it begins")


class SlotsQuery(PageQuery):
    """The size and the period of the slots to find."""

    gpus: Annotated[int, Field(ge=1, le=MAX_GPUS_PER_NODE, description="How many on each node.")]
    gpu_type: GpuTypeName | None = None
    nodes: Annotated[int, Field(ge=1, le=MAX_NODES)] = 1
    node: NodeName | None = None
    duration: QueryDuration
    from_: Annotated[Instant | None, Field(alias="from", description="By default the next minute.")] = None
    to: Annotated[Instant | None, Field(description="By default 30 days after `from`.")] = None

    @model_validator(mode="after")
    def _hangs_together(self) -> "SlotsQuery":
        _check_times(self.from_, self.to)
        if self.duration % _MINUTE:
            raise ValueError("`duration` must be whole minutes")
        if self.node is not None and self.nodes > 1:
            raise ValueError("`node` names one node: leave it out with `nodes` greater than 1")
        return self


class AvailabilityQuery(BaseModel):
    """The period, and the length of its steps."""

    model_config = ConfigDict(extra="forbid")

    from_: Annotated[Instant | None, Field(alias="from", description="By default this minute.")] = None
    to: Annotated[Instant | None, Field(description="By default 7 days after `from`.")] = None
    step: Annotated[QueryDuration, Field(ge=_MINUTE)] = timedelta(hours=1)

    @model_validator(mode="after")
    def _hangs_together(self) -> "AvailabilityQuery":
        _check_times(self.from_, self.to)
        if self.step % _MINUTE:
            raise ValueError("`step` must be whole minutes")
        return self


@router.get("/bookings/slots", response_model=Page[FreeSlotOut], summary="Find free slots", responses=problems(400))
async def list_slots(services: Served, query: Annotated[SlotsQuery, Query()]) -> Response:
    """Every time at which the request fits into the calendar, as ranges of starts, the earliest first.

    The policy is not checked; POST /v1/policy/explain checks it.
    """
    after = decode(_LIST, query.cursor, (int, str))
    wanted = Wanted(query.gpus, query.nodes, query.gpu_type, query.node)
    found = await services.reads(lambda uow: find_slots(uow, wanted, query.duration, query.from_, query.to))
    if after is not None:
        found = [slot for slot in found if _key(slot) > after]
    shown = found[: query.limit]
    page = Page[FreeSlotOut](
        items=[bookings.free_slot(slot) for slot in shown],
        next_cursor=encode(_LIST, _key(shown[-1])) if len(found) > query.limit else None,
    )
    return Response(page.model_dump_json(), media_type="application/json")


@router.get("/availability", response_model=Availability, summary="Free GPUs over time", responses=problems())
async def get_availability(
    services: Served,
    query: Annotated[AvailabilityQuery, Query()],
) -> Response:
    """How many GPUs of each type can be booked for the whole of each step; slots of waiting jobs are not free."""
    found = await services.reads(lambda uow: free_over_time(uow, query.from_, query.to, query.step))
    return Response(bookings.availability(found).model_dump_json(), media_type="application/json")


def _key(slot: FreeSlot) -> tuple[int, str]:
    return to_micros(slot.span.start), slot.gpu_type
