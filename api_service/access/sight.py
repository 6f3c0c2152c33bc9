"""Visibility of holders and bookers of cards: one rule for everything that REST shows, by a setting.

Everybody may see when a card is held; the setting decides who may see by whom. Everybody sees what is their own,
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
    """What a caller sees of others. `fellows` are those whom they see, by id; None: everybody."""

    caller: Principal
    fellows: Mapping[int, str] | None = field(default_factory=dict)

    def sees(self, user_id: int | None) -> bool:
        """Whether this user's name and what is theirs may be told."""
        if self.fellows is None or self.caller.is_admin or user_id == self.caller.user_id:
            return True
        return user_id in self.fellows

    def may_ask_for(self, user: str) -> bool:
        """Whether a list may be narrowed to this user: a filter would tell what is not to be seen."""
        if self.fellows is None or self.caller.is_admin or user == self.caller.user:
            return True
        return user in self.fellows.values()


async def sight_of(uow: UnitOfWork, caller: Principal, holders: Holders) -> Sight:
    """What a caller sees now."""
    match holders:
        case Holders.EVERYONE:
            return Sight(caller, None)
        case Holders.MEMBERS:
            return Sight(caller, {} if caller.is_admin else await uow.projects.fellows(caller.user_id))
        case Holders.SELF:
            return Sight(caller)
        case _:
            assert_never(holders)


async def sees(uow: UnitOfWorkFactory, caller: Principal, holders: Holders, owner_id: int | None) -> bool:
    """Whether a caller may be told whose something is."""
    async with uow() as reading:
        return (await sight_of(reading, caller, holders)).sees(owner_id)
