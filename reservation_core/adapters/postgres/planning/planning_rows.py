"""What the planner reads, from rows."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from sqlalchemy import Row

from reservation_core.adapters.postgres.rows import share_of
from reservation_core.domain.calendar import length_micros, to_micros
from reservation_core.domain.model import Gpu, GpuCondition, Spare
from reservation_core.domain.plan import Commitment, Need, Waiting


def waiting_of(row: Mapping[Any, Any], start_allowance: timedelta) -> Waiting:
    """A waiting job."""
    return Waiting(
        id=row["id"],
        gpus=row["gpus"] or 1,  # a place on a node
        nodes=row["nodes"],
        gpu_type=row["gpu_type"],
        length=start_allowance + timedelta(seconds=row["duration_s"]),
        priority=row["priority"],
        seq=row["seq"],
        version=row["version"],
        avoid_nodes=frozenset(row["avoid_nodes"]),
        owner=row["user_id"],
        booking_id=row["booking_id"],
        project=row["project"],
        submitted_at=to_micros(row["created_at"]),
        promised_at=None if row["promised_at"] is None else to_micros(row["promised_at"]),
        preemptible=bool(row["preemptible"]),
        share=share_of(row["cpu_milli"], row["memory_bytes"]),
    )


def jobs_in(rows: Iterable[Mapping[Any, Any]], start_allowance: timedelta) -> list[Waiting]:
    """The waiting jobs of these rows, also of those that wait for others; a row may be without one."""
    found = (row for row in rows if row["id"] is not None)
    return [(dependant_of if row["held"] else waiting_of)(row, start_allowance) for row in found]


def dependant_of(row: Mapping[Any, Any], start_allowance: timedelta) -> Waiting:
    """A job that waits for others."""
    beside = length_micros(start_allowance)
    needs = (
        *(Need(job, by_start=False) for job in row["needed_ends"]),
        *(Need(job, by_start=True, beside=beside) for job in row["needed_starts"]),
    )
    return replace(waiting_of(row, start_allowance), needs=needs)


def queued_of(row: Row[Any], start_allowance: timedelta) -> Waiting:
    """A waiting job with a slot; without its promise, and as no plan changes it, without its version."""
    return Waiting(
        row.id,
        row.gpus or 1,
        row.nodes,
        row.gpu_type,
        start_allowance + timedelta(seconds=row.duration_s),
        row.priority,
        row.seq,
        None,
        frozenset(row.avoid_nodes),
        row.user_id,
        None,
        row.project,
        to_micros(row.created_at),
        share=share_of(row.cpu_milli, row.memory_bytes),
    )


def commitment_of(row: Mapping[Any, Any]) -> Commitment:
    """An open row of the ledger."""
    return Commitment(
        row["reservation_id"],
        row["gpu_id"],
        row["starts_at"],
        row["ends_at"],
        row["held"],
        row["planned"],
        row["booking_id"],
        bool(row["preemptible"]),
        share_of(row["cpu_milli"], row["memory_bytes"]),
    )


def spare_of(row: Row[Any]) -> Spare | None:
    """What a node keeps for jobs without GPUs, if anything."""
    if not (row.spare_cpu_milli and row.spare_memory_bytes):
        return None
    return Spare(row.node_id, row.spare_cpu_milli, row.spare_memory_bytes)


def gpu_of(row: Row[Any]) -> Gpu:
    """A GPU of the inventory."""
    return Gpu(row.id, row.node, row.card_index, row.gpu_type, row.uuid, row.memory_bytes, GpuCondition(row.condition))
