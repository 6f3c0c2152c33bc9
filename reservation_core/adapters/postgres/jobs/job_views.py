"""Jobs as people read them: with place in line, reason, estimated start and GPUs.

The planner alone estimates: a start is its slot in the ledger, or what `domain.pools.forecast` said of a job without
one. A job that the planner has not looked at has no estimate and no place.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.adapters.postgres.jobs.arrays import Arrays
from reservation_core.adapters.postgres.jobs.dependencies import Dependencies
from reservation_core.adapters.postgres.rows import allocated_gpu_of, reservation_of
from reservation_core.adapters.postgres.sealing import PLAIN, Sealing
from reservation_core.domain.jobs.arrays import ArrayState, counts_of, shown_reason, shown_status
from reservation_core.domain.jobs.asked_dependencies import DependencyState
from reservation_core.domain.jobs.dependencies import (
    UNKNOWN_START,
    KnownDependency,
    kept_start,
    last_first,
    waiting_reason,
)
from reservation_core.domain.model import Reason
from reservation_core.domain.statuses import JobStatus, ReasonCode
from reservation_core.ports.jobs.reservations import JobFilter, JobView, PredictedStart, SharedFilter

_FIRST_PRIORITY = -(2**31)
_LAST_SEQ = 2**63 - 1
_FOREVER = datetime.max.replace(tzinfo=UTC)
SHARES_LOOKED_AT = 1000
"""So many shares of a user are looked at for a page: those with the statuses and of the owner that are asked for."""


class JobViews:
    """The reading half of ports.jobs.reservations.Reservations."""

    def __init__(self, connection: AsyncConnection, sealing: Sealing = PLAIN) -> None:
        self._connection = connection
        self._sealing = sealing

    async def view(self, reservation_id: str, user_id: int | None) -> JobView | None:
        """One job as its owner, a user that it is shared with, or (with None) an administrator sees it."""
        found = await self._connection.execute(
            statement("view_reservation"), {"id": reservation_id, "user_id": user_id}
        )
        views = await self._views(found.all())
        return views[0] if views else None

    async def views(self, which: JobFilter, *, limit: int, before_seq: int | None) -> list[JobView]:
        """Newest first, older than `before_seq`."""
        parameters: dict[str, Any] = {
            "limit": limit,
            "before_seq": _LAST_SEQ if before_seq is None else before_seq,
            "statuses": None if which.statuses is None else [status.value for status in which.statuses],
        }
        user_id = which.user_id
        if which.user is not None:
            named_id = await self._user_id(which.user)
            if named_id is None or user_id not in (None, named_id):
                return []
            user_id = named_id
        found = await self._connection.execute(statement("view_reservations"), {**parameters, "user_id": user_id})
        return await self._views(found.all())

    async def shared_views(
        self, user_id: int, which: SharedFilter, *, limit: int, before: tuple[datetime, str] | None
    ) -> list[tuple[JobView, datetime]]:
        """Jobs that are shared with a user, the last shared first, with when that was.

        `before`: the time and the id of the last seen. Looks at the last SHARES_LOOKED_AT shares.
        """
        owner_id = None if which.owner is None else await self._user_id(which.owner)
        if which.owner is not None and owner_id is None:
            return []
        before_at, before_id = (_FOREVER, "") if before is None else before
        found = await self._connection.execute(
            statement("view_shared"),
            {
                "user_id": user_id,
                "owner_id": owner_id,
                "statuses": None if which.statuses is None else [status.value for status in which.statuses],
                "before_at": before_at,
                "before_id": before_id,
                "scanned": SHARES_LOOKED_AT,
                "limit": limit,
            },
        )
        rows = found.all()
        return list(zip(await self._views(rows), (row.shared_at for row in rows), strict=True))

    async def _user_id(self, name: str) -> int | None:
        named = await self._connection.execute(statement("user_id_of_name"), {"name": name})
        user_id: int | None = named.scalar_one_or_none()
        return user_id

    async def element_views(
        self, array_id: str, statuses: Collection[JobStatus] | None, *, after: int, before: int, limit: int
    ) -> list[JobView]:
        """Elements of an array that were made, with indexes between these, in their order."""
        found = await self._connection.execute(
            statement("view_elements"),
            {
                "array_id": array_id,
                "statuses": None if statuses is None else [status.value for status in statuses],
                "after": after,
                "before": before,
                "limit": limit,
            },
        )
        return await self._views(found.all())

    async def waiting_views(self, user_id: int | None, *, limit: int, after: tuple[int, int] | None) -> list[JobView]:
        """Waiting jobs, by priority and arrival; `after` is the last seen (-priority, seq)."""
        after_priority, after_seq = (_FIRST_PRIORITY, 0) if after is None else after
        found = await self._connection.execute(
            statement("view_waiting"),
            {"user_id": user_id, "limit": limit, "after_priority": after_priority, "after_seq": after_seq},
        )
        return await self._views(found.all())

    async def predicted_starts(self, ids: Collection[str]) -> dict[str, PredictedStart]:
        """What the planner last predicted of these jobs, of those of which it predicted anything."""
        found = await self._connection.execute(statement("predicted_starts"), {"ids": list(ids)})
        return {row.id: PredictedStart(row.p50, row.p90) for row in found}

    async def waiting_totals(self) -> list[tuple[str | None, int, int]]:
        """Per requested type: (gpu_type, waiting jobs, waiting GPUs)."""
        found = await self._connection.execute(statement("waiting_totals"))
        return [(row.gpu_type, row.jobs, row.gpus) for row in found]

    async def _views(self, rows: Sequence[Row[Any]]) -> list[JobView]:
        # A job that waits again has given back what an attempt before had.
        ids = [row.id for row in rows if row.attempt > 0 and row.status != "queued"]
        allocations = {}
        if ids:
            found = await self._connection.execute(statement("reservation_allocations"), {"ids": ids})
            allocations = {
                reservation_id: tuple(allocated_gpu_of(row) for row in group)
                for reservation_id, group in groupby(found.mappings(), key=lambda row: row["reservation_id"])
            }
        # A booking has a line of its own, and the planner tells everybody in it.
        places = await self._places_behind_the_told(
            [
                row
                for row in rows
                if row.status == "queued" and row.position is None and row.booking_id is None and not row.held
            ]
        )
        dependent = [row.id for row in rows if row.held is not None]
        after = await Dependencies(self._connection).of(dependent) if dependent else {}
        arrays = [row.id for row in rows if row.array_size is not None and row.array_id is None]
        states = await Arrays(self._connection).states(arrays) if arrays else {}
        views = [
            self._view(row, places.get(row.id), allocations.get(row.id, ()), after.get(row.id, ())) for row in rows
        ]
        views = [
            view if (state := states.get(view.reservation.id)) is None else _array_view(view, state) for view in views
        ]
        waiting = [view.reservation.id for view in views if view.counts is not None and _has_made_no_start(view)]
        first = await self._first_elements(waiting) if waiting else {}
        return [
            view if (element := first.get(view.reservation.id)) is None else _as_its_first(view, element)
            for view in views
        ]

    async def _first_elements(self, array_ids: list[str]) -> dict[str, JobView]:
        """Of arrays none of whose elements has started, the element that is next; none where it is not made yet."""
        rows = (await self._connection.execute(statement("view_next_elements"), {"array_ids": array_ids})).all()
        return {row.array_id: view for row, view in zip(rows, await self._views(rows), strict=True)}

    async def _places_behind_the_told(self, rows: Sequence[Row[Any]]) -> dict[str, int]:
        """Places of jobs too far behind to be told one: those told come first, then the order of the line."""
        if not rows:
            return {}
        ordered = sorted(rows, key=lambda row: (row.line_type, row.line_priority, row.seq))
        froms: list[tuple[int, int]] = []
        for i, row in enumerate(ordered):
            previous = ordered[i - 1] if i and ordered[i - 1].line_type == row.line_type else None
            froms.append((_FIRST_PRIORITY, 0) if previous is None else (previous.line_priority, previous.seq))
        found = await self._connection.execute(
            statement("places_behind_the_told"),
            {
                "ids": [row.id for row in ordered],
                "types": [row.line_type for row in ordered],
                "priorities": [row.line_priority for row in ordered],
                "seqs": [row.seq for row in ordered],
                "from_priorities": [priority for priority, _ in froms],
                "from_seqs": [seq for _, seq in froms],
                "slotted": [row.slot_start is not None for row in ordered],
            },
        )
        parts = {row.id: row for row in found}
        places: dict[str, int] = {}
        jobs = 0
        for i, row in enumerate(ordered):
            if i and ordered[i - 1].line_type != row.line_type:
                jobs = 0
            jobs += parts[row.id].jobs
            if parts[row.id].placed:
                places[row.id] = jobs + parts[row.id].told_behind
        return places

    def _view(
        self, row: Row[Any], place: int | None, allocations: tuple[Any, ...], after: tuple[KnownDependency, ...]
    ) -> JobView:
        reservation = reservation_of(row._mapping, self._sealing)  # noqa: SLF001 -- public, by its documentation
        if row.status == "queued" and row.held and any(one.state is not DependencyState.MET for one in after):
            after = last_first(after)
            start = UNKNOWN_START if row.slot_start is None else kept_start(row.gpus)
            reservation = replace(reservation, reason=waiting_reason(after, start))
        elif row.wait_code is not None:
            again = f" {reservation.reason.detail}" if reservation.reason.code is ReasonCode.REQUEUED else ""
            reservation = replace(reservation, reason=Reason(ReasonCode(row.wait_code), row.wait_reason + again))
        elif place is not None and place > 1:
            ahead = "1 job is" if place == 2 else f"{place - 1} jobs are"
            detail = f"{ahead} ahead of it in this queue."
            detail += "" if row.slot_start is None else f" {kept_start(row.gpus)}"
            reservation = replace(reservation, reason=Reason(ReasonCode.BEHIND_IN_LINE, detail))
        # The slot in the ledger is what holds; what was told last may be older.
        estimate = row.estimated_start_at if row.slot_start is None else row.slot_start
        return JobView(
            reservation,
            row.position if place is None else place,
            estimate,
            allocations,
            row.promised_start_at,
            _predicted_start(row),
            None if row.shared_with is None else tuple(row.shared_with),
            after,
        )


def _array_view(view: JobView, state: ArrayState) -> JobView:
    """An array as its elements make it look: its row waits until all of them are over."""
    counts = counts_of(view.reservation, state)
    status, reason = shown_status(view.reservation, counts), shown_reason(view.reservation, counts)
    return replace(view, reservation=replace(view.reservation, status=status, reason=reason), counts=counts)


def _has_made_no_start(array: JobView) -> bool:
    return array.reservation.status is JobStatus.QUEUED and array.reservation.reason.code is ReasonCode.SUBMITTED


def _as_its_first(array: JobView, element: JobView) -> JobView:
    """An array that waits, with the place, the start and the reason of its first element."""
    return replace(
        array,
        reservation=replace(array.reservation, reason=element.reservation.reason),
        queue_position=element.queue_position,
        estimated_start_at=element.estimated_start_at,
        promised_start_at=element.promised_start_at,
        predicted_start=element.predicted_start,
    )


def _predicted_start(row: Row[Any]) -> PredictedStart | None:
    """The prediction of a waiting job, which a slot that became earlier since then bounds."""
    p50, p90 = row.estimated_start_p50, row.estimated_start_p90
    if p50 is None or p90 is None or (row.held and row.slot_start is None):
        return None
    if row.slot_start is None:
        return PredictedStart(p50, p90)
    return PredictedStart(min(p50, row.slot_start), min(p90, row.slot_start))
