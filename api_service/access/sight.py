"""Visibility of the holders and bookers of GPUs: one rule for everything that REST shows, by a setting.

All users see when a GPU is held; the setting decides who sees the holder. Users see everything of their own, and
administrators see everything.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.ports.people.identities import Principal
from reservation_core.runtime.settings.components import Holders


@dataclass(frozen=True, slots=True)
class Sight:
    """The users that a caller may see. `fellows`: their names by id; None: all users."""

    caller: Principal
    fellows: Mapping[int, str] | None = field(default_factory=dict)

    @property
    def sees_all(self) -> bool:
        """Whether no user is hidden from the caller."""
        return self.fellows is None or self.caller.is_admin

    def sees(self, user_id: int | None) -> bool:
        """Whether the caller may see this user's name and belongings."""
        if self.fellows is None or self.caller.is_admin or user_id == self.caller.user_id:
            return True
        return user_id in self.fellows

    def may_ask_for(self, user: str) -> bool:
        """Whether the caller may filter a list by this user: a filter reveals what is hidden."""
        if self.fellows is None or self.caller.is_admin or user == self.caller.user:
            return True
        return user in self.fellows.values()


async def sight_of(uow: UnitOfWork, caller: Principal, holders: Holders) -> Sight:
    """Read whom a caller may see now."""
    match holders:
        case Holders.EVERYONE:
            return Sight(caller, None)
        case Holders.MEMBERS:
            return Sight(caller, {} if caller.is_admin else await uow.projects.fellows(caller.user_id))
        case Holders.SELF:
            return Sight(caller)
        case _:
            assert_never(holders)


async def may_see_owner(uow: UnitOfWorkFactory, caller: Principal, holders: Holders, owner_id: int | None) -> bool:
    async with uow() as reading:
        return (await sight_of(reading, caller, holders)).sees(owner_id)
