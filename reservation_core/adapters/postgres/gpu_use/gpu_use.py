"""Samples of the use of GPUs in PostgreSQL."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import asyncpg
from sqlalchemy import Row

from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.domain.calendar import EPOCH
from reservation_core.domain.gpu_use.idle_rules import IdleWarning
from reservation_core.domain.gpu_use.idleness import WatchedJob
from reservation_core.domain.gpu_use.roll_ups import Level, UsePoint
from reservation_core.domain.gpu_use.samples import ERRORS_LAST, GpuSample
from reservation_core.domain.gpu_use.spans import Resolution, Span
from reservation_core.domain.policy.nouns import UsageBy
from reservation_core.domain.policy.usage import UsedGpus
from reservation_core.domain.statuses import GpuState, ReservationKind
from reservation_core.ports.gpu_use import GpuHolder, GpuUseNow, HeldGpu, HoldingJob, NewestSample

_KIB = 1024
_THOUSANDTHS = 1000
_COLUMNS = {
    "at": "ats", "gpu_id": "gpu_ids", "memory_kib": "memory", "power_w": "power", "ecc_errors": "ecc_errors",
    "utilisation": "utilisation", "temperature_c": "temperatures", "xid": "xids", "processes": "processes",
}  # fmt: skip
"""Columns of samples, and the parameters of `add_gpu_samples`."""

_SampleRow = tuple[datetime, int, int | None, float | None, int | None, int | None, int | None, int, int | None]


class GpuUse(StatementRunner):
    """Stores samples, rolls them up, and reads points of graphs."""

    async def gpu_ids(self, places: Collection[tuple[str, str | None]]) -> dict[tuple[str, str | None], int]:
        """The GPUs by UUID and node, as far as the inventory has them there; with None on any node."""
        uuids, nodes = [uuid for uuid, _ in places], [node for _, node in places]
        row = (await self._run("gpus_of_uuids", uuids=uuids, nodes=nodes)).one()
        return dict(zip(zip(row.uuids or (), row.nodes or (), strict=True), row.ids or (), strict=True))

    async def lock(self) -> dict[Resolution, datetime]:
        """Until when roll-ups are made; keep others from storing and rolling up until the transaction ends."""
        return _rolled((await self._run("lock_gpu_use")).one())

    async def rolled(self) -> dict[Resolution, datetime]:
        """The same without a lock."""
        return _rolled((await self._run("gpu_use_rolled")).one())

    async def move(self, rolled: Mapping[Resolution, datetime]) -> None:
        """Note until when roll-ups are made; only for who has the lock."""
        until = {"minutes_until": rolled[Resolution.MINUTES], "hours_until": rolled[Resolution.HOURS]}
        await self._run("move_gpu_use", **until)

    async def forget_to_come(self, now: datetime, rolled: Mapping[Resolution, datetime]) -> None:
        """Remove what was seen after `now`, and roll-ups from `rolled` on; roll up from there. Only with the lock."""
        until = {"minutes_until": rolled[Resolution.MINUTES], "hours_until": rolled[Resolution.HOURS]}
        await self._run("forget_gpu_use_to_come", now=now, **until)
        await self.move(rolled)

    async def add(self, samples: Sequence[tuple[int, GpuSample]]) -> None:
        """Store samples by GPU id, by COPY. Those that are stored already stay as they are."""
        rows = [_row_of(gpu_id, sample) for gpu_id, sample in samples]
        try:
            async with self._connection.begin_nested():
                await self._copy(rows)
        except asyncpg.UniqueViolationError:
            columns = zip(*rows, strict=True)
            await self._run("add_gpu_samples", **dict(zip(_COLUMNS.values(), map(list, columns), strict=True)))

    async def roll_up(self, resolution: Resolution, start: datetime, until: datetime) -> None:
        """Make the roll-ups of a resolution in [start, until) from the next finer ones."""
        name = "roll_gpu_minutes" if resolution is Resolution.MINUTES else "roll_gpu_hours"
        await self._run(name, start=start, until=until)

    async def sum_up(self, hour: datetime) -> None:
        """Sum up what users and projects used in an hour; what was summed up of it before is made anew."""
        await self._run("forget_gpu_use_sums", start=hour)
        await self._run("sum_up_gpu_use", start=hour, until=hour + Resolution.HOURS.step)

    async def used(self, by: UsageBy, user_id: int | None, spans: Sequence[Span]) -> dict[str | None, UsedGpus]:
        """The use of GPUs in spans of hours and minutes, by key; of one user, or with None of all."""
        hours = [span for span in spans if span.resolution is Resolution.HOURS]
        minutes = [span for span in spans if span.resolution is Resolution.MINUTES]
        rows = await self._run(
            "used_gpus",
            by=by.value,
            user_id=user_id,
            start=min((span.start for span in hours), default=EPOCH),
            until=max((span.end for span in hours), default=EPOCH),
            starts=[span.start for span in minutes],
            untils=[span.end for span in minutes],
        )
        return {
            row.key: UsedGpus(int(row.samples), row.utilised, None if row.memory_kib is None else row.memory_kib * _KIB)
            for row in rows
        }

    async def used_by_step(
        self, by: UsageBy, user_id: int | None, start: datetime, until: datetime, step: timedelta
    ) -> dict[tuple[str | None, int], UsedGpus]:
        """The use of GPUs by key and number of the step, in hours that are summed up; of one user, or of all."""
        rows = await self._run("used_gpus_by_step", by=by.value, user_id=user_id, start=start, until=until, step=step)
        return {(row.key, row.step): UsedGpus(int(row.samples), row.utilised) for row in rows}

    async def oldest(self, resolution: Resolution, since: datetime) -> datetime | None:
        """The time of the oldest of what roll-ups of a resolution are made from, at or after a time."""
        name = "oldest_gpu_sample" if resolution is Resolution.MINUTES else "oldest_gpu_minute"
        found: datetime | None = (await self._run(name, since=since)).scalar_one()
        return found

    async def oldest_hour(self, gpu_ids: Collection[int]) -> datetime | None:
        """The begin of the oldest roll-up by hour of any of these GPUs."""
        found: datetime | None = (await self._run("oldest_gpu_hour", gpu_ids=list(gpu_ids))).scalar_one()
        return found

    async def of_job(self, job_id: str) -> list[HeldGpu]:
        """The GPUs that a job has or had, of all its attempts."""
        return [_held(row) for row in await self._run("gpus_of_job", id=job_id)]

    async def of_node(self, node: str) -> list[HeldGpu]:
        """The GPUs of a node."""
        return [_held(row) for row in await self._run("gpus_of_node", name=node)]

    async def holding_jobs(self, *, warned: bool) -> list[HoldingJob]:
        """Running jobs outside of bookings with the GPUs that they hold; or those with a warning alone."""
        return [_holding(row) for row in await self._run("watched_jobs", warned=warned)]

    async def quiet(self, looks: Sequence[tuple[int, datetime, float]], now: datetime) -> set[int]:
        """Of GPUs, each with a time and a utilisation (0 to 1), those with samples since, all of which are below it."""
        values = {
            "gpu_ids": [gpu_id for gpu_id, _, _ in looks],
            "sinces": [since for _, since, _ in looks],
            "leasts": [below * _THOUSANDTHS for _, _, below in looks],
        }
        return set((await self._run("quiet_gpus", **values, now=now)).scalars())

    async def points(self, spans: Sequence[tuple[int, Span]], step: timedelta) -> dict[int, list[UsePoint]]:
        """The points of GPUs in such steps, by GPU id; two spans may have points of one step."""
        found: dict[int, list[UsePoint]] = {}
        for row in await self._run(
            "gpu_use_points",
            gpu_ids=[gpu_id for gpu_id, _ in spans],
            resolutions=[span.resolution.value for _, span in spans],
            starts=[span.start for _, span in spans],
            untils=[span.end for _, span in spans],
            step=step,
        ):
            found.setdefault(row.gpu_id, []).append(_point(row))
        return found

    async def of_now(
        self, after: tuple[str, int] | None, limit: int, now: datetime, lasts: timedelta
    ) -> list[GpuUseNow]:
        """So many GPUs after one, by node and index, with their use; a sample counts for the time `lasts`."""
        node, index = after or ("", -1)
        rows = await self._run(
            "gpu_use_now",
            since=now - lasts,
            errors_since=now - max(lasts, ERRORS_LAST),
            after_node=node,
            after_index=index,
            limit=limit,
        )
        return [_use_now(row) for row in rows]

    async def _copy(self, rows: Sequence[_SampleRow]) -> None:
        pooled = await self._connection.get_raw_connection()
        driver: asyncpg.Connection = pooled.driver_connection
        try:
            await driver.copy_records_to_table("gpu_samples", records=rows, columns=list(_COLUMNS))
        except BaseException as error:
            if driver.is_closed() or not isinstance(error, asyncpg.PostgresError):
                # Broken, or left in the middle: SQLAlchemy saw nothing of it and would hand it to the next.
                await self._connection.invalidate()
            raise


def _row_of(gpu_id: int, sample: GpuSample) -> _SampleRow:
    return (
        sample.at,
        gpu_id,
        None if sample.memory_used is None else sample.memory_used // _KIB,
        sample.power_w,
        sample.ecc_uncorrected,
        None if sample.utilisation is None else round(sample.utilisation * _THOUSANDTHS),
        sample.temperature_c,
        sample.xid or 0,
        None if sample.processes is None else len(sample.processes),
    )


def _rolled(row: Row[Any]) -> dict[Resolution, datetime]:
    return {Resolution.MINUTES: row.minutes_until, Resolution.HOURS: row.hours_until}


def _held(row: Row[Any]) -> HeldGpu:
    return HeldGpu(
        gpu_id=row.gpu_id,
        node=row.node,
        index=row.card_index,
        uuid=row.uuid,
        gpu_type=row.gpu_type,
        memory_bytes=row.memory_bytes,
        simulated=row.labels.get("gpu-dev/simulated") == "true",
        start=row.start,
        until=row.until,
    )


def _use_now(row: Row[Any]) -> GpuUseNow:
    holder = None
    if row.holder_id is not None:
        kind = ReservationKind(row.holder_kind)
        holder = GpuHolder(row.holder_id, kind, row.holder_user_id, row.holder_user, row.project)
    sample = None
    if row.at is not None:
        sample = NewestSample(
            at=row.at,
            utilisation=None if row.utilisation is None else row.utilisation / _THOUSANDTHS,
            memory_used=None if row.memory_kib is None else row.memory_kib * _KIB,
            power_w=row.power_w,
            temperature_c=row.temperature_c,
            ecc_uncorrected=row.ecc_errors,
            processes=row.processes,
        )
    return GpuUseNow(
        node=row.node,
        node_available=row.node_available,
        index=row.card_index,
        gpu_type=row.gpu_type,
        memory_bytes=row.memory_bytes,
        simulated=row.simulated,
        state=GpuState(row.state),
        holder=holder,
        sample=sample,
        xid=row.xid,
    )


def _holding(row: Row[Any]) -> HoldingJob:
    warned = row.idle_warned_at is not None
    warning = IdleWarning(row.idle_since, row.idle_warned_at, row.idle_release_at) if warned else None
    return HoldingJob(
        id=row.id,
        version=row.version,
        user=row.user_name,
        project=row.project,
        gpu_ids=tuple(row.gpu_ids),
        gpu_types=tuple(row.gpu_types),
        watched=WatchedJob(row.gpus, row.counts_from, warning),
    )


def _point(row: Row[Any]) -> UsePoint:
    return UsePoint(
        row.at,
        int(row.samples),
        utilisation=_level(row.utilisation_mean, row.utilisation, 1 / _THOUSANDTHS),
        memory=_level(row.memory_mean_kib, row.memory_kib, _KIB),
        power=_level(row.power_mean_w, row.power_w, 1),
        temperature=_level(row.temperature_mean_c, row.temperature_c, 1),
        ecc_uncorrected=row.ecc_errors,
        xid=row.xid,
        processes=row.processes,
        unknown=int(row.unknown),
    )


def _level(mean: float | None, most: float | None, unit: float) -> Level | None:
    return None if mean is None or most is None else Level(float(mean) * unit, float(most) * unit)
