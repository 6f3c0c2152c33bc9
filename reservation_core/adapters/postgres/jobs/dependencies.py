"""The jobs that jobs wait for, in PostgreSQL. Triggers note in the transaction of a start or an end who has to know."""

from collections.abc import Collection, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from sqlalchemy import Row

from reservation_core.adapters.postgres.connection import direct
from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.domain.jobs.asked_dependencies import Dependency, DependencyWhen
from reservation_core.domain.jobs.dependencies import KnownDependency
from reservation_core.domain.statuses import JobStatus
from reservation_core.ports.jobs.dependencies import DependencyLink, LinkedJob


class Dependencies(StatementRunner):
    """What each job waits for, and the news of it."""

    async def keep(self, ids: Sequence[str], user_id: int | None) -> set[str]:
        """Keep these jobs of a user (None: anybody) from starting and ending until the transaction is over.

        Returns those that there are.
        """
        return {row.id for row in await self._run("keep_needed_jobs", ids=list(ids), user_id=user_id)}

    async def known(self, dependencies: Sequence[Dependency], user_id: int | None) -> list[KnownDependency]:
        """These dependencies with what is known of the jobs; jobs that this user does not have are left out."""
        named = [dependency.job for dependency in dependencies]
        rows = {row.id: row for row in await self._run("needed_jobs", ids=named, user_id=user_id)}
        return [_known(one, rows[one.job]) for one in dependencies if one.job in rows]

    async def add(self, job_id: str, dependencies: Sequence[KnownDependency]) -> None:
        """Store what a new job waits for. The jobs must be kept (see `keep`)."""
        await self._run(
            "add_dependencies",
            job_id=job_id,
            needs=[dependency.job for dependency in dependencies],
            conditions=[dependency.when.value for dependency in dependencies],
        )

    async def of(self, ids: Collection[str]) -> dict[str, tuple[KnownDependency, ...]]:
        """What these jobs wait for, in the order of their requests; jobs that name no others are left out."""
        rows = await self._run("dependencies_of", ids=list(ids))
        return {
            job_id: tuple(_known(Dependency(row.needs_id, DependencyWhen(row.condition)), row) for row in group)
            for job_id, group in groupby(rows, key=lambda row: row.job_id)
        }

    async def with_news(self, limit: int) -> list[str]:
        """Jobs that have to be looked at, as something that they wait for has started or ended."""
        return [row["job_id"] for row in await direct.fetch(self._connection, "jobs_with_news", {"limit": limit})]

    async def give_up_starts(self, job_id: str, end: datetime | None) -> list[str]:
        """Drop the slots and promises that would begin before a job's new end (None: any), and those that follow these.

        Returns the jobs that had them. A job that is being changed at this moment keeps its slot.
        """
        return [row.id for row in await self._run("give_up_starts_after", id=job_id, end=end)]

    async def take_news(self, ids: Sequence[str]) -> int:
        """Take the news of these jobs, and count it. Lock the jobs before, and read what they wait for afterwards."""
        return (await self._run("take_news", ids=list(ids))).rowcount

    async def around(self, job_id: str, user_id: int | None, limit: int) -> tuple[Collection[str], bool]:
        """What a job waits for, directly or not, and what waits for it: at most `limit` in each direction, and the job.

        Also whether there are more. Jobs that this user (None: an administrator) does not see are left out.
        """
        read = limit + 2  # the job itself, and one that shows that there are more
        rows = (await self._run("jobs_around", id=job_id, user_id=user_id, limit=read)).all()
        before = sum(row.is_before for row in rows)
        return {row.id for row in rows}, read in (before, len(rows) - before)

    async def among(self, ids: Collection[str], first: str, limit: int) -> list[DependencyLink]:
        """Which of these jobs wait for which of them, at most `limit`: those of the job `first` come first."""
        rows = await self._run("dependencies_among", ids=list(ids), first=first, limit=limit)
        return [DependencyLink(row.needs_id, row.job_id, DependencyWhen(row.condition)) for row in rows]

    async def linked(self, ids: Collection[str]) -> dict[str, LinkedJob]:
        """These jobs by id."""
        rows = await self._run("linked_jobs", ids=list(ids))
        return {row.id: LinkedJob(row.id, row.name, JobStatus(row.status)) for row in rows}


def _known(dependency: Dependency, row: Row[Any]) -> KnownDependency:
    """A dependency with the job's row."""
    met_by = row.starts_by if dependency.when is DependencyWhen.STARTED else row.ends_by
    return KnownDependency(dependency.job, dependency.when, JobStatus(row.status), row.started, met_by)
