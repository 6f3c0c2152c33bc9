"""Small worlds for the planner's tests, and an oracle that answers by trying everything."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import combinations, product

from hypothesis import strategies as st

from reservation_core.domain.model import Gpu, GpuCondition, Node
from reservation_core.domain.plan import Commitment, Start, Waiting
from reservation_core.domain.policy import PlanningState

T0 = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
TYPES = ("a100", "h100")


def at(minutes: int) -> datetime:
    """So many minutes after T0."""
    return T0 + minutes * MINUTE


def node(name: str, cards: int, gpu_type: str = "h100", *, first_id: int = 0, available: bool = True) -> Node:
    """A node of so many cards of one type."""
    gpus = tuple(Gpu(first_id + index, name, index, gpu_type) for index in range(cards))
    return Node(name, gpus, available)


def job(
    seq: int,
    gpus: int = 1,
    nodes: int = 1,
    *,
    minutes: int = 10,
    gpu_type: str | None = "h100",
    priority: int = 0,
) -> Waiting:
    """A waiting job named after its place."""
    return Waiting(f"job-{seq}", gpus, nodes, gpu_type, minutes * MINUTE, priority, seq)


def held(reservation_id: str, gpu_id: int, start: int, end: int, *, is_held: bool = True) -> Commitment:
    """A row of the ledger, in minutes."""
    return Commitment(reservation_id, gpu_id, at(start), at(end), is_held)


def commitments_of(start: Start) -> list[Commitment]:
    """The ledger's rows that a start becomes."""
    return [Commitment(start.id, gpu.gpu_id, start.start, start.end, True) for gpu in start.gpus]


@dataclass(frozen=True)
class World:
    """What a planner is told."""

    nodes: tuple[Node, ...]
    commitments: tuple[Commitment, ...]
    waiting: tuple[Waiting, ...]

    def state(self) -> PlanningState:
        """A planner that has just been told."""
        return PlanningState(self.nodes, self.commitments, self.waiting, frozenset({None, *TYPES, "t4"}))


@st.composite
def inventories(draw: st.DrawFn) -> tuple[Node, ...]:
    """One to four nodes of one to four cards, now and then of two types, unavailable or with unusable cards."""
    nodes = []
    next_id = 1
    for number in range(draw(st.integers(1, 4))):
        name = f"n{number}"
        main_type = draw(st.sampled_from(TYPES))
        gpus = []
        for index in range(draw(st.integers(1, 4))):
            odd = draw(st.integers(0, 19))
            gpu_type = TYPES[1 - TYPES.index(main_type)] if odd == 0 else main_type
            condition = GpuCondition.QUARANTINED if odd == 1 else GpuCondition.USABLE
            gpus.append(Gpu(next_id, name, index, gpu_type, condition=condition))
            next_id += 1
        nodes.append(Node(name, tuple(gpus), available=draw(st.integers(0, 7)) != 0))
    return tuple(nodes)


@st.composite
def calendars(draw: st.DrawFn, nodes: tuple[Node, ...]) -> tuple[Commitment, ...]:
    """For each card up to two ranges that don't overlap; one that has begun may be held, also past its end."""
    rows = []
    for gpu in (gpu for each in nodes for gpu in each.gpus):
        kind = draw(st.integers(0, 5))
        if kind >= 4:
            continue
        start = draw(st.integers(-10, 6))
        end = start + draw(st.integers(1, 12))
        holder = f"r{gpu.id}" if draw(st.booleans()) else f"g{gpu.id % 3}"
        rows.append(held(holder, gpu.id, start, end, is_held=start <= 0 and kind != 0))
        if kind == 1:
            later = end + draw(st.integers(0, 6))
            rows.append(held(f"b{gpu.id}", gpu.id, later, later + draw(st.integers(1, 8)), is_held=False))
    return tuple(rows)


@st.composite
def jobs(draw: st.DrawFn, seq: int, types: Sequence[str | None] = (None, *TYPES, "h100", "t4")) -> Waiting:
    """One job, small enough to fit often."""
    return job(
        seq,
        draw(st.integers(1, 4)),
        draw(st.sampled_from((1, 1, 1, 2, 3))),
        minutes=draw(st.integers(1, 15)),
        gpu_type=draw(st.sampled_from(types)),
        priority=draw(st.sampled_from((0, 0, 0, 1))),
    )


@st.composite
def worlds(draw: st.DrawFn, types: Sequence[str | None] = (None, *TYPES, "h100", "t4")) -> World:
    """A whole snapshot."""
    nodes = draw(inventories())
    rows = draw(calendars(nodes))
    waiting = tuple(draw(jobs(seq, types)) for seq in range(1, draw(st.integers(1, 7)) + 1))
    return World(nodes, rows, waiting)


# --- the oracle: in datetimes, and by trying everything ---


def is_free(gpu: Gpu, rows: Iterable[Commitment], start: datetime, end: datetime, now: datetime) -> bool:
    """Whether no row of the card touches [start, end), with what overruns taken to last one more minute."""
    for row in rows:
        if row.gpu_id == gpu.id:
            row_start = min(row.start, now) if row.held else row.start
            row_end = now + MINUTE if row.held and row.end <= now else row.end
            if row_start < end and start < row_end:
                return False
    return True


def choices(nodes: Sequence[Node], wanted: Waiting, gpu_type: str) -> Iterable[tuple[Gpu, ...]]:
    """Every set of usable cards of one type that would do, were they free."""
    usable = [
        [gpu for gpu in each.gpus if gpu.gpu_type == gpu_type and gpu.condition is GpuCondition.USABLE]
        for each in nodes
        if each.available
    ]
    for some in combinations(usable, wanted.nodes):
        for cards in product(*(combinations(gpus, wanted.gpus) for gpus in some)):
            yield tuple(gpu for part in cards for gpu in part)


def types_for(nodes: Sequence[Node], wanted: Waiting) -> list[str]:
    """The types it may use, in order of name."""
    known = sorted({gpu.gpu_type for each in nodes for gpu in each.gpus})
    return [each for each in known if wanted.gpu_type in (None, each)]


def fits_at(
    nodes: Sequence[Node], rows: Sequence[Commitment], wanted: Waiting, gpu_type: str, start: datetime, now: datetime
) -> bool:
    """Whether some choice of cards is free for all its length from `start`."""
    free = {gpu.id for each in nodes for gpu in each.gpus if is_free(gpu, rows, start, start + wanted.length, now)}
    return any(all(gpu.id in free for gpu in cards) for cards in choices(nodes, wanted, gpu_type))


def earliest(
    nodes: Sequence[Node], rows: Sequence[Commitment], wanted: Waiting, gpu_type: str, now: datetime
) -> datetime | None:
    """The first time at which it fits; only when something ends can that change for the better."""
    ends = {now + MINUTE if row.held and row.end <= now else row.end for row in rows}
    for start in sorted({now} | {end for end in ends if end > now}):
        if fits_at(nodes, rows, wanted, gpu_type, start, now):
            return start
    return None


def earliest_of_any(
    nodes: Sequence[Node], rows: Sequence[Commitment], wanted: Waiting, now: datetime
) -> datetime | None:
    """The first time over all types it may use."""
    times = [earliest(nodes, rows, wanted, each, now) for each in types_for(nodes, wanted)]
    return min((each for each in times if each is not None), default=None)


def check_start(
    nodes: Sequence[Node], rows: Sequence[Commitment], wanted: Waiting, start: Start, now: datetime
) -> None:
    """That a start is what was asked for, on cards that are free and usable."""
    gpus = {gpu.id: (each, gpu) for each in nodes for gpu in each.gpus}
    assert start.start == now
    assert start.end == now + wanted.length
    assert len({placed.gpu_id for placed in start.gpus}) == len(start.gpus) == wanted.gpus * wanted.nodes
    assert sorted(start.gpus, key=lambda placed: (placed.rank, placed.index)) == list(start.gpus)
    types = set()
    by_rank: dict[int, set[str]] = {}
    for placed in start.gpus:
        on_node, gpu = gpus[placed.gpu_id]
        assert (placed.node, placed.index) == (on_node.name, gpu.index)
        assert on_node.available
        assert gpu.condition is GpuCondition.USABLE
        assert is_free(gpu, rows, start.start, start.end, now)
        types.add(gpu.gpu_type)
        by_rank.setdefault(placed.rank, set()).add(placed.node)
    assert len(types) == 1
    assert wanted.gpu_type in (None, *types)
    assert sorted(by_rank) == list(range(wanted.nodes))
    assert all(len(names) == 1 for names in by_rank.values())
    assert len(set.union(*by_rank.values())) == wanted.nodes
