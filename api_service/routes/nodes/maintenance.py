"""Maintenance windows: administrators take GPUs out of use for a time."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field
from starlette.background import BackgroundTask
from starlette.responses import Response

from api_service.documents import answers, problems, reads
from api_service.presenting import maintenance
from api_service.requests import bodies
from api_service.requests.idempotency import Answer, once
from api_service.requests.pagination import PageQuery, decode, encode
from api_service.services import Caller, Served
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.contracts.base import Page
from reservation_core.contracts.maintenance import MaintenanceCreate, MaintenanceOut
from reservation_core.domain.bookings.maintenance import Window
from reservation_core.domain.errors import CalendarConflictError
from reservation_core.usecases.nodes.maintenance import end_window, plan_window, preview_window, view_window
from reservation_core.usecases.repeat_lost_transactions import repeat_lost

router = APIRouter(prefix="/v1/maintenance", tags=["operators"])

WindowId = Annotated[str, Path(pattern="^mnt-[0-9a-z]{1,32}$", description="A window's id.", examples=["mnt-7f3k9q2m"])]
_LIST = "maintenance"
_TRIES = 3


class WindowsQuery(PageQuery):
    """Which windows to list."""

    open: Annotated[bool, Field(description="Only those that are ahead or open.")] = False


@router.post(
    "",
    status_code=201,
    response_model=MaintenanceOut,
    summary="Plan maintenance",
    responses=answers(201, "Planned: these GPUs are out of use in that time.")
    | {200: {"model": MaintenanceOut, "description": "The effect that it would have (`dry_run`); nothing has changed."}}
    | problems(400, 403, 404, 409, 413, 415),
    openapi_extra=reads(MaintenanceCreate),
)
async def plan(request: Request, services: Served, caller: Caller) -> Response:
    """Administrators only. Bookings move to other GPUs if possible, and are cut or cancelled if not; owners of running
    jobs are notified, and the jobs end before the window; waiting jobs are planned again."""
    body = await bodies.read(request, MaintenanceCreate, limit=services.settings.max_body_bytes)
    runtime, grace = services.runtime, services.settings.turnaround
    if body.dry_run:
        found = await repeat_lost(lambda: preview_window(runtime.uow, caller, body, runtime.ids, grace))
        shown = maintenance.window(found, caller, planned_only=True)
        return Response(shown.model_dump_json(), media_type="application/json")

    async def act(uow: UnitOfWork) -> Answer:
        made = await plan_window(uow, caller, body, runtime.ids, grace)
        answer = maintenance.window(made, caller).model_dump_json().encode()
        return Answer(201, answer, location=f"/v1/maintenance/{made.id}")

    for left in reversed(range(_TRIES)):
        try:
            return await once(request, caller, body.model_dump_json().encode(), runtime.uow, act)
        except CalendarConflictError:
            # A booking was made at the same moment: the next attempt sees and moves it.
            if not left:
                raise
    raise LookupError("no try was made")


@router.get("", response_model=Page[MaintenanceOut], summary="List maintenance", responses=problems(400))
async def list_windows(services: Served, caller: Caller, query: Annotated[WindowsQuery, Query()]) -> Response:
    """Windows, newest first. Administrators see all affected users, others only whether they are affected."""
    after = decode(_LIST, query.cursor, (int,))
    async with services.runtime.uow() as uow:
        found = await uow.maintenance.views(
            limit=query.limit + 1, before_seq=None if after is None else int(after[0]), open_only=query.open
        )
    shown = found[: query.limit]
    page = Page[MaintenanceOut](
        items=[maintenance.window(window, caller) for window in shown],
        next_cursor=encode(_LIST, (shown[-1].seq,)) if len(found) > query.limit else None,
    )
    return Response(page.model_dump_json(), media_type="application/json")


@router.get("/{window_id}", response_model=MaintenanceOut, summary="Look at maintenance", responses=problems(404))
async def get_window(services: Served, caller: Caller, window_id: WindowId) -> Response:
    """One window."""
    async with services.runtime.uow() as uow:
        found = await view_window(uow, window_id)
    return Response(maintenance.window(found, caller).model_dump_json(), media_type="application/json")


@router.delete(
    "/{window_id}",
    response_model=MaintenanceOut,
    summary="End maintenance",
    responses=problems(403, 404, 409),
)
async def end(services: Served, caller: Caller, window_id: WindowId) -> Response:
    """Administrators only. Cancel a window, or end it early: its GPUs are available at once. Bookings and jobs that it
    moved, cut or ended stay so."""

    async def act() -> Window:
        async with services.runtime.uow() as uow:
            return await end_window(uow, caller, window_id)

    return Response(
        maintenance.window(await repeat_lost(act), caller).model_dump_json(),
        media_type="application/json",
        background=BackgroundTask(services.serve_waitlist),
    )
