"""Arrays of jobs: making their elements as others start, counting those that end, and ending all of them."""

from datetime import datetime, timedelta
from functools import partial

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.changes import CancelRequested, DecidedChange
from reservation_core.domain.errors import NotFoundError
from reservation_core.domain.jobs.arrays import changed, is_cancelled, to_make, unmade_element
from reservation_core.domain.jobs.lifecycle import decide
from reservation_core.domain.model import Reservation
from reservation_core.domain.statuses import FINAL_STATUSES, JobStatus, ReasonCode
from reservation_core.ports.clock import Clock
from reservation_core.ports.jobs.reservations import JobView
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.wakeups import Channel
from reservation_core.usecases.carry_out import carry_out
from reservation_core.usecases.jobs.submit import ACCEPTED
from reservation_core.usecases.jobs.visible_jobs import view_visible
from reservation_core.usecases.repeat_lost_transactions import repeat_lost

_BATCH = 100
_CANCELLED_AT_ONCE = 500
_SHORTEST_REST = timedelta(seconds=1)
_LONGEST_REST = timedelta(seconds=30)


class RestingArrays:
    """Arrays whose last step failed. They rest for a growing time, in which other arrays go on.

    Kept in memory: after a restart, and by another leader, all are tried at once.
    """

    def __init__(self) -> None:
        self._rests: dict[str, tuple[datetime, timedelta]] = {}

    def resting(self, now: datetime) -> list[str]:
        """Ids of the arrays that rest at `now`."""
        return [array_id for array_id, (until, _) in self._rests.items() if now < until]

    def failed(self, array_id: str, now: datetime) -> None:
        """Let an array rest, twice as long as the last time."""
        before = self._rests.get(array_id)
        rest = _SHORTEST_REST if before is None else min(2 * before[1], _LONGEST_REST)
        self._rests[array_id] = (now + rest, rest)

    def succeeded(self, array_id: str) -> None:
        """Forget that steps of an array have failed."""
        self._rests.pop(array_id, None)


async def settle_arrays(uow_factory: UnitOfWorkFactory, clock: Clock, resting: RestingArrays) -> int:
    """Bring arrays to where their elements are. Returns how much news there was.

    The news of an array is taken in the transaction that acts on it, so that none is lost. An array whose step fails
    rests, and the others are settled before the error is raised.
    """
    async with uow_factory(one_statement=True) as uow:
        ids = await uow.arrays.with_news(_BATCH, resting.resting(clock.now()))
    total = 0
    errors: list[Exception] = []
    for array_id in ids:
        try:
            total += await repeat_lost(partial(_settle, uow_factory, array_id, clock))
        except Exception as error:  # noqa: BLE001 -- raised once the other arrays are settled
            resting.failed(array_id, clock.now())
            errors.append(error)
        else:
            resting.succeeded(array_id)
    if errors:
        raise ExceptionGroup("steps of arrays failed", errors)
    return total


async def _settle(uow_factory: UnitOfWorkFactory, array_id: str, clock: Clock) -> int:
    async with uow_factory() as uow:
        array = (await uow.reservations.lock([array_id])).get(array_id)
        if array is None:
            await uow.arrays.forget_news(array_id)
            return 1
        return await settle_array(uow, array, clock.now())


async def end_elements(uow: UnitOfWork, array_id: str, now: datetime) -> None:
    """End the elements of a cancelled array. Those that wait end at once; without others the array does, too."""
    for _ in range(2):
        await settle_array(uow, (await uow.reservations.lock([array_id]))[array_id], now)


async def settle_array(uow: UnitOfWork, array: Reservation, now: datetime) -> int:
    """Count what has happened to an array, whose row is locked, and make or cancel elements, or end it.

    Returns how much has happened.
    """
    taken = await uow.arrays.take_news(array.id)
    if taken is None:
        return 0
    state, news = taken
    change = decide(array, changed(array, state), now)
    await carry_out(uow, [] if change is None else [change])
    if count := to_make(array, state):
        await uow.arrays.make(array.id, count, ACCEPTED, now)
        uow.wake(Channel.GPU_JOBS)
        uow.wake(Channel.EVENTS)
    elif is_cancelled(array) and state.ended < state.made:
        await _cancel_elements(uow, array, now)
    return news


async def _cancel_elements(uow: UnitOfWork, array: Reservation, now: datetime) -> None:
    ids = await uow.arrays.open_elements(array.id, _CANCELLED_AT_ONCE)
    by_admin = array.reason.code is not ReasonCode.CANCELLED_BY_USER
    event = CancelRequested(array.user, by_admin, f"Its array {array.id} was.")
    changes: list[DecidedChange] = []
    for element in (await uow.reservations.lock(ids)).values():
        change = None if element.status in FINAL_STATUSES else decide(element, event, now)
        if change is not None:
            changes.append(change)
    await carry_out(uow, changes)
    if len(ids) == _CANCELLED_AT_ONCE:
        await uow.arrays.note(array.id)


async def elements(
    uow: UnitOfWork,
    principal: Principal,
    array_id: str,
    statuses: frozenset[JobStatus] | None,
    *,
    after: int,
    limit: int,
) -> list[JobView]:
    """Elements of an array with indexes beyond `after`, in their order, also those that have not entered the queue.

    Raises NotFoundError, also for a job that is not an array.
    """
    array = await view_visible(uow, principal, array_id)
    if array.reservation.array is None:
        raise NotFoundError(f"{array_id} is not an array, so it has no elements.")
    state = (await uow.arrays.states([array_id]))[array_id]
    made = await uow.reservations.element_views(array_id, statuses, after=after, before=state.made, limit=limit)
    unmade = [
        JobView(unmade_element(array.reservation, index), None, None, ())
        for index in range(max(after + 1, state.made), min(state.size, max(after + 1, state.made) + limit - len(made)))
    ]
    return made + [view for view in unmade if statuses is None or view.reservation.status in statuses]
