"""Users, made by administrators; `disable_user` disables them."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TypeVar

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.errors import ForbiddenError, NameTakenError, NotFoundError
from reservation_core.domain.event_kinds import PeopleEventKind
from reservation_core.domain.similar_names import MOST_COMPARED, did_you_mean
from reservation_core.domain.statuses import Role
from reservation_core.ports.people.identities import Principal, UserRecord

T = TypeVar("T")

RESERVED_NAMES = frozenset({"me", "planner", "system"})
"""`me` is the caller in URLs; `system` and `planner` are actors in the audit log."""


def require_admin(principal: Principal) -> None:
    """Raises ForbiddenError for users who are not administrators."""
    if not principal.is_admin:
        raise ForbiddenError("Only administrators may do this. Ask one of them to do it for you.")


async def create(uow: UnitOfWork, principal: Principal, name: str, role: Role, now: datetime) -> UserRecord:
    """Create a user. Raises ForbiddenError, NameTakenError."""
    require_admin(principal)
    if name in RESERVED_NAMES:
        raise NameTakenError(f"{name!r} is reserved and can't be the name of a user; choose another name.")
    user = await uow.identities.create_user(name, role, now)
    await uow.events.append(
        actor=principal.user,
        kind=PeopleEventKind.USER_CREATED,
        at=now,
        subject=f"user:{name}",
        data={"role": role.value},
    )
    return user


async def enable(uow: UnitOfWork, principal: Principal, name: str) -> UserRecord:
    """Enable a disabled user; idempotent. Raises ForbiddenError, NotFoundError."""
    require_admin(principal)
    before = await uow.identities.user(name)
    user = await uow.identities.enable_user(name)
    if before is None or user is None:
        raise await unknown_user(uow, principal, name)
    if before.disabled_at is not None:
        await uow.events.append(
            actor=principal.user, kind=PeopleEventKind.USER_ENABLED, at=await uow.now(), subject=f"user:{name}", data={}
        )
    return user


async def find(uow: UnitOfWork, principal: Principal, name: str) -> UserRecord:
    """One user: the caller (also as `me`), or for administrators any. Raises NotFoundError."""
    wanted = principal.user if name == "me" else name
    if principal.is_admin or wanted == principal.user:
        user = await uow.identities.user(wanted)
        if user is not None:
            return user
    raise await unknown_user(uow, principal, name)


async def page(uow: UnitOfWork, principal: Principal, *, after: str | None, limit: int) -> list[UserRecord]:
    """All users by name. Raises ForbiddenError."""
    require_admin(principal)
    return await uow.identities.users(after=after, limit=limit)


async def list_visible(
    uow: UnitOfWork, principal: Principal, user: str | None, read: Callable[[int | None], Awaitable[list[T]]]
) -> list[T]:
    """`read` of the caller's id; for administrators of None (all users), or of the id of `user`.

    Raises NotFoundError for administrators who name no user.
    """
    if not principal.is_admin:
        return await read(principal.user_id) if user in (None, principal.user) else []
    if user is None:
        return await read(None)
    record = await uow.identities.user(user)
    if record is None:
        raise await unknown_user(uow, principal, user)
    return await read(record.id)


async def require_user(uow: UnitOfWork, principal: Principal, name: str | None) -> None:
    """Raise NotFoundError where a list is filtered by a user who does not exist."""
    if name is not None and await uow.identities.user(name) is None:
        raise await unknown_user(uow, principal, name)


async def unknown_user(uow: UnitOfWork, principal: Principal, name: str) -> NotFoundError:
    """The error of a missing user; for all but administrators the same as of one that the caller may not see."""
    if principal.is_admin:
        meant = await user_meant(uow, name)
        return NotFoundError(f"There is no user {name!r}.{meant} `gpu-dev users list` lists all users.")
    return NotFoundError(f"There is no user {name!r}, or you may not see this user. `gpu-dev users me` shows your own.")


async def user_to_add(uow: UnitOfWork, name: str) -> NotFoundError:
    """The error of a missing user whom an administrator has named, and may want to add."""
    meant = await user_meant(uow, name)
    return NotFoundError(f"There is no user {name!r}.{meant} `gpu-dev users add {name}` adds a user of this name.")


async def user_meant(uow: UnitOfWork, name: str) -> str:
    """The sentence that suggests the name of a user: for administrators, who see all names."""
    return did_you_mean(name, [user.name for user in await uow.identities.users(after=None, limit=MOST_COMPARED)])
