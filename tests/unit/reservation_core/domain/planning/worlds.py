"""Small worlds for the planner's tests, and an oracle that answers by trying everything."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import combinations, product
from math import prod

from hypothesis import strategies as st

from reservation_core.domain.model import Gpu, GpuCondition, Node
from reservation_core.domain.plan import Commitment, PlanningSnapshot, Start, Waiting
from reservation_core.domain.planning.planning_picture import Picture

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
    avoid: Iterable[str] = (),
) -> Waiting:
    """A waiting job named after its place."""
    return Waiting(f"job-{seq}", gpus, nodes, gpu_type, minutes * MINUTE, priority, seq, avoid_nodes=frozenset(avoid))


def held(reservation_id: str, gpu_id: int, start: int, end: int, *, is_held: bool = True) -> Commitment:
    """A row of the ledger, in minutes."""
    return Commitment(reservation_id, gpu_id, at(start), at(end), is_held)


def commitments_of(start: Start) -> list[Commitment]:
    """The ledger's rows that a start becomes."""
    return [Commitment(start.id, gpu.gpu_id, start.start, start.end, True) for gpu in start.gpus]


def snapshot(
    nodes: Iterable[Node],
    rows: Iterable[Commitment],
    waiting: Iterable[Waiting],
    complete_types: frozenset[str | None] = frozenset({None, *TYPES, "t4"}),
) -> PlanningSnapshot:
    """What a planner is told; by default the queues of all types are whole."""
    return PlanningSnapshot(tuple(nodes), tuple(rows), tuple(waiting), complete_types)


@dataclass(frozen=True)
class World:
    """What a planner is told."""

    nodes: tuple[Node, ...]
    commitments: tuple[Commitment, ...]
    waiting: tuple[Waiting, ...]

    def state(self) -> Picture:
        """A planner that has just been told."""
        return Picture(snapshot(self.nodes, self.commitments, self.waiting))


# These tests spend their time on drawing, which costs by the draw, not by what is drawn: so a node, a card's ranges and
# a job are one number each, read as digits. Zeros are the simplest.

NODE_DIGITS = (4, 2, 8, *(20,) * 4)
CARD_DIGITS = (6, 17, 12, 2, 7, 8)

AVOIDED = ((), ("n0",), (), ("n1", "n9"), (), ("n0", "n2"))

NODE_NUMBERS = st.integers(0, prod(NODE_DIGITS) - 1)
CARD_NUMBERS = st.integers(0, prod(CARD_DIGITS) - 1)
ONE_TO_FOUR = st.integers(1, 4)
ONE_TO_SEVEN = st.integers(1, 7)


def digits(number: int, sizes: Iterable[int]) -> list[int]:
    """A number below the product of `sizes` as a digit below each of them; the first counts single ones."""
    answer = []
    for size in sizes:
        number, digit = divmod(number, size)
        answer.append(digit)
    return answer


@st.composite
def inventories(draw: st.DrawFn) -> tuple[Node, ...]:
    """One to four nodes of one to four cards, now and then of two types, unavailable or with unusable cards."""
    nodes = []
    next_id = 1
    for number in range(draw(ONE_TO_FOUR)):
        name = f"n{number}"
        further_cards, main_type, away, *oddities = digits(draw(NODE_NUMBERS), NODE_DIGITS)
        gpus = []
        for index, odd in enumerate(oddities[: 1 + further_cards]):
            gpu_type = TYPES[1 - main_type if odd == 19 else main_type]
            condition = GpuCondition.QUARANTINED if odd == 18 else GpuCondition.USABLE
            gpus.append(Gpu(next_id, name, index, gpu_type, condition=condition))
            next_id += 1
        nodes.append(Node(name, tuple(gpus), available=away != 7))
    return tuple(nodes)


@st.composite
def calendars(draw: st.DrawFn, nodes: tuple[Node, ...]) -> tuple[Commitment, ...]:
    """For each card up to two ranges that don't overlap; one that has begun may be held, also past its end."""
    rows = []
    for gpu in (gpu for node in nodes for gpu in node.gpus):
        kind, since, more, shared, gap, length = digits(draw(CARD_NUMBERS), CARD_DIGITS)
        if kind <= 1:
            continue
        start = 6 - since
        end = start + 1 + more
        holder = f"g{gpu.id % 3}" if shared else f"r{gpu.id}"
        rows.append(held(holder, gpu.id, start, end, is_held=start <= 0 and kind != 2))
        if kind == 3:
            rows.append(held(f"b{gpu.id}", gpu.id, end + gap, end + gap + 1 + length, is_held=False))
    return tuple(rows)


@cache
def jobs(seq: int, types: tuple[str | None, ...] = (None, *TYPES, "h100", "t4")) -> st.SearchStrategy[Waiting]:
    """One job, small enough to fit often."""
    sizes = (len(AVOIDED), len(types), 4, 5, 15, 4)

    def made(number: int) -> Waiting:
        avoid, gpu_type, gpus, nodes, minutes, priority = digits(number, sizes)
        return job(
            seq,
            1 + gpus,
            (1, 1, 1, 2, 3)[nodes],
            minutes=1 + minutes,
            gpu_type=types[gpu_type],
            priority=(0, 0, 0, 1)[priority],
            avoid=AVOIDED[avoid],
        )

    return st.integers(0, prod(sizes) - 1).map(made)


@st.composite
def worlds(draw: st.DrawFn, types: tuple[str | None, ...] = (None, *TYPES, "h100", "t4")) -> World:
    """A whole snapshot."""
    nodes = draw(inventories())
    rows = draw(calendars(nodes))
    waiting = tuple(draw(jobs(seq, types)) for seq in range(1, draw(ONE_TO_SEVEN) + 1))
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


def allowed(nodes: Sequence[Node], wanted: Waiting) -> Sequence[Node]:
    """The nodes that it may use: not those it avoids, if it could ever run on the others."""
    if not wanted.avoid_nodes:
        return nodes
    others = [node for node in nodes if node.name not in wanted.avoid_nodes]
    anywhere = replace(wanted, avoid_nodes=frozenset())
    return others if any(any(choices(others, anywhere, gpu_type)) for gpu_type in types_for(others, wanted)) else nodes


def choices(nodes: Sequence[Node], wanted: Waiting, gpu_type: str) -> Iterable[tuple[Gpu, ...]]:
    """Every set of usable cards of one type that would do, were they free."""
    nodes = allowed(nodes, wanted)
    usable = [
        [gpu for gpu in node.gpus if gpu.gpu_type == gpu_type and gpu.condition is GpuCondition.USABLE]
        for node in nodes
        if node.available
    ]
    for some in combinations(usable, wanted.nodes):
        for cards in product(*(combinations(gpus, wanted.gpus) for gpus in some)):
            yield tuple(gpu for part in cards for gpu in part)


def types_for(nodes: Sequence[Node], wanted: Waiting) -> list[str]:
    """The types it may use, in order of name."""
    known = sorted({gpu.gpu_type for node in nodes for gpu in node.gpus})
    return [gpu_type for gpu_type in known if wanted.gpu_type in (None, gpu_type)]


def fits_at(
    nodes: Sequence[Node], rows: Sequence[Commitment], wanted: Waiting, gpu_type: str, start: datetime, now: datetime
) -> bool:
    """Whether some choice of cards is free for all its length from `start`."""
    free = {gpu.id for node in nodes for gpu in node.gpus if is_free(gpu, rows, start, start + wanted.length, now)}
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
    times = [earliest(nodes, rows, wanted, listed_type, now) for listed_type in types_for(nodes, wanted)]
    return min((time for time in times if time is not None), default=None)


def check_start(
    nodes: Sequence[Node], rows: Sequence[Commitment], wanted: Waiting, start: Start, now: datetime
) -> None:
    """That a start is what was asked for, on cards that are free and usable."""
    gpus = {gpu.id: (node, gpu) for node in nodes for gpu in node.gpus}
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
        assert on_node in allowed(nodes, wanted)
        assert gpu.condition is GpuCondition.USABLE
        assert is_free(gpu, rows, start.start, start.end, now)
        types.add(gpu.gpu_type)
        by_rank.setdefault(placed.rank, set()).add(placed.node)
    assert len(types) == 1
    assert wanted.gpu_type in (None, *types)
    assert sorted(by_rank) == list(range(wanted.nodes))
    assert all(len(names) == 1 for names in by_rank.values())
    assert len(set.union(*by_rank.values())) == wanted.nodes
