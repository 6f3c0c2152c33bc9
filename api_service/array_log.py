"""The log of an array: those of its elements one after the other, each line with the element's index."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from api_service.job_log import follow_log, read_log
from api_service.services import Services
from reservation_core.domain.errors import NotFoundError
from reservation_core.domain.request_terms import element_id
from reservation_core.domain.statuses import FINAL_STATUSES
from reservation_core.ports.jobs.reservations import JobView
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.jobs.arrays import elements
from reservation_core.usecases.jobs.visible_jobs import view_visible

_PAGE = 100
_LONGEST_LINE = 64 * 1024


async def read_array_log(
    services: Services, caller: Principal, array: JobView, *, timed: bool
) -> AsyncGenerator[bytes]:
    """The logs so far of all elements that have had GPUs, in the order of their indexes."""
    after = -1
    while True:
        async with services.stream_reads, services.runtime.uow() as uow:
            page = await elements(uow, caller, array.reservation.id, None, after=after, limit=_PAGE)
        for view in page:
            if view.reservation.attempt and view.reservation.element is not None:
                chunks = await read_log(services, view.reservation, timed=timed)
                async with aclosing(_marked(chunks, view.reservation.element.index)) as lines:
                    async for line in lines:
                        yield line
        last = page[-1].reservation.element if len(page) == _PAGE else None
        if last is None:
            return
        after = last.index


async def follow_array_log(
    services: Services, caller: Principal, array: JobView, *, timed: bool
) -> AsyncGenerator[bytes]:
    """As `read_array_log`; waits for each element to end before it goes on to the next one."""
    terms = array.reservation.array
    for index in range(0 if terms is None else terms.size):
        view = await _made(services, caller, element_id(array.reservation.id, index))
        if view is None:
            continue
        chunks = follow_log(services, view.reservation, timed=timed, attempt=0)
        async with aclosing(_marked(chunks, index)) as lines:
            async for line in lines:
                yield line


async def _made(services: Services, caller: Principal, job_id: str) -> JobView | None:
    """An element once it has entered the queue; None where it never will, or is gone."""
    while True:
        ticket = services.wakeups.ticket()
        async with services.stream_reads, services.runtime.uow() as uow:
            row = (await uow.reservations.get([job_id])).get(job_id)
            try:
                view = await view_visible(uow, caller, job_id)
            except NotFoundError:
                return None  # so old that it was removed
        if row is not None:
            return view
        if view.reservation.status in FINAL_STATUSES:
            return None
        await services.wakeups.wait(ticket)


async def _marked(chunks: AsyncGenerator[bytes], index: int) -> AsyncGenerator[bytes]:
    """A log with `[index] ` before each line; a very long line is cut."""
    mark = f"[{index}] ".encode()
    partial = b""
    async with aclosing(chunks):
        async for chunk in chunks:
            *whole, partial = (partial + bytes(chunk)).split(b"\n")
            if whole:
                yield mark + (b"\n" + mark).join(whole) + b"\n"
            if len(partial) > _LONGEST_LINE:
                yield mark + partial + b"\n"
                partial = b""
    if partial:
        yield mark + partial + b"\n"
