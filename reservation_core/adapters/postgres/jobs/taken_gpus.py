"""GPUs, and places without GPUs, that the pods of adopted jobs hold already."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.adapters.postgres.jobs.ledger_constraints import LEDGER_CONSTRAINTS, violates
from reservation_core.domain.changes import DecidedChange, HeldGpu, TakeGpus
from reservation_core.domain.errors import CalendarConflictError
from reservation_core.domain.model import Reservation
from reservation_core.ports.jobs.reservations import UnknownGpuError


async def take_gpus(connection: AsyncConnection, changes: Sequence[DecidedChange], counted: datetime | None) -> None:
    """Take what adopted jobs hold. Raises as `Reservations.apply`."""
    asked = [
        (c.after, e.until, card) for c in changes for e in c.effects if isinstance(e, TakeGpus) for card in e.cards
    ]
    await _take_places(connection, [found for found in asked if found[0].gpus == 0], counted)
    taken = [found for found in asked if found[0].gpus > 0]
    if not taken:
        return
    # Pods hold these cards already: who only waits for them makes room.
    await connection.execute(
        statement("clear_slots_on"),
        {
            "nodes": [card.node for _, _, card in taken],
            "indices": [card.index for _, _, card in taken],
            "range_ends": [until for _, until, _ in taken],
        },
    )
    try:
        result = await connection.execute(
            statement("take_cards"),
            {
                "ids": [row.id for row, _, _ in taken],
                "attempts": [row.attempt for row, _, _ in taken],
                "nodes": [card.node for _, _, card in taken],
                "indices": [card.index for _, _, card in taken],
                "ranks": [card.rank for _, _, card in taken],
                "range_ends": [until for _, until, _ in taken],
                "counted": counted,
            },
        )
    except IntegrityError as error:
        if violates(error, *LEDGER_CONSTRAINTS):
            raise CalendarConflictError("The ledger has given some of these GPUs to another job.") from error
        raise
    if result.rowcount != len(taken):
        raise UnknownGpuError("The inventory does not have all of these GPUs.")


async def _take_places(
    connection: AsyncConnection, taken: Sequence[tuple[Reservation, datetime, HeldGpu]], counted: datetime | None
) -> None:
    if not taken:
        return
    nodes = [place.node for _, _, place in taken]
    await connection.execute(statement("clear_slots_of_places"), {"nodes": nodes})
    try:
        result = await connection.execute(
            statement("take_places"),
            {
                "ids": [row.id for row, _, _ in taken],
                "attempts": [row.attempt for row, _, _ in taken],
                "nodes": nodes,
                "ranks": [place.rank for _, _, place in taken],
                "range_ends": [until for _, until, _ in taken],
                "counted": counted,
            },
        )
    except IntegrityError as error:
        if violates(error, *LEDGER_CONSTRAINTS):
            raise CalendarConflictError("The node has given its CPUs and memory to other jobs.") from error
        raise
    if result.rowcount != len(taken):
        raise UnknownGpuError("The inventory does not have this node, or all places on it are taken.")
