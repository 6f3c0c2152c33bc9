"""The ledger's open rows in memory: by GPU, by reservation, and by the times at which something about them changes."""

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

from reservation_core.domain.calendar import FOREVER, GpuCalendar, Range, Row, to_micros
from reservation_core.domain.plan import Commitment, PlacedGpu, by_reservation
from reservation_core.domain.request_terms import Share

_STALE_EDGES = 4096


class Ledger:
    """Calendars by GPU id, kept also for GPUs that are in no pool (their node may come back).

    `preemptible` are the reservations that give their GPUs back when others need them.

    `slots` has the [start, end) of each reservation whose rows are planned; `due` are the slots that have begun.
    `shares` has what reservations asked for of nodes, and `shares_version` changes whenever a row of theirs does.
    """

    def __init__(self, commitments: Iterable[Commitment] = ()) -> None:
        self.calendars: dict[int, GpuCalendar] = {}
        self.by_reservation: dict[str, tuple[tuple[int, Row], ...]] = {}
        self.slots: dict[str, tuple[int, int]] = {}
        self.due: set[str] = set()
        self.preemptible: set[str] = set()
        self.shares: dict[str, Share] = {}
        self.shares_version = 0
        self._rows = 0
        self._edges: list[tuple[int, str]] = []
        self._edges_before = -FOREVER
        for reservation_id, rows in by_reservation(commitments).items():
            self.replace(reservation_id, rows)

    def calendar(self, gpu_id: int) -> GpuCalendar:
        """The calendar of a GPU; an empty one when nothing is known of it."""
        if gpu_id not in self.calendars:
            self.calendars[gpu_id] = GpuCalendar()
        return self.calendars[gpu_id]

    def allocated(self, reservation_id: str) -> tuple[tuple[int, Row], ...]:
        """The rows of a reservation by GPU, unless they are the slot of a waiting job."""
        return () if reservation_id in self.slots else self.by_reservation.get(reservation_id, ())

    def replace(self, reservation_id: str, commitments: Sequence[Commitment]) -> list[int]:
        """Make these the rows of a reservation; returns the ids of the GPUs it has or had, none if nothing changed."""
        if not commitments and reservation_id not in self.by_reservation:
            return []  # nor is it preemptible
        rows = tuple(
            sorted(
                (
                    commitment.gpu_id,
                    (to_micros(commitment.start), to_micros(commitment.end), commitment.held, reservation_id),
                )
                for commitment in commitments
            )
        )
        if commitments and commitments[0].share is not None:
            self.shares[reservation_id] = commitments[0].share
        planned = bool(commitments) and all(commitment.planned for commitment in commitments)
        self.preemptible.discard(reservation_id)
        if any(commitment.preemptible for commitment in commitments):
            self.preemptible.add(reservation_id)
        changed = self.set_rows(reservation_id, rows, planned=planned)
        if not rows:
            self.shares.pop(reservation_id, None)
        return changed

    def set_rows(self, reservation_id: str, after: tuple[tuple[int, Row], ...], *, planned: bool) -> list[int]:
        """Like `replace`, with rows by GPU in order; `planned` says that they are a slot."""
        before = self.by_reservation.get(reservation_id, ())
        if after == before and planned == (reservation_id in self.slots):
            return []
        self.shares_version += reservation_id in self.shares
        for gpu_id in {gpu_id for gpu_id, _ in before}:
            self.calendars[gpu_id].remove(reservation_id)
        self._rows -= len(before)
        self.by_reservation.pop(reservation_id, None)
        self.slots.pop(reservation_id, None)
        self.due.discard(reservation_id)
        for gpu_id, row in after:
            self.calendar(gpu_id).add(row)
        if after:
            self._remember(reservation_id, after, _ranges_of(after))
            if planned:
                self._remember_slot(reservation_id, after[0][1])
        return [gpu_id for gpu_id, _ in (*before, *after)]

    def book(
        self, reservation_id: str, placed: Iterable[PlacedGpu], row: Row, *, planned: bool, share: Share | None = None
    ) -> None:
        """Note a start, or a planned slot, that stands in the calendars already."""
        if share is not None:
            self.shares[reservation_id] = share
            self.shares_version += 1
        before = self.by_reservation.get(reservation_id, ())
        self._rows -= len(before)
        rows = [(gpu.gpu_id, row) for gpu in placed]
        rows += before
        rows.sort()
        self._remember(reservation_id, tuple(rows), _ranges_of(rows) if before else (row[:2],))
        if planned:
            self._remember_slot(reservation_id, row)

    def _remember(self, reservation_id: str, rows: tuple[tuple[int, Row], ...], ranges: Iterable[Range]) -> None:
        """Note rows and the ranges in them."""
        self.by_reservation[reservation_id] = rows
        self._rows += len(rows)
        self._push_edges(reservation_id, ranges)
        # Rows that went before their time leave their edges behind.
        if len(self._edges) > 4 * self._rows + _STALE_EDGES:
            self._edges.clear()
            for owner, its in self.by_reservation.items():
                self._push_edges(owner, _ranges_of(its))

    def _push_edges(self, reservation_id: str, ranges: Iterable[Range]) -> None:
        """Note the times to come at which any of these ranges begins or ends."""
        for edges in ranges:
            for at in edges:
                if at > self._edges_before:
                    heappush(self._edges, (at, reservation_id))

    def _remember_slot(self, reservation_id: str, row: Row) -> None:
        self.slots[reservation_id] = row[:2]
        if row[0] <= self._edges_before:
            self.due.add(reservation_id)

    @property
    def next_edge(self) -> int:
        """The next time at which a range may begin or end, after the last call of `edges_until`."""
        return self._edges[0][0] if self._edges else FOREVER

    def edges_until(self, now: int) -> list[int]:
        """The GPUs on which a range began or ended since the last call, up to `now`; none at the first call."""
        if self._edges_before < 0:
            # This is the first look, and most of what is known began long ago.
            self._edges = [edge for edge in self._edges if edge[0] > now]
            heapify(self._edges)
            self.due.update(reservation_id for reservation_id, (start, _) in self.slots.items() if start <= now)
        self._edges_before = now
        edges = self._edges
        changed: list[int] = []
        while edges and edges[0][0] <= now:
            at, reservation_id = heappop(edges)
            slot = self.slots.get(reservation_id)
            if slot is not None and slot[0] == at:
                self.due.add(reservation_id)
            changed += [gpu_id for gpu_id, row in self.by_reservation.get(reservation_id, ()) if at in row[:2]]
        return changed


def _ranges_of(rows: Iterable[tuple[int, Row]]) -> set[Range]:
    return {row[:2] for _, row in rows}
