"""Projects and their members."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from api_service.documents import answers, problems, reads
from api_service.presenting import policy
from api_service.requests import bodies
from api_service.requests.idempotency import Answer, once
from api_service.requests.pagination import PageQuery, decode, encode
from api_service.services import Caller, Served
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.contracts.base import Page, UserName
from reservation_core.contracts.policy import ProjectCreate, ProjectOut
from reservation_core.ports.policy.policies import Project
from reservation_core.usecases.people.users import require_admin
from reservation_core.usecases.policy import projects

router = APIRouter(prefix="/v1/projects", tags=["projects"])

ProjectInPath = Annotated[
    str,
    Path(pattern="^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$", description="A project's name.", examples=["vision"]),
]
UserInPath = Annotated[UserName, Path(description="A user's name.", examples=["ann"])]
_LIST = "projects"


@router.post(
    "",
    status_code=201,
    response_model=ProjectOut,
    summary="Create a project",
    responses=answers(201, "The project.") | problems(400, 403, 409, 413, 415),
    openapi_extra=reads(ProjectCreate),
)
async def create_project(request: Request, services: Served, caller: Caller) -> Response:
    """Administrators only. Add members next."""
    require_admin(caller)
    body = await bodies.read(request, ProjectCreate, limit=services.settings.max_body_bytes)
    now = services.runtime.clock.now()

    async def act(uow: UnitOfWork) -> Answer:
        made = await projects.create(uow, caller, body.name, body.title, now)
        return Answer(201, policy.project(made).model_dump_json().encode())

    return await once(request, caller, body.model_dump_json().encode(), services.runtime.uow, act)


@router.get("", response_model=Page[ProjectOut], summary="List projects", responses=problems(400))
async def list_projects(services: Served, caller: Caller, query: Annotated[PageQuery, Query()]) -> Response:
    """Your projects by name; for administrators all."""
    key = decode(_LIST, query.cursor, (str,))
    async with services.runtime.uow() as uow:
        found = await projects.page(uow, caller, after=None if key is None else str(key[0]), limit=query.limit + 1)
    page = found[: query.limit]
    shown = Page[ProjectOut](
        items=[policy.project(project) for project in page],
        next_cursor=encode(_LIST, (page[-1].name,)) if len(found) > query.limit else None,
    )
    return Response(shown.model_dump_json(), media_type="application/json")


@router.get("/{project}", response_model=ProjectOut, summary="Look at a project", responses=problems(404))
async def get_project(services: Served, caller: Caller, project: ProjectInPath) -> Response:
    """One of your projects; for administrators any."""
    async with services.runtime.uow() as uow:
        return _answer(await projects.find(uow, caller, project))


@router.delete("/{project}", response_model=ProjectOut, summary="End a project", responses=problems(403, 404))
async def delete_project(services: Served, caller: Caller, project: ProjectInPath) -> Response:
    """Administrators only. Its rules are deleted with it; its usage stays in reports."""
    async with services.runtime.uow() as uow:
        found = await projects.delete(uow, caller, project, services.runtime.clock.now())
    services.policy.forget()
    return _answer(found)


@router.put(
    "/{project}/members/{user}", response_model=ProjectOut, summary="Add a member", responses=problems(403, 404)
)
async def add_member(services: Served, caller: Caller, project: ProjectInPath, user: UserInPath) -> Response:
    """Administrators only. A repetition changes nothing."""
    async with services.runtime.uow() as uow:
        return _answer(await projects.add_member(uow, caller, project, user, services.runtime.clock.now()))


@router.delete(
    "/{project}/members/{user}", response_model=ProjectOut, summary="Remove a member", responses=problems(403, 404)
)
async def remove_member(services: Served, caller: Caller, project: ProjectInPath, user: UserInPath) -> Response:
    """Administrators only. The user's jobs and bookings for the project go on."""
    async with services.runtime.uow() as uow:
        return _answer(await projects.remove_member(uow, caller, project, user, services.runtime.clock.now()))


def _answer(project: Project) -> Response:
    return Response(policy.project(project).model_dump_json(), media_type="application/json")
