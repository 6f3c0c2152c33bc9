"""Errors and speeds of GPUs, and their quarantine, in PostgreSQL."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queues import Queue
from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.contracts.queue_messages import JobMessage
from reservation_core.domain.event_kinds import JobEventKind
from reservation_core.domain.gpu_use.gpu_errors import ECC_FROM, GpuError
from reservation_core.domain.gpu_use.gpu_speeds import SpeedOfHour, SpeedSlice
from reservation_core.domain.gpu_use.samples import GpuSample
from reservation_core.domain.model import GpuCondition
from reservation_core.ports.gpu_use import LockedGpu, QuarantinedGpu
from reservation_core.ports.queues import QueueName


class GpuHealth(StatementRunner):
    """Keeps errors and speeds, and changes which GPUs are out of use."""

    def __init__(self, connection: AsyncConnection, queue: Queue) -> None:
        super().__init__(connection)
        self._queue = queue

    async def note_errors(self, samples: Sequence[tuple[int, GpuSample]]) -> None:
        """Keep the errors among samples that are stored already, with their GPU ids."""
        telling = [(gpu_id, sample) for gpu_id, sample in samples if sample.xid or sample.ecc_uncorrected]
        if telling:
            await self._run(
                "note_gpu_errors",
                gpu_ids=[gpu_id for gpu_id, _ in telling],
                ats=[sample.at for _, sample in telling],
                uuids=[sample.uuid for _, sample in telling],
                xids=[sample.xid for _, sample in telling],
                ecc_counts=[sample.ecc_uncorrected for _, sample in telling],
                ecc_from=ECC_FROM,
            )

    async def errors(self, since: datetime) -> dict[int, list[GpuError]]:
        """Errors after a time by GPU id, of GPUs that errors could quarantine."""
        found: dict[int, list[GpuError]] = {}
        for row in await self._run("gpu_errors_since", since=since):
            found.setdefault(row.gpu_id, []).append(GpuError(row.at, row.xid, row.ecc_errors))
        return found

    async def add_speeds(self, slices: Sequence[SpeedSlice]) -> None:
        """Keep how fast GPUs ran; what is known of a slice already stays."""
        await self._run(
            "add_gpu_speeds",
            ats=[found.at for found in slices],
            uuids=[found.uuid for found in slices],
            busy=[found.busy for found in slices],
            throttled=[found.throttled for found in slices],
            clocks=[found.clock_mhz for found in slices],
        )

    async def speeds(self, start: datetime, until: datetime) -> list[SpeedOfHour]:
        """How fast each GPU ran from a time until another, as far as it was busy."""
        return [
            SpeedOfHour(row.gpu_id, row.gpu_type, row.job, row.slices, row.busy, row.throttled, row.clock_mhz)
            for row in await self._run("gpu_speeds_of_hour", start=start, until=until)
        ]

    async def forget(self, errors_before: datetime, speeds_before: datetime) -> None:
        """Remove what is too old to count."""
        await self._run("forget_gpu_errors", before=errors_before)
        await self._run("forget_gpu_speeds", before=speeds_before)

    async def lock(self, node: str, index: int) -> LockedGpu | None:
        """A GPU of a node, locked until the transaction ends."""
        row = (await self._run("gpu_by_place", node=node, index=index)).one_or_none()
        return None if row is None else LockedGpu(row.id, GpuCondition(row.condition), row.quarantined_at)

    async def quarantine(self, gpu_id: int, by: str, reason: str, at: datetime) -> QuarantinedGpu | None:
        """Quarantine a GPU; None where it is quarantined or in maintenance already."""
        row = (await self._run("quarantine_gpu", gpu_id=gpu_id, by=by, reason=reason, at=at)).one_or_none()
        if row is None:
            return None
        await self._wake_planner()
        return QuarantinedGpu(row.node, row.card_index, row.job)

    async def release(self, gpu_id: int, at: datetime) -> None:
        """End a quarantine; errors until now count no more."""
        await self._run("release_gpu", gpu_id=gpu_id, at=at)
        await self._wake_planner()

    async def slow(self) -> set[int]:
        """The ids of GPUs that are reported as slow."""
        return set((await self._run("slow_gpus")).scalars())

    async def note_slow(self, gpu_id: int, why: str, at: datetime) -> str | None:
        """Note why a GPU is slow, and return its place; None where it was slow already."""
        return await self._first(_place, "note_slow_gpu", gpu_id=gpu_id, reason=why, at=at)

    async def note_not_slow(self, gpu_id: int) -> str | None:
        """Note that a GPU is as fast as it should be, and return its place; None where it was not slow."""
        return await self._first(_place, "note_gpu_not_slow", gpu_id=gpu_id)

    async def note_job(self, job_id: str, gpu: str, why: str, actor: str, at: datetime) -> None:
        """Record with a job that its GPU was quarantined; its owner is notified."""
        data = json.dumps({"gpu": gpu, "why": why})
        await self._run(
            "note_job_of_quarantined_gpu", id=job_id, actor=actor, kind=JobEventKind.GPU_QUARANTINED, data=data, at=at
        )

    async def _wake_planner(self) -> None:
        await self._queue.send(QueueName.GPU_JOBS, [JobMessage(kind="inventory").model_dump()])


def _place(row: Row[Any]) -> str:
    return f"{row.node}/{row.card_index}"
