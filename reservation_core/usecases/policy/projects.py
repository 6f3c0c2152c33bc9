"""Projects: administrators create them and manage their members; members see them."""

from datetime import datetime

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.errors import NotFoundError
from reservation_core.domain.event_kinds import PeopleEventKind
from reservation_core.domain.similar_names import MOST_COMPARED, did_you_mean
from reservation_core.ports.people.identities import Principal, UserRecord
from reservation_core.ports.policy.policies import Project
from reservation_core.usecases.people.users import require_admin, user_to_add
from reservation_core.usecases.policy.change_policy import forget_project


async def create(uow: UnitOfWork, principal: Principal, name: str, title: str | None, now: datetime) -> Project:
    """Create a project without members. Raises ForbiddenError, NameTakenError."""
    require_admin(principal)
    project = await uow.projects.create(name, title, now)
    await uow.events.append(
        actor=principal.user, kind=PeopleEventKind.PROJECT_CREATED, at=now, subject=f"project:{name}"
    )
    return project


async def find(uow: UnitOfWork, principal: Principal, name: str) -> Project:
    """A project of the caller; for administrators any. Raises NotFoundError."""
    project = await uow.projects.get(name)
    if project is None or not (principal.is_admin or principal.user in project.members):
        known = await page(uow, principal, after=None, limit=MOST_COMPARED)
        meant = did_you_mean(name, [one.name for one in known])
        raise NotFoundError(f"You have no project {name!r}.{meant} `gpu-dev projects list` shows yours.")
    return project


async def page(uow: UnitOfWork, principal: Principal, *, after: str | None, limit: int) -> list[Project]:
    """The caller's projects by name; for administrators all."""
    return await uow.projects.page(None if principal.is_admin else principal.user_id, after=after, limit=limit)


async def delete(uow: UnitOfWork, principal: Principal, name: str, now: datetime) -> Project:
    """Delete a project with its rules; its usage stays under its name. Raises ForbiddenError, NotFoundError."""
    require_admin(principal)
    project = await find(uow, principal, name)
    await uow.projects.delete(name)
    await forget_project(uow, principal.user, name, now)
    await uow.events.append(
        actor=principal.user,
        kind=PeopleEventKind.PROJECT_DELETED,
        at=now,
        subject=f"project:{name}",
        data={"members": list(project.members)},
    )
    return project


async def add_member(uow: UnitOfWork, principal: Principal, name: str, user: str, now: datetime) -> Project:
    """Add a member; idempotent. Raises ForbiddenError, NotFoundError."""
    require_admin(principal)
    await find(uow, principal, name)
    if await uow.projects.add_member(name, (await _user(uow, user)).id):
        await _record(uow, principal, PeopleEventKind.PROJECT_MEMBER_ADDED, name, user, now)
    return await find(uow, principal, name)


async def remove_member(uow: UnitOfWork, principal: Principal, name: str, user: str, now: datetime) -> Project:
    """Remove a member, whose jobs for the project go on. Raises ForbiddenError, NotFoundError."""
    require_admin(principal)
    await find(uow, principal, name)
    if not await uow.projects.remove_member(name, (await _user(uow, user)).id):
        raise NotFoundError(f"{user!r} is not in {name}. `gpu-dev projects list` shows who is.")
    await _record(uow, principal, PeopleEventKind.PROJECT_MEMBER_REMOVED, name, user, now)
    return await find(uow, principal, name)


async def _user(uow: UnitOfWork, name: str) -> UserRecord:
    user = await uow.identities.user(name)
    if user is None:
        raise await user_to_add(uow, name)
    return user


async def _record(
    uow: UnitOfWork, principal: Principal, kind: PeopleEventKind, project: str, user: str, now: datetime
) -> None:
    await uow.events.append(actor=principal.user, kind=kind, at=now, subject=f"project:{project}", data={"user": user})
