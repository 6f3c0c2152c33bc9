"""The types of GPUs that a job may ask for: those that a node has ever had, that the policy names, or the settings.

A type that is in memory costs a submission nothing; the database is asked about others. Before any node has had a GPU,
it is asked once a second, not for every submission.
"""

import asyncio
from collections.abc import Iterable, Set

from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.domain.errors import NoSuchTypeError
from reservation_core.domain.policy.limits import Policy
from reservation_core.domain.similar_names import type_meant

_NONE_FOR_S = 1.0


class KnownTypes:
    """The types as they were when an unknown one was last asked for."""

    def __init__(self, uow: UnitOfWorkFactory, configured: Iterable[str]) -> None:
        self._uow = uow
        self._configured = frozenset(configured)
        self._seen: Set[str] = frozenset()
        self._none_until = 0.0

    async def check(self, gpu_type: str, policy: Policy, *, is_admin: bool) -> None:
        """Return where a job of this type may start some day, or no node has had a GPU yet. Raises NoSuchTypeError.

        Only administrators (`is_admin`) read how to announce a type.
        """
        if gpu_type in self._seen or gpu_type in policy.gpu_types or gpu_type in self._configured:
            return
        now = asyncio.get_running_loop().time()
        if not self._seen and now < self._none_until:
            return
        if self._none_until:
            # Submissions that come before the answer go by the last one: they would all ask at once.
            self._none_until = now + _NONE_FOR_S
        async with self._uow(one_statement=True) as uow:
            self._seen = frozenset(await uow.inventory.types())
        self._none_until = now + _NONE_FOR_S
        if not self._seen or gpu_type in self._seen:
            return
        known = self._seen | policy.gpu_types | self._configured
        next_step = (
            f"To announce a type before its nodes arrive: gpu-dev policy set gpu_type:{gpu_type} max_gpus=8."
            if is_admin
            else "`gpu-dev gpus` shows how many of each are free."
        )
        raise NoSuchTypeError(
            f"There is no GPU of type {gpu_type!r} here.{type_meant(gpu_type, known)} Ask for one of these types, or "
            f"for no type to get any: {', '.join(sorted(known))}. {next_step}"
        )
