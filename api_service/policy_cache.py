"""The policy in this process's memory, for the one call that can't afford to read it: submitting a job.

The cache is read again every two seconds (`token_cache_s`), so a change by another process takes effect that much
later here, and a change by this process at once. Quotas never use it: they are decided from the database. Memberships
are cached along with it, for users who have named a project; the database checks them again as it stores a job.
"""

from collections.abc import Set

from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.domain.policy.limits import Policy
from reservation_core.domain.policy.membership import not_in_project
from reservation_core.domain.policy.rules import RuleBreach
from reservation_core.runtime.loops.loops import Loop

_SHORTEST_S = 0.2


class PolicyCache:
    """The rules as they were a moment ago."""

    def __init__(self, uow: UnitOfWorkFactory, every_s: float) -> None:
        self._uow = uow
        self._every_s = max(every_s, _SHORTEST_S)
        self._policy: Policy | None = None
        self._revision = -1
        self._projects: dict[int, Set[str]] = {}
        self._forgotten = 0

    @property
    def known(self) -> Policy | None:
        """The rules, if they are in memory."""
        return self._policy

    async def current(self) -> Policy:
        """The rules, from memory if possible."""
        return self._policy if self._policy is not None else await self._read()

    def forget(self) -> None:
        """Drop the cache, after a change by this process."""
        self._policy = None
        self._revision = -1
        self._projects.clear()
        # A read that is under way may have begun before the change, and is not kept.
        self._forgotten += 1

    async def foreign_project(self, project: str, user_id: int) -> RuleBreach | None:
        """What a user breaks who is not in a project; never from memory: the user may have become a member since."""
        if project in self._projects.get(user_id, ()):
            return None
        forgotten, revision = self._forgotten, self._revision
        async with self._uow(one_statement=True) as uow:
            found = frozenset(await uow.projects.of_user(user_id))
        if (forgotten, revision) == (self._forgotten, self._revision):
            self._projects[user_id] = found
        return None if project in found else not_in_project(project, found)

    async def run(self, loop: Loop) -> None:
        """Refresh the cache in `loop`, for ever. While the database is away, the last policy holds."""
        await loop.repeat(self._read, rest_s=self._every_s)

    async def _read(self) -> Policy:
        forgotten = self._forgotten
        async with self._uow() as uow:
            if self._policy is not None and await uow.policies.revision() == self._revision:
                return self._policy
            found = await uow.policies.current()
        if forgotten == self._forgotten:
            self._policy, self._revision = found.policy, found.revision
            self._projects.clear()
        return found.policy
