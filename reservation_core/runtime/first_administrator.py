"""The first administrator of a database, with a token chosen by the installer."""

from datetime import datetime
from pathlib import Path

from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.domain.event_kinds import PeopleEventKind
from reservation_core.domain.statuses import Role
from reservation_core.ports.ids import IdSource
from reservation_core.runtime.settings.error import SettingsError

ADMINISTRATOR = "admin"
_TOKEN_NAME = "the installation's first token"  # noqa: S105 -- a name, not a secret
_SHORTEST, _LONGEST = 32, 512


def read_token(path: Path) -> str:
    """Read the token in a file, without its newline. Raises SettingsError, without showing the token."""
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"The administrator's token can't be read from {path}. Put one line of ASCII there.") from (
            error
        )
    if not _SHORTEST <= len(token) <= _LONGEST or not token.isprintable() or " " in token:
        raise SettingsError(
            f"{path} holds no token: a token has {_SHORTEST} to {_LONGEST} characters without spaces."
            " Make one with `openssl rand -hex 32`."
        )
    return token


async def ensure_first_administrator(uow_factory: UnitOfWorkFactory, ids: IdSource, token: str, now: datetime) -> bool:
    """Create the user `admin` with this token, unless the user exists; returns whether it was created.

    A token that was revoked later stays revoked.
    """
    async with uow_factory() as uow:
        if await uow.identities.user(ADMINISTRATOR) is not None:
            return False
        user = await uow.identities.create_user(ADMINISTRATOR, Role.ADMIN, now)
        token_id = ids.new_id("tok")
        await uow.identities.create_token(token_id, user.id, _TOKEN_NAME, ids.digest(token), None, now)
        for kind, subject, data in (
            (PeopleEventKind.USER_CREATED, f"user:{user.name}", {"role": Role.ADMIN.value}),
            (PeopleEventKind.TOKEN_CREATED, token_id, {"user": user.name}),
        ):
            await uow.events.append(actor="system", kind=kind, at=now, subject=subject, data=data)
    return True
