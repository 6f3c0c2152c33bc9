"""Chunks, folders and results of users in PostgreSQL."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.domain.sync.folders import chunk_sizes, entries_in
from reservation_core.ports.jobs.job_files import SentBytes, SentFolder

TOUCHED_AFTER = timedelta(hours=1)
"""The use of a chunk is noted again after this time, so that a second submission writes nothing."""


class JobFiles(StatementRunner):
    """What users have sent, and what jobs have kept. Nobody reaches what is another user's."""

    async def lock_user(self, user_id: int) -> None:
        """Let other transactions that send files of the user wait for this one."""
        await self._run("lock_user_of_files", user_id=user_id)

    async def add_chunks(self, user_id: int, chunks: Sequence[tuple[bytes, bytes]], now: datetime) -> int:
        """Store those that the user does not have; returns how many these were."""
        digests, data = [digest for digest, _ in chunks], [chunk for _, chunk in chunks]
        found = await self._run("add_sent_chunks", user_id=user_id, digests=digests, chunks=data, now=now)
        return found.rowcount

    async def taken(self, user_id: int) -> SentBytes:
        """The bytes that files take."""
        row = (await self._run("sent_bytes_of", user_id=user_id)).one()
        return SentBytes(int(row.own), int(row.everybody))

    async def sizes(self, user_id: int, digests: Collection[bytes], now: datetime) -> dict[bytes, int]:
        """Which of the chunks the user has, and their bytes; their use is noted, so that they stay."""
        long_ago = now - TOUCHED_AFTER
        found = (await self._run("sent_chunk_sizes", user_id=user_id, digests=list(digests), long_ago=long_ago)).all()
        sizes = {row.digest: row.bytes for row in found}
        if unused := [row.digest for row in found if row.is_unused]:
            used = await self._run("use_sent_chunks", user_id=user_id, digests=sorted(unused), now=now)
            for digest in set(unused) - {row.digest for row in used}:
                del sizes[digest]  # removed meanwhile
        return sizes

    async def put_folder(self, user_id: int, digest: bytes, content: bytes, now: datetime) -> None:
        """Store a folder, or note its use."""
        await self._run("put_sent_folder", user_id=user_id, digest=digest, content=content, now=now)

    async def use_folder(self, user_id: int, digest: bytes, now: datetime) -> bytes | None:
        """Note the use of a folder of the user and of its chunks, and return its content."""
        long_ago = now - TOUCHED_AFTER
        found = await self._run("use_sent_folder", user_id=user_id, digest=digest, now=now, long_ago=long_ago)
        if (row := found.one_or_none()) is None:
            return None
        content = bytes(row.content)
        if row.is_noted:
            chunks = {bytes.fromhex(chunk) for chunk, _ in chunk_sizes(entries_in(content))}
            await self.sizes(user_id, chunks, now)
        return content

    async def folder(self, user_id: int, digest: bytes) -> bytes | None:
        """The content of a folder of the user."""
        return await self._first(lambda row: bytes(row.content), "sent_folder", user_id=user_id, digest=digest)

    async def chunks(self, user_id: int, digests: Collection[bytes]) -> dict[bytes, bytes]:
        """Those of the chunks that the user has."""
        rows = await self._run("sent_chunk_data", user_id=user_id, digests=list(digests))
        return {row.digest: row.data for row in rows}

    async def keep_results(self, job_id: str, attempt: int, user_id: int, digest: bytes) -> None:
        """Keep a folder as the results of an attempt, unless a later attempt has some."""
        await self._run("put_job_results", job_id=job_id, attempt=attempt, user_id=user_id, digest=digest)

    async def results(self, job_id: str) -> tuple[bytes, bytes] | None:
        """Digest and content of the folder that a job has kept."""
        return await self._first(lambda row: (row.digest, bytes(row.content)), "job_results_of", job_id=job_id)

    async def old_folders(self, before: datetime, limit: int) -> list[SentFolder]:
        """Folders that were not used since a time, locked."""
        rows = await self._run("oldest_sent_folders", before=before, limit=limit)
        return [SentFolder(row.user_id, row.digest, row.is_needed) for row in rows]

    async def remove_folders(self, folders: Sequence[SentFolder]) -> None:
        """Remove folders."""
        user_ids, digests = [folder.user_id for folder in folders], [folder.digest for folder in folders]
        await self._run("remove_sent_folders", user_ids=user_ids, digests=digests)

    async def remove_chunks(self, before: datetime, limit: int) -> int:
        """Remove some chunks that were not used since a time; returns how many."""
        return (await self._run("remove_sent_chunks", before=before, limit=limit)).rowcount
