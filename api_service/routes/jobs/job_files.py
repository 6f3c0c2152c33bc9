"""Files for jobs: sending chunks and folders, what a job begins with, and what it has kept."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response, StreamingResponse

from api_service.documents import answers, problems, reads
from api_service.problems import ProblemError
from api_service.requests import bodies
from api_service.routes.jobs.jobs import JobId
from api_service.services import Caller, Served, Services
from reservation_core.contracts.job_files.synced import (
    ChunksStored,
    FolderOut,
    FolderSend,
    FolderSent,
    JobFilesOut,
    ResultsKeep,
)
from reservation_core.domain.sync.folders import chunk_sizes, content_bytes, entries_in, fields_of
from reservation_core.domain.sync.frames import (
    HEAD_BYTES,
    MOST_CHUNKS,
    PACK_BYTES,
    FrameError,
    framed,
    read_pack,
)
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.jobs import job_files
from reservation_core.usecases.repeat_lost_transactions import repeat_lost

router = APIRouter(prefix="/v1", tags=["jobs"])

_MOST_FOLDER_BYTES = 24 * 2**20
_MOST_PACK_BYTES = PACK_BYTES + MOST_CHUNKS * HEAD_BYTES
_READ_BYTES = 4 * 2**20
_BYTES = "application/octet-stream"
_PACK = {
    "requestBody": {
        "required": True,
        "description": "Chunks, each after the 32 bytes of its SHA-256 and 4 bytes of its length, the highest first.",
        "content": {_BYTES: {"schema": {"type": "string", "format": "binary"}}},
    }
}
_DATA: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Chunks, each after the 32 bytes of its SHA-256 and 4 bytes of its length, the highest first.",
        "content": {_BYTES: {"schema": {"type": "string", "format": "binary"}}},
    }
}


class DataQuery(BaseModel):
    """Where to go on."""

    model_config = ConfigDict(extra="forbid")

    skip: Annotated[
        int, Field(ge=0, le=10_000_000, description="Leave out so many chunks, which an earlier answer had.")
    ] = 0


@router.put(
    "/uploads",
    response_model=ChunksStored,
    summary="Send chunks of files",
    responses=answers(200, "The chunks are stored.") | problems(400, 413, 415),
    openapi_extra=_PACK,
)
async def put_chunks(request: Request, services: Served, caller: Caller) -> Response:
    """Store chunks of your files, 4 MiB each and 8 MiB in all at most. They stay yours: no other user's jobs get them.

    Chunks that no job uses are removed after some weeks.
    """
    if request.headers.get("content-type") != _BYTES:
        raise ProblemError(415, "unsupported_media_type", f"Send chunks with the header `Content-Type: {_BYTES}`.")
    runtime, bounds = services.runtime, services.settings.sync.bounds
    async with services.file_bodies:
        pack = await bodies.read_bounded(request, _MOST_PACK_BYTES)
        try:
            chunks = await asyncio.to_thread(read_pack, pack)
        except FrameError as error:
            raise ProblemError(400, "malformed_chunks", f"{error} Send the chunks again.") from error

        async def store() -> int:
            async with runtime.uow() as uow:
                return await job_files.store_chunks(uow, caller, chunks, bounds, runtime.clock.now())

        stored = await repeat_lost(store)
    return _json(ChunksStored(stored=stored))


@router.put(
    "/uploads/folders",
    response_model=FolderSent,
    summary="Send a folder",
    responses=answers(200, "The folder's id, or the chunks that are missing.") | problems(400, 413, 415),
    openapi_extra={"requestBody": reads(FolderSend)["requestBody"]},
)
async def put_folder(request: Request, services: Served, caller: Caller) -> Response:
    """Store what is in a folder, so that jobs can begin with it, once you have sent all its chunks.

    Refused is what does not lie in the folder: absolute paths, `..`, links that leave it, and paths that differ in
    upper and lower case only.
    """
    runtime, bounds = services.runtime, services.settings.sync.bounds
    async with services.file_bodies:
        raw = await bodies.read_raw(request, limit=_MOST_FOLDER_BYTES)
        body = await asyncio.to_thread(bodies.parse, raw, FolderSend)
        entries = await asyncio.to_thread(job_files.read_entries, body.entries, bounds.folder)

        async def put() -> tuple[str | None, list[str]]:
            async with runtime.uow() as uow:
                return await job_files.put_folder(uow, caller, entries, bounds, runtime.clock.now())

        folder, missing = await repeat_lost(put)
    return _json(FolderSent(id=folder, entries=len(entries), size=content_bytes(entries), missing=missing))


@router.get(
    "/jobs/{job_id}/files",
    response_model=JobFilesOut,
    summary="Read what a job begins with",
    responses=problems(404),
)
async def get_job_files(services: Served, caller: Caller, job_id: JobId) -> Response:
    """The folder that a job of yours begins with, and the paths and the most bytes that are kept of it at the end."""
    most = services.settings.sync.bounds.folder
    async with services.runtime.uow() as uow:
        sync, content = await job_files.files_of(uow, caller, job_id)

    def out() -> Response:
        return _json(JobFilesOut(**_folder_fields(sync.folder, content), fetch=list(sync.fetch), most_bytes=most))

    return await asyncio.to_thread(out)


@router.get(
    "/jobs/{job_id}/files/data",
    summary="Read the files that a job begins with",
    response_class=Response,
    responses=_DATA | problems(404, 429),
)
async def get_job_files_data(
    services: Served, caller: Caller, job_id: JobId, query: Annotated[DataQuery, Query()]
) -> Response:
    """The different chunks of the folder in the order of its entries. If the connection breaks off, skip what came."""
    async with services.runtime.uow() as uow:
        _, content = await job_files.files_of(uow, caller, job_id)
    return await _data(services, caller, content, query.skip)


@router.get(
    "/jobs/{job_id}/results",
    response_model=FolderOut,
    summary="Read what a job has kept",
    responses=problems(404),
)
async def get_job_results(services: Served, caller: Caller, job_id: JobId) -> Response:
    """The folder that a job of yours has kept at its end."""
    async with services.runtime.uow() as uow:
        folder, content = await job_files.results_of(uow, caller, job_id)
    return await asyncio.to_thread(_folder_out, folder, content)


@router.get(
    "/jobs/{job_id}/results/data",
    summary="Read the files that a job has kept",
    response_class=Response,
    responses=_DATA | problems(404, 429),
)
async def get_job_results_data(
    services: Served, caller: Caller, job_id: JobId, query: Annotated[DataQuery, Query()]
) -> Response:
    """The different chunks of the folder in the order of its entries. If the connection breaks off, skip what came."""
    async with services.runtime.uow() as uow:
        _, content = await job_files.results_of(uow, caller, job_id)
    return await _data(services, caller, content, query.skip)


@router.put(
    "/jobs/{job_id}/results",
    response_model=FolderOut,
    summary="Keep a folder as a job's results",
    responses=problems(400, 404, 413, 415),
    openapi_extra={"requestBody": reads(ResultsKeep)["requestBody"]},
)
async def put_job_results(request: Request, services: Served, caller: Caller, job_id: JobId) -> Response:
    """Keep a folder that was sent as what the job has made. The job does this by its own token."""
    body = await bodies.read(request, ResultsKeep, limit=services.settings.max_body_bytes)
    runtime = services.runtime

    async def keep() -> tuple[str, bytes]:
        async with runtime.uow() as uow:
            await job_files.keep_results(uow, caller, job_id, body.folder, runtime.clock.now())
            return await job_files.results_of(uow, caller, job_id)

    folder, content = await repeat_lost(keep)
    return await asyncio.to_thread(_folder_out, folder, content)


def _json(model: BaseModel) -> Response:
    return Response(model.model_dump_json(), media_type="application/json", headers={"Cache-Control": "no-store"})


def _folder_out(folder: str | None, content: bytes) -> Response:
    return _json(FolderOut(**_folder_fields(folder, content)))


def _folder_fields(folder: str | None, content: bytes) -> dict[str, Any]:
    """A folder with all its entries, which for a large one takes a part of a second."""
    entries = entries_in(content)
    chunks = len({digest for digest, _ in chunk_sizes(entries)})
    return {"id": folder, "entries": [fields_of(entry) for entry in entries], "chunks": chunks}


async def _data(services: Services, caller: Principal, content: bytes, skip: int) -> Response:
    wanted = await asyncio.to_thread(lambda: list(dict(chunk_sizes(entries_in(content))).items())[skip:])
    place = services.streams.place(caller.user_id)
    return _FilesResponse(_chunks(services, caller.user_id, wanted), place, media_type=_BYTES)


class _FilesResponse(StreamingResponse):
    """A stream that keeps its place among the caller's streams until it ends."""

    def __init__(self, content: AsyncIterator[bytes], place: Any, media_type: str) -> None:
        super().__init__(content, media_type=media_type, headers={"Cache-Control": "no-store"})
        self._place = place

    async def __call__(self, *args: Any) -> None:
        with self._place:
            await super().__call__(*args)


async def _chunks(services: Services, user_id: int, wanted: Sequence[tuple[str, int]]) -> AsyncIterator[bytes]:
    """The chunks in groups of some MiB: each group is one short read."""
    while wanted:
        size = count = 0
        while count < len(wanted) and (not count or size + wanted[count][1] <= _READ_BYTES):
            size += wanted[count][1]
            count += 1
        digests = [bytes.fromhex(digest) for digest, _ in wanted[:count]]
        async with services.stream_reads, services.runtime.uow(one_statement=True) as uow:
            found = await uow.files.chunks(user_id, digests)
        yield b"".join(framed(digest, found[digest]) for digest in digests)
        wanted = wanted[count:]
