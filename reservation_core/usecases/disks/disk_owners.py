"""Users whose disks a caller manages: the caller, and for administrators anybody, also disabled users."""

from dataclasses import dataclass, replace

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.disks.disk_life import DiskBounds
from reservation_core.domain.disks.disk_uses import MOST_DISKS
from reservation_core.domain.errors import ForbiddenError, LimitExceededError, NotFoundError, UserDisabledError
from reservation_core.domain.request_terms import size_words
from reservation_core.domain.similar_names import did_you_mean
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.people.users import unknown_user

SMALLER_SIZE = "Ask for a smaller size"


@dataclass(frozen=True, slots=True)
class DiskOwner:
    """A user who has disks. `is_caller`: the refusals address this user."""

    user_id: int
    name: str
    is_caller: bool

    @property
    def has(self) -> str:
        """`You have`, or the user's name with the verb."""
        return "You have" if self.is_caller else f"{self.name} has"

    @property
    def whose(self) -> str:
        """`Your`, or the user's name in the genitive."""
        return "Your" if self.is_caller else f"{self.name}'s"

    @property
    def option(self) -> str:
        """What a command needs besides to be about this user's disks."""
        return "" if self.is_caller else f" --user {self.name}"

    @property
    def makes_room(self) -> str:
        """How this user gets room for a disk that stays as large as it is."""
        return f"Delete disks of {self.name} and wait until they are removed"


async def find_owner(uow: UnitOfWork, principal: Principal, user: str | None) -> DiskOwner:
    """The caller, or `user` for administrators. Raises ForbiddenError, and NotFoundError for an unknown user."""
    if user is None or user == principal.user:
        return DiskOwner(principal.user_id, principal.user, is_caller=True)
    if not principal.is_admin:
        raise ForbiddenError("Only administrators manage other users' disks. Name no user to manage your own.")
    record = await uow.identities.user(user)
    if record is None:
        raise await unknown_user(uow, principal, user)
    return DiskOwner(record.id, record.name, is_caller=False)


async def disk_names(uow: UnitOfWork, user_id: int, *, deleted: bool = False) -> list[str]:
    """The names of a user's disks."""
    disks = await uow.disks.page(user_id, deleted=deleted, after=("", ""), limit=MOST_DISKS)
    return [disk.name for disk in disks]


async def unknown_disk(uow: UnitOfWork, owner: DiskOwner, name: str) -> NotFoundError:
    """The refusal of a disk that the user does not have."""
    meant = did_you_mean(name, await disk_names(uow, owner.user_id))
    return NotFoundError(f"{owner.has} no disk {name}.{meant} `gpu-dev disk list{owner.option}` shows all.")


async def find_heir(uow: UnitOfWork, principal: Principal, owner: DiskOwner, user: str) -> DiskOwner:
    """The user who gets a disk of `owner`. Raises ForbiddenError and NotFoundError."""
    if not principal.is_admin:
        raise ForbiddenError("Only administrators give disks to other users. Ask one of them to do it.")
    if user == owner.name:
        return owner
    # By name, also where this is the caller: the disk that is given is somebody else's.
    return replace(await find_owner(uow, principal, user), is_caller=False)


async def require_enabled(uow: UnitOfWork, heir: DiskOwner) -> None:
    """Require that a locked user may get disks. Raises UserDisabledError."""
    record = await uow.identities.user(heir.name)
    if record is not None and record.disabled_at is not None:
        raise UserDisabledError(
            f"{heir.name} is disabled and gets no disks. `gpu-dev users enable {heir.name}` enables the user."
        )


async def require_room(
    uow: UnitOfWork,
    principal: Principal,
    owner: DiskOwner,
    size_bytes: int,
    bounds: DiskBounds,
    *,
    advice: str,
    but: str = "",
    is_disk: bool = True,
) -> None:
    """Require room for a disk, or a snapshot, of this size beside all others. `but`: a disk that does not count.

    The user is locked. `advice` begins the sentence that says what can be done. Raises LimitExceededError.
    """
    disks, others = await uow.disks.totals(owner.user_id, but)
    if is_disk and disks >= MOST_DISKS:
        raise LimitExceededError(
            f"{owner.has} {MOST_DISKS} disks, deleted ones that are still kept counted. No more are allowed. Delete"
            f" one and wait until it is removed: `gpu-dev disk list --deleted{owner.option}` shows when."
        )
    if others + size_bytes > bounds.user_bytes:
        raise LimitExceededError(
            f"{owner.whose} disks would have {size_words(others + size_bytes)} together, snapshots and deleted disks"
            f" that are still kept counted; at most {size_words(bounds.user_bytes)} are allowed."
            f" {advice}, or {_more_room(principal, 'USER_BYTES')}."
        )
    in_all = await uow.disks.bytes_in_all(but)
    if in_all + size_bytes > bounds.all_bytes:
        raise LimitExceededError(
            f"All users' disks have {size_words(in_all)} together, and {size_words(bounds.all_bytes)} are allowed."
            f" {advice}, or {_more_room(principal, 'ALL_BYTES')}."
        )


def _more_room(principal: Principal, setting: str) -> str:
    return f"raise GPU_DEV_DISKS__{setting}" if principal.is_admin else "ask an administrator for room"
