"""A job's log from its pods: a single pod's bytes unchanged, a gang's lines with their rank.

Where a cluster deletes a log with its pod, the stored last lines replace it.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime

import structlog

from api_service.following import SWEEP_S
from api_service.services import Services
from reservation_core.domain.errors import NotFoundError
from reservation_core.domain.model import PodName, Reservation
from reservation_core.domain.statuses import FINAL_STATUSES, JobStatus
from reservation_core.domain.time_words import rfc3339
from reservation_core.ports.cluster import ClusterUnavailableError, OmittedOutput, TimedOutput
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.loops.backoff import Backoff

_LONGEST_LINE = 64 * 1024
_STRETCH = 4 * 1024  # times make at most 26 times as many bytes of it, if its lines are empty
_LONGEST_PART = 64 * 1024  # so many, and one stretch
_AHEAD = 64
_OVERLAP = 4096
_FIRST_S = 30.0
_FAILURES = 5  # in a row, of a job that has ended
_LONGEST_PAUSE_S = 10.0
_WITHOUT_OUTPUT = frozenset({JobStatus.QUEUED, JobStatus.STARTING})
_log = structlog.get_logger(__name__)


class _PodLog:
    """One pod's log. It is reread from its start, and each byte is passed on once."""

    def __init__(self, services: Services, name: PodName, *, timed: bool = False) -> None:
        self._services = services
        self._cluster = services.runtime.cluster
        self._name = name
        self.timed = timed
        self._passed = 0
        self._last = b""
        self._begins_line = True

    async def read(self, *, follow: bool) -> AsyncGenerator[bytes]:
        """Yield what was not passed on yet. Raises ClusterUnavailableError."""
        position = 0
        chunks = self._cluster.pod_logs(str(self._name), follow=follow)
        try:
            async for chunk in chunks:
                begin = position
                position += chunk.left_out if isinstance(chunk, OmittedOutput) else len(chunk)
                count = position - max(self._passed, begin)
                if count <= 0:
                    continue
                self._passed = position
                fresh = _end_of(chunk, count)
                self._last = (self._last + fresh)[-_OVERLAP:]
                if not self.timed:
                    yield fresh
                    continue
                for part in await asyncio.to_thread(self._with_times, fresh, chunk):
                    yield part
        finally:
            await _close(chunks)
        if position == 0 and not follow and self._cluster.forgets_logs:
            kept = await self._kept()
            if kept:
                for part in self._with_times(kept, kept) if self.timed else (kept,):
                    yield part

    def _with_times(self, fresh: bytes, chunk: bytes) -> Iterator[bytes]:
        """The end of a chunk, in parts, with a time before each line, or a dash where it is not known. Blocks."""
        if isinstance(fresh, OmittedOutput):
            begins, self._begins_line = self._begins_line, True
            return iter([OmittedOutput(fresh.left_out, begins_line=begins, prefix="- ")])
        parts = [bytearray()]
        for begin, end, at in _stretches(chunk, len(chunk) - len(fresh)):
            stamp = b"- " if at is None else f"{rfc3339(at)} ".encode()
            for start in range(begin, end, _STRETCH):
                output = chunk[start : min(end, start + _STRETCH)]
                if len(parts[-1]) > _LONGEST_PART:
                    parts.append(bytearray())
                parts[-1] += stamp if self._begins_line else b""
                parts[-1] += output[:-1].replace(b"\n", b"\n" + stamp) + output[-1:]
                self._begins_line = output.endswith(b"\n")
        return map(bytes, parts)

    async def _kept(self) -> bytes:
        """The part of a deleted pod's stored lines that was not passed on yet. Raises ClusterUnavailableError."""
        try:
            async with self._services.stream_reads, self._services.runtime.uow() as uow:
                tail = await uow.pod_logs.tail(self._name)
        except DatabaseUnavailableError as error:
            raise ClusterUnavailableError(f"The pod is gone, and its stored log can't be read: {error}") from error
        if not tail:
            return b""
        if self._passed:
            tail = _beyond(self._last, tail)
        self._passed += len(tail)
        self._last = (self._last + tail)[-_OVERLAP:]
        return tail


async def read_log(services: Services, job: Reservation, *, timed: bool = False) -> AsyncGenerator[bytes]:
    """Read the log so far; `timed` begins lines with their time, or a dash.

    Raises ClusterUnavailableError, also amid the chunks if they can't be read to the end.
    """
    chunks = _joined([_PodLog(services, name, timed=timed) for name in _pods(job)], follow=False)
    try:
        # The first chunk now: an unavailable cluster is then a problem and not a broken stream.
        async with asyncio.timeout(_FIRST_S):
            first = await anext(chunks, None)
    except TimeoutError as problem:
        raise ClusterUnavailableError(
            f"The log of {job.id} did not begin within {_FIRST_S:g} s. Ask again; the job itself goes on."
        ) from problem

    async def whole() -> AsyncGenerator[bytes]:
        async with aclosing(chunks):
            if first is not None:
                yield first
                async for chunk in chunks:
                    yield chunk

    return whole()


def of_attempt(job: Reservation, attempt: int | None) -> Reservation:
    """The job as its log of an attempt is read by it; None: its newest attempt. Raises NotFoundError."""
    if attempt is None:
        return job
    if attempt > job.attempt:
        newest = f"its newest one is {job.attempt}" if job.attempt else "it has had no GPUs so far"
        raise NotFoundError(f"{job.id} has no attempt {attempt}: {newest}.")
    return replace(job, attempt=attempt)


async def follow_log(
    services: Services, job: Reservation, *, timed: bool = False, attempt: int | None = None
) -> AsyncGenerator[bytes]:
    """Yield the log, as `read_log` does, until the job has ended; waits for a job that has not started.

    `attempt`: the log of this one alone, 0 of the first one that has output; None: of all from the newest one on.
    Raises ClusterUnavailableError if the log of an ended job can't be read to its end after several attempts.
    """
    backoff, failures = Backoff(SWEEP_S, _LONGEST_PAUSE_S), 0
    pods: list[_PodLog] = []
    read = 0
    while True:
        ticket = services.wakeups.ticket()
        job = await _newest(services, job)
        # The state is read before the log, so that nothing printed before a final state is missed.
        asked = 0 if attempt is None else read or attempt
        is_former = asked > 0 and (asked != job.attempt or job.status is JobStatus.QUEUED)
        if is_former:
            job = replace(job, attempt=asked)
        ended = is_former or job.status in FINAL_STATUSES
        starts_again = attempt is not None and job.outcome is JobStatus.QUEUED
        if is_former or (job.status not in _WITHOUT_OUTPUT and not starts_again):
            if read != job.attempt:
                read = job.attempt
                pods = [_PodLog(services, name, timed=timed) for name in _pods(job)]
            try:
                async with aclosing(_joined(pods, follow=not ended)) as chunks:
                    async for chunk in chunks:
                        failures = 0
                        backoff.reset()
                        yield chunk
            except ClusterUnavailableError as error:
                _log.warning("log_not_read", job=job.id, error=str(error))
                failures += ended
                if failures >= _FAILURES:
                    raise
                await asyncio.sleep(backoff.next())
                continue
        if ended:
            return
        await services.wakeups.wait(ticket)


def _pods(job: Reservation) -> list[PodName]:
    return [PodName(job.id, job.attempt, rank) for rank in range(job.nodes)] if job.attempt else []


async def _newest(services: Services, job: Reservation) -> Reservation:
    try:
        async with services.stream_reads, services.runtime.uow() as uow:
            return (await uow.reservations.get([job.id])).get(job.id, job)
    except DatabaseUnavailableError as error:
        _log.warning("log_not_followed", job=job.id, error=str(error))
        return job


async def _joined(pods: list[_PodLog], *, follow: bool) -> AsyncGenerator[bytes]:
    if len(pods) == 1:
        async with aclosing(pods[0].read(follow=follow)) as chunks:
            async for chunk in chunks:
                yield chunk
        return
    if not follow:
        for rank, pod in enumerate(pods):
            async with aclosing(_lines(pod, rank, follow=False)) as lines:
                async for line in lines:
                    yield line
        return
    async with aclosing(_merged(pods)) as lines:
        async for line in lines:
            yield line


async def _merged(pods: list[_PodLog]) -> AsyncGenerator[bytes]:
    """The lines of all ranks as they come."""
    queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue(_AHEAD)

    async def pass_on(pod: _PodLog, rank: int) -> None:
        try:
            async with aclosing(_lines(pod, rank, follow=True)) as lines:
                async for line in lines:
                    await queue.put(line)
        except Exception as error:  # noqa: BLE001 - passed on to the reader, which would wait for ever without it
            await queue.put(error)
        else:
            await queue.put(None)

    tasks = [asyncio.create_task(pass_on(pod, rank)) for rank, pod in enumerate(pods)]
    try:
        going = len(tasks)
        while going:
            item = await queue.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                going -= 1
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _lines(pod: _PodLog, rank: int, *, follow: bool) -> AsyncGenerator[bytes]:
    """A pod's log with `[rank] ` before each line; a very long line is cut."""
    mark = f"[{rank}] ".encode()
    begin, partial = mark, b""
    async with aclosing(pod.read(follow=follow)) as chunks:
        async for chunk in chunks:
            *whole, partial = (partial + chunk).split(b"\n")
            if whole:
                yield begin + (b"\n" + mark).join(whole) + b"\n"
                begin = mark
            if len(partial) > _LONGEST_LINE:
                yield begin + partial + b"\n"
                begin, partial = mark + b"- " if pod.timed else mark, b""
    if partial:
        yield begin + partial + b"\n"


def _stretches(chunk: bytes, skipped: int) -> Iterator[tuple[int, int, datetime | None]]:
    """Begin, end and time of the stretches of a chunk that were printed at one time, without `skipped` bytes."""
    begin, at = skipped, None
    for offset, later in chunk.find_times() if isinstance(chunk, TimedOutput) else ():
        if begin < offset:
            yield begin, offset, at
            begin = offset
        at = later
    if begin < len(chunk):
        yield begin, len(chunk), at


def _end_of(chunk: bytes, count: int) -> bytes:
    """The last `count` bytes of a chunk, or of the output that it omits."""
    if not isinstance(chunk, OmittedOutput):
        return chunk[-count:]
    return chunk if count == chunk.left_out else OmittedOutput(count)


def _beyond(last: bytes, tail: bytes) -> bytes:
    """The part of a stored end of a log after the `last` bytes passed on; nothing where the two don't overlap."""
    place = tail.rfind(last)
    if place >= 0:
        return tail[place + len(last) :]
    # The stored end may begin in the middle of `last`.
    return next((tail[n:] for n in range(min(len(last), len(tail)), 0, -1) if last.endswith(tail[:n])), b"")


async def _close(chunks: AsyncIterator[bytes]) -> None:
    """Close a generator now rather than by the garbage collector; the port promises only an iterator."""
    if isinstance(chunks, AsyncGenerator):
        await chunks.aclose()
