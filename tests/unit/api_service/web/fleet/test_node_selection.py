"""What a filter shows is what it would show anew, and what has not changed is not made again."""

from datetime import timedelta
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from api_service.access.sight import Sight
from api_service.web.fleet.fleet import FleetPicture, fleet_of
from api_service.web.fleet.node_filter import NodeFilter, NodeOrder, NodeView
from api_service.web.fleet.node_markup import Look
from api_service.web.fleet.node_selection import NodeSelections
from reservation_core.domain.statuses import GpuState, Role
from reservation_core.ports.nodes.cards_now import NodeNow
from reservation_core.ports.people.identities import Principal
from tests.unit.api_service.web.fleet.fleets import ADA, BOB, NOW, card, hold, node
from tests.unit.api_service.web.fleet.test_fleet import nodes_of_cards

filters = st.builds(
    NodeFilter,
    kind=st.sampled_from(["", "h100"]),
    node=st.sampled_from(["", "1", "n1"]),
    free=st.integers(0, 2),
    mine=st.booleans(),
    order=st.sampled_from(NodeOrder),
)


def look_of(chosen: NodeFilter, user_id: int = ADA) -> Look:
    sight = Sight(Principal(user_id, "somebody", Role.USER, "tok", None), None)
    return Look(sight, ZoneInfo("UTC"), NOW, chosen.kind or None, chosen.mine)


@given(st.lists(nodes_of_cards(), min_size=1, max_size=4), filters)
def test_what_is_kept_is_what_would_be_found_anew(moments: list[list[NodeNow]], chosen: NodeFilter) -> None:
    selections = NodeSelections()
    fleet: FleetPicture | None = None
    for nodes in moments:
        fleet = fleet_of(fleet, nodes, NOW)
        for user_id in (ADA, BOB):
            look = look_of(chosen, user_id)
            fresh = NodeSelections().of(fleet, chosen, look)
            kept = selections.of(fleet, chosen, look)
            assert (kept.nodes, kept.cards) == (fresh.nodes, fresh.cards)
            assert [(group.mark, group.nodes, group.free) for group in kept.groups] == [
                (group.mark, group.nodes, group.free) for group in fresh.groups
            ]


def test_only_the_group_of_a_changed_node_is_another() -> None:
    def nodes(state: GpuState) -> list[NodeNow]:
        others = [node(name, card()) for name in ("gpu-r1-n1", "gpu-r1-n2", "gpu-r2-n2")]
        held = card(holder=hold() if state is GpuState.HELD else None)
        return sorted([*others, node("gpu-r2-n1", held)], key=lambda found: found.name)

    selections, chosen = NodeSelections(), NodeFilter()
    before = fleet_of(None, nodes(GpuState.FREE), NOW)
    first = selections.of(before, chosen, look_of(chosen))
    assert selections.of(before, NodeFilter(view=NodeView.MAP), look_of(chosen)) is first
    after = fleet_of(before, nodes(GpuState.HELD), NOW + timedelta(seconds=1))
    second = selections.of(after, chosen, look_of(chosen))
    assert [group is known for group, known in zip(second.groups, first.groups, strict=True)] == [True, False]
