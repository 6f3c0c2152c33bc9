"""Groups of nodes by type and rack, and the filter that is the page's address."""

import pytest

from api_service.web.fleet.fleet import FleetNode, fleet_of
from api_service.web.fleet.node_filter import NodeFilter, NodeOrder, NodeView
from api_service.web.fleet.node_groups import MOST_RACKS, group_nodes
from reservation_core.ports.nodes.cards_now import NodeNow
from tests.unit.api_service.web.fleet.fleets import NOW, card, hold, node


def nodes_of(*nodes: NodeNow) -> list[FleetNode]:
    return list(fleet_of(None, nodes, NOW).nodes)


def named(kind: str, *names: str, free: int = 1) -> list[NodeNow]:
    """Nodes with two GPUs, so many of them free."""
    return [
        node(name, *(card(index, holder=None if index < free else hold(), gpu_type=kind) for index in range(2)))
        for name in names
    ]


@pytest.mark.parametrize(
    ("name", "rack"),
    [
        ("gpu-r07-n03", "r07"),
        ("gpu-h100-r07-n03.cluster.r9.example.org", "r07"),
        ("rack12-node3", "rack12"),
        ("dgx-rack-3", "rack-3"),
        ("R07n03", "R07"),
        ("node-0001", ""),
        ("server17", ""),
        ("gpu-rtx4090-1", ""),
        ("ip-10-0-1-2.ec2.internal", ""),
    ],
)
def test_the_rack_is_read_from_the_name(name: str, rack: str) -> None:
    assert nodes_of(node(name, card()))[0].rack == rack


def test_the_label_says_the_rack_before_the_name() -> None:
    assert nodes_of(NodeNow("gpu-r07-n03", True, None, (), rack="B-12"))[0].rack == "B-12"


def test_groups_are_by_type_and_rack_where_racks_are_known() -> None:
    found = group_nodes(
        nodes_of(*named("h100", "a-r1-n1", "a-r1-n2", "a-r2-n1", free=2), *named("a100", "b-r1-n1", "b-r1-n2", "c")),
        None,
        by_free=False,
    )
    assert [(group.type_name, group.rack, len(group.nodes), group.free, group.together) for group in found] == [
        ("a100", "", 3, 3, 1),
        ("h100", "", 3, 6, 2),
    ]  # four groups of six nodes are too many
    found = group_nodes(nodes_of(*named("h100", "a-r1-n1", "a-r1-n2", "a-r2-n1", "a-r2-n2")), None, by_free=False)
    assert [(group.type_name, group.rack, group.gpus) for group in found] == [("h100", "r1", 4), ("h100", "r2", 4)]
    assert found[0].query(NodeFilter()) == "type=h100&rack=r1"
    chosen = NodeFilter("", "", "a-", 1, True, NodeOrder.FREE, NodeView.MAP)
    assert found[0].query(chosen) == "type=h100&rack=r1&node=a-&free=1&mine=yes&sort=free&view=map"
    assert found[0].mark != found[1].mark


def test_the_number_of_groups_is_bounded() -> None:
    many = [f"n-r{rack}-{number}" for rack in range(MOST_RACKS + 1) for number in range(2)]
    assert len(group_nodes(nodes_of(*named("h100", *many)), None, by_free=False)) == 1


def test_those_with_most_free_together_come_first() -> None:
    nodes = nodes_of(*named("a100", "a", "b"), *named("h100", "c", "d", free=2))
    chosen = NodeFilter(order=NodeOrder.FREE)
    assert [listed.name for listed in chosen.sort(nodes)] == ["c", "d", "a", "b"]
    assert [group.type_name for group in group_nodes(nodes, None, by_free=True)] == ["h100", "a100"]


def test_a_mixed_node_counts_for_the_chosen_type_alone() -> None:
    (mixed,) = nodes_of(node("a", card(0), card(1, gpu_type="a100"), card(2, gpu_type="a100")))
    assert (mixed.free(), mixed.free("a100"), mixed.free("h100")) == (3, 2, 1)
    (group,) = group_nodes([mixed, mixed], "a100", by_free=False)
    assert (group.type_name, group.gpus, group.free, group.together) == ("a100", 4, 4, 2)


def test_the_filter_matches_names_racks_and_free_gpus() -> None:
    first, second = nodes_of(*named("h100", "GPU-r1-n1", free=2), *named("h100", "gpu-r2-n1"))
    assert NodeFilter(node="gpu").matches(first, exactly=False)
    assert not NodeFilter(node="gpu").matches(first, exactly=True)
    assert [NodeFilter(free=2).matches(listed, exactly=False) for listed in (first, second)] == [True, False]
    assert [NodeFilter(rack="r2").matches(listed, exactly=False) for listed in (first, second)] == [False, True]
    assert not NodeFilter(kind="a100", free=1).matches(first, exactly=False)


def test_the_address_says_only_what_differs_from_the_default() -> None:
    assert NodeFilter().query == ""
    whole = NodeFilter("h100", "r1", "n", 4, True, NodeOrder.FREE, NodeView.MAP)
    assert whole.query == "type=h100&rack=r1&node=n&free=4&mine=yes&sort=free&view=map"
    assert [NodeFilter(kind="h100").moves_nodes, NodeFilter(free=1).moves_nodes] == [False, True]
