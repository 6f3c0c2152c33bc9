"""Sending folders for jobs, giving jobs their files, and keeping results.

Chunks belong to the user that sent them. A folder is stored only while all its chunks are there, and the retention
removes folders before chunks.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.errors import InvalidFolderError, LimitExceededError, NotFoundError, UnknownFolderError
from reservation_core.domain.model import Reservation
from reservation_core.domain.statuses import FINAL_STATUSES, JobStatus
from reservation_core.domain.sync.folders import (
    FolderEntry,
    chunk_sizes,
    content_bytes,
    entries_in,
    entry_of,
    fault_of_entries,
    fields_of,
)
from reservation_core.domain.sync.job_sync import JobSync, fault_of_kept
from reservation_core.ports.jobs.job_files import FileBounds
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.jobs.visible_jobs import no_such_job


def read_entries(fields: Sequence[dict[str, object]], most_bytes: int) -> list[FolderEntry]:
    """The entries of a folder that was sent, checked. Raises InvalidFolderError and LimitExceededError."""
    try:
        entries = [_entry(one) for one in fields]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InvalidFolderError(
            "An entry of the folder is not a file, a link or a folder as the description of this call has them."
        ) from error
    if (fault := fault_of_entries(entries)) is not None:
        raise InvalidFolderError(f"The folder can't be sent: {fault}.")
    if (size := content_bytes(entries)) > most_bytes:
        raise LimitExceededError(
            f"The folder has {size} bytes; at most {most_bytes} are allowed. Leave files out with .gitignore."
        )
    return entries


def _entry(fields: dict[str, object]) -> FolderEntry:
    entry = entry_of(fields)
    shown = fields_of(entry)
    if (shown != fields and shown != {**shown, **fields}) or entry.size < 0:
        raise ValueError("an unknown field, or a value of another type")
    for digest in entry.chunks:
        if len(digest) != sha256().digest_size * 2 or digest != bytes.fromhex(digest).hex():
            raise ValueError("no SHA-256 in lower case")
    return entry


async def put_folder(
    uow: UnitOfWork, principal: Principal, entries: Sequence[FolderEntry], bounds: FileBounds, now: datetime
) -> tuple[str | None, list[str]]:
    """Store a folder of the caller if all its chunks are there; returns its id, or the missing chunks.

    Raises InvalidFolderError where a chunk has other bytes than the size of its file says, and LimitExceededError.
    """
    wanted = {digest: bytes.fromhex(digest) for digest, _ in chunk_sizes(entries)}
    await uow.files.lock_user(principal.user_id)
    held = await uow.files.sizes(principal.user_id, wanted.values(), now)
    for digest, size in chunk_sizes(entries):
        if held.get(wanted[digest], size) != size:
            raise InvalidFolderError(f"The chunk {digest} has other bytes than the size of its file says.")
    missing = [digest for digest, raw in wanted.items() if raw not in held]
    if missing:
        return None, missing
    content = json.dumps([fields_of(entry) for entry in entries], ensure_ascii=False, separators=(",", ":")).encode()
    digest_of_folder = sha256(content).digest()
    await uow.files.put_folder(principal.user_id, digest_of_folder, content, now)
    await _check_room(uow, principal, bounds)
    return digest_of_folder.hex(), []


async def store_chunks(
    uow: UnitOfWork, principal: Principal, chunks: Sequence[tuple[bytes, bytes]], bounds: FileBounds, now: datetime
) -> int:
    """Store chunks of the caller; returns how many are new. Raises LimitExceededError."""
    await uow.files.lock_user(principal.user_id)
    stored = await uow.files.add_chunks(principal.user_id, chunks, now)
    await _check_room(uow, principal, bounds)
    return stored


async def _check_room(uow: UnitOfWork, principal: Principal, bounds: FileBounds) -> None:
    taken = await uow.files.taken(principal.user_id)
    if taken.own > bounds.user:
        raise LimitExceededError(
            f"Your files on this server would take more than {bounds.user} bytes. What jobs don't use is removed after "
            "some days; send less, or ask an administrator for more room."
        )
    if taken.everybody > bounds.everybody:
        raise LimitExceededError("This server has no room for more files. Ask an administrator for more room.")


async def use_folder(uow: UnitOfWork, user_id: int, folder: str, now: datetime) -> bytes:
    """Note that a job begins with or keeps a folder of its owner; returns its content. Raises UnknownFolderError."""
    await uow.files.lock_user(user_id)
    content = await uow.files.use_folder(user_id, bytes.fromhex(folder), now)
    if content is None:
        raise UnknownFolderError(
            f"You have sent no folder {folder}, or it was removed because no job used it. Send it again."
        )
    return content


async def own_job(uow: UnitOfWork, principal: Principal, job_id: str) -> Reservation:
    """A job of the caller: nobody else gets its files. Raises NotFoundError."""
    job = (await uow.reservations.get([job_id])).get(job_id)
    if job is None or job.user_id != principal.user_id:
        raise no_such_job(job_id)
    return job


async def files_of(uow: UnitOfWork, principal: Principal, job_id: str) -> tuple[JobSync, bytes]:
    """What a job begins with and keeps, and the content of its folder. Raises NotFoundError."""
    sync = (await own_job(uow, principal, job_id)).workload.sync
    if sync is None:
        raise NotFoundError(f"{job_id} has no files. `gpu-dev run --sync .` sends some.")
    if sync.folder is None:
        return sync, b"[]"
    content = await uow.files.folder(principal.user_id, bytes.fromhex(sync.folder))
    if content is None:
        raise NotFoundError(f"The folder of {job_id} was removed, because no job needed it any more.")
    return sync, content


async def results_of(uow: UnitOfWork, principal: Principal, job_id: str) -> tuple[str, bytes]:
    """The id and the content of the folder that a job has kept. Raises NotFoundError."""
    job = await own_job(uow, principal, job_id)
    if job.array is not None:
        raise NotFoundError(
            f"{job_id} is an array, and its elements have files of their own. `gpu-dev fetch {job_id}.0` brings those "
            "of the first."
        )
    found = await uow.files.results(job_id)
    if found is None:
        raise NotFoundError(f"{job_id} {_why_no_results(job)}")
    return found[0].hex(), found[1]


def _why_no_results(job: Reservation) -> str:
    """Why a job has no folder that it has kept."""
    if job.workload.sync is None or not job.workload.sync.fetch:
        return "was not asked to keep files. `gpu-dev run --fetch PATH` asks for that."
    if job.status not in FINAL_STATUSES:
        return f"is {job.status.value}. It keeps its files when its command has ended."
    # A job that waits again after a run forgets that run's start.
    if job.started_at is None and not job.retried and not job.preemption.times:
        return "has never started, so it has no files."
    if job.status in (JobStatus.CANCELLED, JobStatus.EXPIRED):
        return f"was ended before it sent its files. `gpu-dev logs {job.id}` shows how far it came."
    return f"could not send its files, or they were removed after some days. `gpu-dev logs {job.id}` may say more."


async def keep_results(uow: UnitOfWork, principal: Principal, job_id: str, folder: str, now: datetime) -> None:
    """Keep a folder as what a job's command has made.

    Raises NotFoundError, UnknownFolderError, and InvalidFolderError for what its owner did not ask for.
    """
    job = await own_job(uow, principal, job_id)
    if job.workload.sync is None or not job.workload.sync.fetch:
        raise NotFoundError(f"{job_id} was not asked to keep files. `gpu-dev run --fetch PATH` asks for that.")
    content = await use_folder(uow, principal.user_id, folder, now)
    if (fault := fault_of_kept(job.workload.sync.fetch, entries_in(content))) is not None:
        raise InvalidFolderError(f"{job_id} can't keep this folder: {fault}. Leave it out.")
    await uow.files.keep_results(job_id, job.attempt, principal.user_id, bytes.fromhex(folder))
