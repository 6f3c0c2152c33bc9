"""Cards and nodes for the tests of what is drawn from them."""

from datetime import UTC, datetime, timedelta

from reservation_core.domain.statuses import GpuState, ReservationKind
from reservation_core.ports.nodes.cards_now import GpuHold, GpuNow, NodeNow

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
ADA, BOB = 1, 2
NAMES = {ADA: "ada", BOB: "bob"}


def hold(
    user_id: int = BOB,
    *,
    kind: ReservationKind = ReservationKind.JOB,
    start: datetime = NOW - HOUR,
    end: datetime = NOW + 2 * HOUR,
) -> GpuHold:
    """Somebody has a card, for three hours by default."""
    prefix = {ReservationKind.JOB: "job", ReservationKind.BOOKING: "bkg", ReservationKind.MAINTENANCE: "mnt"}[kind]
    return GpuHold(f"{prefix}-{user_id}", kind, user_id, NAMES[user_id], start, end)


def card(
    index: int = 0,
    state: GpuState = GpuState.FREE,
    holder: GpuHold | None = None,
    follower: GpuHold | None = None,
    *,
    node: str = "n1",
    gpu_type: str = "h100",
) -> GpuNow:
    """A card; held where it has a holder."""
    if holder is not None and state is GpuState.FREE:
        state = GpuState.HELD
    return GpuNow(node, index, None, gpu_type, None, state, holder, follower)


def node(name: str, *cards: GpuNow, available: bool = True, detail: str | None = None) -> NodeNow:
    """A node with these cards."""
    return NodeNow(name, available, detail, cards)
