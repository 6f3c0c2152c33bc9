"""Dead letters: administrators list them and send them again."""

from typing import Annotated, assert_never

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from api_service.documents import problems, reads
from api_service.presenting import jobs_and_nodes
from api_service.requests import bodies
from api_service.requests.idempotency import Answer, once
from api_service.requests.pagination import DEFAULT_LIMIT, MAX_LIMIT
from api_service.services import Caller, Served
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.contracts.base import Page
from reservation_core.contracts.dead_letters import DeadLetterOut, Redrive, Redriven
from reservation_core.domain.event_kinds import SystemEventKind
from reservation_core.ports.queues import QueueName
from reservation_core.ports.wakeups import Channel
from reservation_core.usecases.people.users import require_admin

router = APIRouter(prefix="/v1/dead-letters", tags=["operators"])


class DeadLettersQuery(BaseModel):
    """Which dead letters to list."""

    model_config = ConfigDict(extra="forbid")

    queue: Annotated[QueueName, Field(description="The queue that they came from.")]
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT, description="How many at most.")] = DEFAULT_LIMIT


@router.get("", response_model=Page[DeadLetterOut], summary="List dead letters", responses=problems(403))
async def list_dead_letters(services: Served, caller: Caller, query: Annotated[DeadLettersQuery, Query()]) -> Response:
    """Administrators only: the oldest messages of a queue that could not be handled, with their last error."""
    require_admin(caller)
    async with services.runtime.uow() as uow:
        letters = await uow.queue.dead_letters(query.queue, query.limit)
    page = Page[DeadLetterOut](items=[jobs_and_nodes.dead_letter(letter) for letter in letters], next_cursor=None)
    return Response(page.model_dump_json(), media_type="application/json")


@router.post(
    "/{queue}/redrive",
    response_model=Redriven,
    summary="Send dead letters again",
    responses=problems(400, 403, 409, 413, 415),
    openapi_extra=reads(Redrive, required=False),
)
async def redrive(
    request: Request,
    services: Served,
    caller: Caller,
    queue: Annotated[QueueName, Path(description="The queue they belong to.")],
) -> Response:
    """Administrators only: send dead letters (all without `ids`) to their queue again."""
    require_admin(caller)
    body = await bodies.read_optional(request, Redrive, limit=services.settings.max_body_bytes)
    now = services.runtime.clock.now()

    async def act(uow: UnitOfWork) -> Answer:
        count = await uow.queue.redrive(queue, body.ids)
        await uow.events.append(
            actor=caller.user,
            kind=SystemEventKind.DEAD_LETTERS_REDRIVEN,
            at=now,
            subject=f"queue:{queue.value}",
            data={"count": count},
        )
        uow.wake(_channel(queue))
        return Answer(200, Redriven(count=count).model_dump_json().encode())

    return await once(request, caller, body.model_dump_json().encode(), services.runtime.uow, act)


def _channel(queue: QueueName) -> Channel:
    match queue:
        case QueueName.GPU_JOBS:
            return Channel.GPU_JOBS
        case QueueName.POD_OPERATIONS:
            return Channel.POD_OPERATIONS
        case QueueName.NOTIFICATIONS:
            return Channel.NOTIFICATIONS
        case _:
            assert_never(queue)
