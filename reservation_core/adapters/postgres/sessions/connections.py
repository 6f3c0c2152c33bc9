"""Connections to running jobs, in PostgreSQL."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby

from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.domain.sessions.ways_in import Place, Way
from reservation_core.domain.statuses import JobStatus
from reservation_core.ports.sessions.connections import HeldConnection, JobToEnter, NewConnection, OpenConnection

_ALIVE = timedelta(seconds=60)
"""A connection that was not refreshed for so long is forgotten, as its process has probably ended."""


class Connections(StatementRunner):
    """Jobs that users may enter, and open connections."""

    async def jobs_to_enter(self, reference: str, user_id: int) -> list[JobToEnter]:
        """The jobs with this id or, while they run, this name, that a user may enter."""
        rows = await self._run("jobs_to_enter", reference=reference, user_id=user_id)
        return [
            JobToEnter(
                r.id,
                r.name,
                JobStatus(r.status),
                r.attempt,
                r.nodes,
                _utc(r.ends_at),
                _places(r.gpus or []),
                r.own,
                r.folder_goes,
                r.elements,
            )
            for r in rows
        ]

    async def lock_of_user(self, user_id: int) -> None:
        """Let one transaction at a time open connections of a user, so that they can be counted."""
        await self._run("lock_connections_of_user", user_id=user_id)

    async def open(self, new: NewConnection, most: int, now: datetime) -> tuple[int, bool] | None:
        """Store a connection of a locked user; returns its id, and whether the user had none like it.

        None if the user has `most`.
        """
        row = (
            await self._run(
                "open_connection",
                job_id=new.job_id,
                user_id=new.user_id,
                credential=new.credential,
                way=new.way.value,
                address=new.address,
                now=now,
                alive_since=now - _ALIVE,
                most=most,
            )
        ).one_or_none()
        return None if row is None else (row.id, row.first)

    async def refresh(self, held: Sequence[HeldConnection], now: datetime) -> dict[int, datetime | None]:
        """Note open connections, also those that were forgotten while the database could not be reached.

        Returns the ids of those that may go on, with the end of their job.
        """
        rows = await self._run(
            "refresh_connections",
            ids=[one.id for one in held],
            job_ids=[one.noted.job_id for one in held],
            attempts=[one.attempt for one in held],
            user_ids=[one.noted.user_id for one in held],
            credentials=[one.noted.credential for one in held],
            ways=[one.noted.way.value for one in held],
            addresses=[one.noted.address for one in held],
            opened=[one.opened_at for one in held],
            last_bytes=[one.last_byte_at for one in held],
            now=now,
        )
        return {row.id: _utc(row.ends_at) for row in rows}

    async def close(self, ids: list[int], now: datetime) -> None:
        """Delete closed connections, and note when somebody was last connected to their jobs."""
        await self._run("close_connections", ids=ids, now=now)

    async def left_alone(self, now: datetime, limit: int) -> list[str]:
        """Running sessions to which nobody has been connected for their `inactivity`."""
        rows = await self._run("sessions_left_alone", now=now, limit=limit)
        return [row.id for row in rows]

    async def forget_abandoned(self, now: datetime) -> None:
        """Delete some connections of processes that were killed. Processes that live store theirs again."""
        await self._run("forget_connections", alive_since=now - _ALIVE)

    async def of_job(self, job_id: str, limit: int, now: datetime) -> list[OpenConnection]:
        """A job's open connections, oldest first."""
        rows = await self._run("connections_of_job", job_id=job_id, limit=limit, alive_since=now - _ALIVE)
        return [
            OpenConnection(
                row.user_name,
                Way(row.way),
                row.address,
                row.opened_at.astimezone(UTC),
                row.last_byte_at.astimezone(UTC),
            )
            for row in rows
        ]


def _places(gpus: list[tuple[int, str, str | None, int | None]]) -> dict[int, Place]:
    """The GPUs by rank, of rows with rank, node, type and index."""
    return {
        rank: Place(found[0][1], found[0][2], tuple(index for _, _, _, index in found if index is not None))
        for rank, group in groupby(gpus, key=lambda gpu: gpu[0])
        for found in [[*group]]
    }


def _utc(at: datetime | None) -> datetime | None:
    return None if at is None else at.astimezone(UTC)
