"""The first administrator and the file with their token."""

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.event_kinds import PeopleEventKind
from reservation_core.domain.statuses import Role
from reservation_core.ports.ids import IdSource
from reservation_core.ports.people.identities import UserRecord

ADMINISTRATOR = "admin"
_TOKEN_NAME = "the server's admin-token file"  # noqa: S105 - a name, not a secret


@dataclass(frozen=True, slots=True)
class AdminToken:
    """The token's file. `made`: the token is new."""

    path: Path
    made: bool


async def ensure_admin_token(uow_factory: UnitOfWorkFactory, ids: IdSource, home: Path, now: datetime) -> AdminToken:
    """Make `<home>/admin-token` hold a valid administrator's token, readable only by the file's owner.

    A valid token stays; else the user `admin` gets a new one. Raises PermissionError if that user is disabled or is no
    administrator.
    """
    path = home / "admin-token"
    secret = _read(path)
    async with uow_factory() as uow:
        if secret is not None:
            principal = await uow.identities.principal(ids.digest(secret), now)
            if principal is not None and principal.is_admin:
                path.chmod(0o600)
                return AdminToken(path, made=False)
        user = await uow.identities.user(ADMINISTRATOR) or await _create(uow, now)
        if user.disabled_at is not None or user.role is not Role.ADMIN:
            raise PermissionError(
                f"{path} holds no valid token, and the user {ADMINISTRATOR!r} is disabled or no administrator. "
                "Put another administrator's token into that file."
            )
        fresh, token_id = ids.new_secret(), ids.new_id("tok")
        await uow.identities.create_token(token_id, user.id, _TOKEN_NAME, ids.digest(fresh), None, now)
        await uow.events.append(
            actor="system", kind=PeopleEventKind.TOKEN_CREATED, at=now, subject=token_id, data={"user": user.name}
        )
        # Before the commit: a file whose token was never stored is replaced at the next start, but a stored token
        # without a file would stay for ever.
        _write(path, fresh)
    return AdminToken(path, made=True)


async def _create(uow: UnitOfWork, now: datetime) -> UserRecord:
    user = await uow.identities.create_user(ADMINISTRATOR, Role.ADMIN, now)
    data = {"role": Role.ADMIN.value}
    await uow.events.append(
        actor="system", kind=PeopleEventKind.USER_CREATED, at=now, subject=f"user:{user.name}", data=data
    )
    return user


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip() or None
    except FileNotFoundError:
        return None


def _write(path: Path, secret: str) -> None:
    """Replace the file in one step, private from its first byte on."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "w", encoding="ascii") as file:
        file.write(f"{secret}\n")
    fresh.replace(path)
