"""Convert rows to bookings, and bookings to documents."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row

from reservation_core.adapters.postgres.rows import share_of, workload_document, workload_of
from reservation_core.adapters.postgres.sealing import Sealing
from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.bookings.nouns import Booking, Wanted, Why
from reservation_core.domain.event_kinds import BookingEventKind
from reservation_core.domain.model import AllocatedGpu
from reservation_core.domain.request_terms import Share
from reservation_core.domain.statuses import BookingReason, BookingStatus


def booking_of(row: Row[Any], cards: Sequence[Row[Any]], sealing: Sealing) -> Booking:
    """A booking from a row of `booking_views` and its rows of `booking_cards`."""
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
        cards=tuple(_card_of(card) for card in cards),
        jobs=tuple(row.jobs),
        activated_at=row.started_at,
        started_job=row.started_job,
        finished_at=row.finished_at,
        start_warned_at=row.start_warned_at,
        end_warned_at=row.end_warned_at,
        no_show_warned_at=row.no_show_warned_at,
        share=_share_of(row.gpus, cards),
    )


def _card_of(row: Row[Any]) -> AllocatedGpu:
    return AllocatedGpu(row.gpu_id, row.node, row.card_index, row.uuid, row.rank, row.starts_at, row.ends_at, row.held)


def _share_of(gpus: int, cards: Sequence[Row[Any]]) -> Share | None:
    """How much of each node a booking's GPUs are, at least, as `least_share_in_booking` rounds it."""
    cpus, memory = (
        None if not cards or None in amounts else min(amounts)
        for amounts in (
            [has and has * gpus // card.gpus_of_node for card, has in zip(cards, column, strict=True)]
            for column in ([card.cpu_milli for card in cards], [card.memory_bytes for card in cards])
        )
    )
    return share_of(cpus, memory)


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
