"""Convert rows to bookings, and bookings to documents."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row

from reservation_core.adapters.postgres.rows import workload_document, workload_of
from reservation_core.adapters.postgres.sealing import Sealing
from reservation_core.domain.bookings.nouns import Booking, BookingReason, Span, Wanted, Why
from reservation_core.domain.event_kinds import BookingEventKind
from reservation_core.domain.model import AllocatedGpu, BookingStatus


def booking_of(row: Row[Any], cards: Sequence[AllocatedGpu], sealing: Sealing) -> Booking:
    """A booking from a row of `booking_views` and its GPUs."""
    return Booking(
        id=row.id,
        seq=row.seq,
        user_id=row.user_id,
        user=row.user_name,
        title=row.name,
        project=row.project,
        status=BookingStatus(row.status),
        why=Why(BookingReason(row.reason_code), row.reason),
        wanted=Wanted(row.gpus, row.nodes, row.gpu_type, row.node),
        span=Span(row.starts_at, row.ends_at),
        # An empty object means no workload; a workload always has a command, perhaps an empty one.
        workload=workload_of(row.workload, row.user_id, sealing) if row.workload else None,
        created_at=row.created_at,
        version=row.version,
        series_id=row.series_id,
        occurrence=row.occurrence,
        auto_accept=row.auto_accept,
        waits_until=row.waits_until,
        offer_until=row.offer_until,
        used_at=row.used_at,
        release_at=row.release_at,
        cards=tuple(cards),
        jobs=tuple(row.jobs),
        activated_at=row.started_at,
        started_job=row.started_job,
        finished_at=row.finished_at,
        start_warned_at=row.start_warned_at,
        end_warned_at=row.end_warned_at,
        no_show_warned_at=row.no_show_warned_at,
    )


def booked_card_of(row: Row[Any]) -> AllocatedGpu:
    """A GPU from a row of `booking_cards`."""
    return AllocatedGpu(row.gpu_id, row.node, row.card_index, row.uuid, row.rank, row.starts_at, row.ends_at, row.held)


def booking_document(booking: Booking, actor: str, kind: BookingEventKind, sealing: Sealing) -> dict[str, Any]:
    """A new booking and its event, in the form that `add_bookings` takes."""
    return {
        "id": booking.id,
        "user_id": booking.user_id,
        "name": booking.title,
        "status": booking.status.value,
        "reason_code": booking.why.code.value,
        "reason": booking.why.detail,
        "gpus": booking.wanted.gpus,
        "gpu_type": booking.wanted.gpu_type,
        "nodes": booking.wanted.nodes,
        "project": booking.project,
        "workload": {} if booking.workload is None else workload_document(booking.workload, booking.user_id, sealing),
        "created_at": booking.created_at.isoformat(),
        "starts_at": booking.span.start.isoformat(),
        "ends_at": booking.span.end.isoformat(),
        "node": booking.wanted.node,
        "series_id": booking.series_id,
        "occurrence": booking.occurrence,
        "auto_accept": booking.auto_accept,
        "waits_until": None if booking.waits_until is None else booking.waits_until.isoformat(),
        "actor": actor,
        "kind": kind,
    }
