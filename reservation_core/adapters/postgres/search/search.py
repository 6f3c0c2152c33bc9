"""Find jobs, bookings, nodes and users by a part of their names, or by the beginning of their ids."""

from reservation_core.adapters.postgres.jobs.job_views import SHARES_LOOKED_AT
from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.domain.similar_names import FoundKind
from reservation_core.ports.search import Found

OPEN_JOBS = 20_000
"""Jobs that are not over are looked through up to so many, the newest first."""
ENDED_JOBS = 500
"""Jobs of each way to be over that are looked through, the newest first."""
BOOKINGS_OF_A_STATUS = 500
_LAST_SEQ = 2**63 - 1


class Search(StatementRunner):
    """`text` is in lower case. `user_id` None: everybody's.

    PostgreSQL's lower() knows ASCII alone in databases without a locale, so the other letters of the text go along.
    """

    async def jobs(self, text: str, user_id: int | None, limit: int) -> list[Found]:
        rows = await self._run(
            "find_jobs",
            text=text,
            **_capitals(text),
            start=_start("job-", text),
            user_id=user_id,
            open=OPEN_JOBS,
            scanned=ENDED_JOBS,
            shares=SHARES_LOOKED_AT,
            last_seq=_LAST_SEQ,
            limit=limit,
        )
        return [Found(FoundKind.JOB, row.id, row.name, row.status, row.user_name) for row in rows]

    async def bookings(self, text: str, user_id: int | None, limit: int) -> list[Found]:
        rows = await self._run(
            "find_bookings",
            text=text,
            **_capitals(text),
            start=_start("bkg-", text),
            user_id=user_id,
            scanned=BOOKINGS_OF_A_STATUS,
            limit=limit,
        )
        return [Found(FoundKind.BOOKING, row.id, row.name, row.status, row.user_name, row.starts_at) for row in rows]

    async def nodes(self, text: str, limit: int) -> list[Found]:
        rows = await self._run("find_nodes", text=text, limit=limit, **_capitals(text))
        return [Found(FoundKind.NODE, row.name, row.logical_name) for row in rows]

    async def users(self, text: str, limit: int) -> list[Found]:
        rows = await self._run("find_users", text=text, limit=limit, **_capitals(text))
        return [Found(FoundKind.USER, row.name, status=row.status) for row in rows]


def _start(prefix: str, text: str) -> str:
    """The beginning of the ids that `text` stands for, typed with or without their prefix."""
    return text if text.startswith(prefix) else prefix + text


def _capitals(text: str) -> dict[str, str]:
    """The letters beyond ASCII of a text as capitals, and as they are, in the same order."""
    letters = [letter for letter in dict.fromkeys(text) if not letter.isascii() and len(letter.upper()) == 1]
    return {"capitals": "".join(letter.upper() for letter in letters), "smalls": "".join(letters)}
