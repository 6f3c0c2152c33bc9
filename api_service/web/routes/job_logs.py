"""The log of a job: on its page, as it grows, as a file, around a line, and the lines that hold a text."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from starlette.responses import Response

from api_service.array_log import read_array_log
from api_service.following import LiveStream
from api_service.job_log import follow_log, of_attempt, read_log
from api_service.problems import ProblemError
from api_service.web.jobs.log_search import find_lines, read_part
from api_service.web.jobs.log_tail import Tail, read_tail, stream_lines
from api_service.web.rendering import json_data
from api_service.web.routing import WebRoute
from api_service.web.visit import Visit
from reservation_core.domain.statuses import JobStatus
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.jobs.reservations import JobView
from reservation_core.usecases.jobs.visible_jobs import view_visible

_LINES = 500
_BYTES = 4 * 2**20
_LAST_LINE = 10**9
_LONGEST_TEXT = 200
_READ_S = 30.0
_WITHOUT_LOG = frozenset({JobStatus.QUEUED, JobStatus.STARTING})


@dataclass(frozen=True, slots=True)
class ShownLog:
    """The log on a job's page, or why it can't be read now. `line`: the page is of lines around this one.

    `numbered`: its lines have numbers that stay. The ranks of a job on several nodes print in an order of their own.
    """

    tail: Tail
    numbered: bool
    trouble: str | None = None
    line: int | None = None
    last: int = 0


async def shown_log(visit: Visit, view: JobView) -> ShownLog:
    """The end of the log, or the lines around the one in the page's address."""
    numbered = _is_numbered(view)
    if view.reservation.status in _WITHOUT_LOG:
        return ShownLog(Tail(), numbered)
    line = _asked_line(visit) if numbered else None
    try:
        if line is not None:
            async with _whole_log(visit, view, timed=True) as chunks:
                part = await read_part(chunks, line, _write_time(visit))
            return ShownLog(part.tail, numbered, line=line, last=part.last)
        chunks_so_far: AsyncGenerator[bytes] = await read_log(visit.services, view.reservation, timed=True)
        async with aclosing(chunks_so_far):
            return ShownLog(
                await read_tail(
                    chunks_so_far, lines=_LINES, at_most=_BYTES, numbered=numbered, write_time=_write_time(visit)
                ),
                numbered,
            )
    except ClusterUnavailableError as error:
        return ShownLog(Tail(), numbered, str(error), line)


async def log_part(visit: Visit) -> Response:
    """The lines around one, as HTML."""
    view = await _owned(visit)
    line = _asked_line(visit)
    if line is None or not _is_numbered(view):
        raise ProblemError(422, "invalid_request", "Lines are numbered from 1, and only if the job has one node.")
    async with _whole_log(visit, view, timed=True) as chunks:
        part = await read_part(chunks, line, _write_time(visit))
    tail = part.tail
    found = {"lines": tail.lines, "times": tail.times, "first": tail.first, "numbered": tail.numbered}
    return json_data(visit.request, found | {"last": part.last})


async def log_matches(visit: Visit) -> Response:
    """The numbers of the lines that hold a text."""
    view = await _owned(visit)
    wanted = visit.request.query_params.get("text", "")
    if not 0 < len(wanted) <= _LONGEST_TEXT or not _is_numbered(view):
        raise ProblemError(422, "invalid_request", f"Look for a text of 1 to {_LONGEST_TEXT} letters.")
    async with _whole_log(visit, view) as chunks:
        # A page gives up a search when its reader types on.
        found = await find_lines(chunks, wanted, visit.request.is_disconnected)
    return json_data(visit.request, {"lines": found.numbers, "count": found.count, "last": found.last})


async def log_stream(visit: Visit) -> Response:
    """The log as server-sent events."""
    view = await _owned(visit)
    return LiveStream(
        stream_lines(
            follow_log(visit.services, view.reservation, timed=True),
            numbered=_is_numbered(view),
            write_time=_write_time(visit),
        ),
        media_type="text/event-stream",
        place=visit.stream_place(),
        wakeups=visit.services.wakeups,
        recheck=lambda: visit.services.authenticator.principal(f"Bearer {visit.signed_in.secret}", session=True),
    )


async def log_file(visit: Visit) -> Response:
    """The log of an attempt as a file."""
    view = await _owned(visit)
    job = of_attempt(view.reservation, _asked_attempt(visit))
    if job.array is None:
        chunks = await read_log(visit.services, job)
    else:
        chunks = read_array_log(visit.services, visit.principal, view, timed=False)
    place = visit.stream_place()  # before the cluster is asked: a refusal is cheaper
    response = LiveStream(
        chunks,
        media_type="text/plain; charset=utf-8",
        place=place,
        wakeups=visit.services.wakeups,
        recheck=lambda: visit.services.authenticator.principal(f"Bearer {visit.signed_in.secret}", session=True),
    )
    named = "" if job.attempt == view.reservation.attempt else f"-{job.attempt}"
    response.headers["Content-Disposition"] = f'attachment; filename="{job.id}{named}.log"'
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response


@asynccontextmanager
async def _whole_log(visit: Visit, view: JobView, *, timed: bool = False) -> AsyncIterator[AsyncGenerator[bytes]]:
    """The log so far, for a bounded time and within the visitor's number of streams."""
    with visit.stream_place():
        try:
            async with asyncio.timeout(_READ_S):
                chunks: AsyncGenerator[bytes] = await read_log(visit.services, view.reservation, timed=timed)
                async with aclosing(chunks):
                    yield chunks
        except TimeoutError as error:
            raise ClusterUnavailableError(
                f"The log could not be read within {_READ_S:g} s. Download it to look at all of it."
            ) from error


def _write_time(visit: Visit) -> Callable[[str], str]:
    """Writes the time of a line, to the second, in the page's zone."""
    zone = visit.zone

    def write(stamp: str) -> str:
        try:
            local = datetime.fromisoformat(stamp).astimezone(zone)
        except (ValueError, OverflowError):
            return ""  # printed text that looks like a time
        return f"{local:%a} {local.day} {local:%b %H:%M:%S}"

    return write


def _asked_line(visit: Visit) -> int | None:
    typed = visit.query("line")
    if not (typed.isascii() and typed.isdecimal() and len(typed) <= len(str(_LAST_LINE))):
        return None
    return min(int(typed), _LAST_LINE) or None


def _asked_attempt(visit: Visit) -> int | None:
    typed = visit.query("attempt")
    is_number = typed.isascii() and typed.isdecimal() and len(typed) <= len(str(_LAST_LINE))
    return (int(typed) or None) if is_number else None


def _is_numbered(view: JobView) -> bool:
    return view.reservation.nodes == 1


async def _owned(visit: Visit) -> JobView:
    async with visit.services.runtime.uow() as uow:
        return await view_visible(uow, visit.principal, visit.path("job_id"))


ROUTES = (
    WebRoute("GET", "/jobs/{job_id}/log", log_stream),
    WebRoute("GET", "/jobs/{job_id}/log.txt", log_file),
    WebRoute("GET", "/jobs/{job_id}/log/part", log_part),
    WebRoute("GET", "/jobs/{job_id}/log/matches", log_matches),
)
