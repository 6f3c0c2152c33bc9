"""Storing submissions: a batch in one statement, and what repeated Idempotency-Keys were answered with."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection import direct
from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.adapters.postgres.rows import seconds, workload_document
from reservation_core.adapters.postgres.sealing import Sealing
from reservation_core.domain.errors import (
    BeyondBookedShareError,
    BookingNotUsableError,
    NotKeptError,
    NotPermittedError,
    UnknownBookingError,
    UnknownCallerError,
)
from reservation_core.domain.event_kinds import JobEventKind
from reservation_core.domain.model import NO_PREEMPTION, Node, Preemption, Reservation, Spare
from reservation_core.domain.policy.membership import not_in_project
from reservation_core.domain.policy.rules import RuleBreach
from reservation_core.domain.pools.booked_shares import beyond_share
from reservation_core.domain.pools.cpu_places import cpu_nodes
from reservation_core.domain.pools.cpu_reasons import unplaceable_without_gpus
from reservation_core.domain.pools.waiting_reasons import sized_words
from reservation_core.domain.request_terms import CPU_TYPE, Resources, Share
from reservation_core.ports.jobs.reservations import NewReservation, Refusal, Submitted


async def store(
    connection: AsyncConnection,
    batch: Sequence[NewReservation],
    now: datetime,
    sealing: Sealing,
    *,
    once_more: bool = True,
) -> list[Submitted]:
    """Store a batch; answers come in the order given. `once_more`: what neither is stored nor has an answer is."""
    if not batch:
        return []
    first = batch[0].reservation
    rows = await direct.fetch(
        connection,
        "submit_reservations",
        {
            "batch": msgspec.json.encode([_document(new, sealing) for new in batch]).decode(),
            "status": first.status.value,
            "reason_code": first.reason.code.value,
            "reason": first.reason.detail,
            "event_kind": JobEventKind.SUBMITTED,
            "now": now,
        },
    )
    stored = {row["id"] for row in rows}
    if len(stored) == len(batch):
        return [Submitted(new.reservation.id) for new in batch]
    others = [new for new in batch if new.reservation.id not in stored]
    became = await _not_stored(connection, others)
    # What their keys were answered with was forgotten just now, so that they are the first again.
    again = [new for new in others if new.reservation.id not in became]
    if again and not once_more:
        raise LookupError(f"{again[0].reservation.id} was not stored, and nothing speaks against it")
    became |= {
        stored_again.reservation_id: stored_again
        for stored_again in await store(connection, again, now, sealing, once_more=False)
    }
    return [became.get(new.reservation.id) or Submitted(new.reservation.id) for new in batch]


async def refusal_of(connection: AsyncConnection, new: NewReservation) -> Refusal | None:
    """Why `store` would refuse a submission without an Idempotency-Key; None if it would not."""
    row = new.reservation
    names = {"booking_id": row.booking_id, "project": row.project}
    asked = {"user_id": row.user_id, **names, "gpus": row.gpus, "nodes": row.nodes, "gpu_type": row.gpu_type}
    (cpu_milli, memory), shm = row.resources or Resources()
    asked |= {"cpu_milli": cpu_milli, "memory_bytes": shm if memory is None else memory}
    if (await connection.execute(statement("may_be_stored"), asked)).scalar_one():
        return None
    return (await _not_stored(connection, [new]))[row.id].refusal


async def _not_stored(connection: AsyncConnection, others: Sequence[NewReservation]) -> dict[str, Submitted]:
    """What became of these, by id; those are left out of whom nothing can be said."""
    owners = sorted({new.reservation.user_id for new in others})
    disabled = {row.id for row in await connection.execute(statement("disabled_of"), {"ids": owners})}
    answers = await _stored_answers(connection, others)
    became: dict[str, Submitted] = {}
    refused: list[NewReservation] = []
    for new in others:
        row = new.reservation
        if row.user_id in disabled:
            became[row.id] = Submitted(row.id, refusal=UnknownCallerError())
        elif (row.user_id, new.idempotency_key or "") in answers:
            became[row.id] = _replay(new, answers)
        elif row.booking_id is not None or row.project is not None or row.gpus == 0:
            refused.append(new)
    return became | await _refusals(connection, refused)


async def _refusals(connection: AsyncConnection, refused: Sequence[NewReservation]) -> dict[str, Submitted]:
    """Why the bookings or projects of these can't be used."""
    ids = sorted({new.reservation.booking_id for new in refused if new.reservation.booking_id is not None})
    bookings: dict[str, Row[Any]] = {}
    if ids:
        found = await connection.execute(statement("bookings_named"), {"ids": ids})
        bookings = {row.id: row for row in found}
    return {
        new.reservation.id: Submitted(
            new.reservation.id,
            refusal=await _nowhere_kept(connection, new.reservation)
            or _refusal(new, bookings)
            or await _too_little(connection, new.reservation),
        )
        for new in refused
    }


async def _nowhere_kept(connection: AsyncConnection, job: Reservation) -> Refusal | None:
    """Why no node could ever run a job without GPUs; None where one could, and of other jobs."""
    if job.gpus > 0 or job.resources is None:
        return None
    found = await connection.execute(statement("kept_by_nodes"))
    spares = [Node(row.name, (), spare=Spare(row.id, row.spare_cpu_milli, row.spare_memory_bytes)) for row in found]
    reason = unplaceable_without_gpus(cpu_nodes(spares), job.resources.share)
    return None if reason is None else NotKeptError(reason.detail)


async def _too_little(connection: AsyncConnection, job: Reservation) -> Refusal:
    """What a booking that its owner may use lacks for a job: GPUs, or CPUs and memory beside them."""
    booking_id = job.booking_id or ""
    asked = {"booking_id": booking_id, "gpus": job.gpus, "gpu_type": job.gpu_type}
    share = (await connection.execute(statement("least_share_in_booking"), asked)).one()
    if share.nodes >= job.nodes and job.resources is not None:
        least = Share(share.cpu_milli, share.memory_bytes)
        beyond = beyond_share(booking_id, job.gpus, job.resources, least)
        fields = [RuleBreach(BeyondBookedShareError.code, f"resources.{name}: {why}") for name, why in beyond]
        if beyond:
            return BeyondBookedShareError(" ".join(why for _, why in beyond), fields)
    size = sized_words(job.gpus, job.nodes, "" if job.gpu_type is None else f"{job.gpu_type} ")
    return BookingNotUsableError(f"{booking_id} has no room for {size}. Ask for less.")


def _refusal(new: NewReservation, bookings: Mapping[str, Row[Any]]) -> Refusal | None:
    """Why a booking can't be used at all, or a project; None where the booking is too small."""
    wanted, project = new.reservation.booking_id, new.reservation.project
    if wanted is None and project is not None:
        broken = new.foreign or not_in_project(project)
        return NotPermittedError(broken.detail, [broken])
    booking = bookings.get(wanted or "")
    if booking is None or booking.user_id != new.reservation.user_id:
        return UnknownBookingError(
            f"You have no booking {wanted}. `gpu-dev book list` shows yours; or leave the booking out."
        )
    if booking.status in ("waiting", "offered"):
        return BookingNotUsableError(f"{wanted} has no GPUs yet: it is {booking.status}. Wait until it is confirmed.")
    if booking.status not in ("confirmed", "active") or booking.over:
        return BookingNotUsableError(f"{wanted} is over. Leave the booking out, or book again.")
    if booking.project != project:
        booked = "no project" if booking.project is None else f"project {booking.project}"
        return BookingNotUsableError(
            f"{wanted} was booked for {booked}, and so is what runs in it. Leave the project out, or the booking."
        )
    return None


def _document(new: NewReservation, sealing: Sealing) -> dict[str, Any]:
    """One submission as the statement reads it; what is None is left out."""
    row = new.reservation
    document: dict[str, Any] = {
        "id": row.id,
        "kind": row.kind,
        "user_id": row.user_id,
        "gpus": row.gpus,
        "nodes": row.nodes,
        "duration_s": seconds(row.duration),
        "priority": row.priority,
        "workload": workload_document(row.workload, row.user_id, sealing),
        "actor": new.actor,
        # When it was accepted, as its submitter was told; the commit may come a moment later.
        "created_at": row.created_at.isoformat(),
    }
    for name in ("name", "gpu_type", "booking_id", "project", "trace"):
        if (value := getattr(row, name)) is not None:
            document[name] = value
    if row.inactivity is not None:
        document["inactivity_s"] = seconds(row.inactivity)
    if row.held is not None:
        document["held"] = row.held
    if row.retries is not None:
        document["retry_max"] = row.retries.max
        document["retry_on"] = sorted(row.retries.on)
    if row.array is not None:
        document["array_size"] = row.array.size
        document["array_parallel"] = row.array.parallel
    if row.preemption is not NO_PREEMPTION:
        document |= _preemption_document(row.preemption)
    if row.gpus == 0:
        document["gpu_type"] = CPU_TYPE
    if row.resources is not None:
        share, shm = row.resources
        document |= {"cpu_milli": share.cpu_milli, "memory_bytes": share.memory_bytes, "shm_bytes": shm}
    if new.idempotency_key is not None:
        document["key"] = new.idempotency_key
        document["request_hash"] = None if new.request_hash is None else new.request_hash.hex()
        document["answer"] = None if new.answer is None else new.answer.decode()
    return document


def _preemption_document(terms: Preemption) -> dict[str, Any]:
    document: dict[str, Any] = {"preemptible": True} if terms.preemptible else {}
    if terms.min_runtime:
        document["min_runtime_s"] = seconds(terms.min_runtime)
    if terms.end_signal is not None:
        document |= {"end_signal": terms.end_signal.signal, "end_signal_before_s": seconds(terms.end_signal.before)}
    return document


async def _stored_answers(
    connection: AsyncConnection, repeated: Sequence[NewReservation]
) -> Mapping[tuple[int, str], tuple[bytes, bytes]]:
    found = await connection.execute(
        statement("stored_answers"),
        {
            "user_ids": [new.reservation.user_id for new in repeated],
            "keys": [new.idempotency_key for new in repeated],
        },
    )
    return {(row.user_id, row.key): (row.request_hash, row.answer) for row in found}


def _replay(new: NewReservation, answers: Mapping[tuple[int, str], tuple[bytes, bytes]]) -> Submitted:
    request_hash, answer = answers[new.reservation.user_id, new.idempotency_key or ""]
    if request_hash != new.request_hash:
        return Submitted(new.reservation.id, conflict=True)
    return Submitted(new.reservation.id, replayed_answer=answer)
