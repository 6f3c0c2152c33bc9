"""Cordons: nothing new comes to a node, what is there goes on, and nobody else's word says otherwise."""

from dataclasses import replace
from datetime import timedelta

import pytest

from reservation_core.domain.errors import ForbiddenError, NotFoundError
from reservation_core.domain.statuses import JobStatus, ReasonCode, Role
from reservation_core.ports.nodes.inventory import NodeView
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.nodes.cordon_node import cordon, uncordon
from reservation_core.usecases.nodes.update_inventory import update_inventory
from reservation_core.usecases.planning.planner import Planner
from tests.integration.reservation_core.usecases.world import World


def root(world: World) -> Principal:
    return replace(world.who, user="root", role=Role.ADMIN)


async def cordoned(world: World, node: str, reason: str | None = "A fan is loud.") -> NodeView:
    async with world.uow() as uow:
        return await cordon(uow, root(world), node, reason, world.clock.now())


async def uncordoned(world: World, node: str) -> NodeView:
    async with world.uow() as uow:
        return await uncordon(uow, root(world), node, world.clock.now())


async def planned(planner: Planner) -> None:
    """All that one planner, which keeps the nodes in memory, has to do now."""
    while True:
        outcome = await planner.cycle()
        if not (outcome.more or outcome.started or outcome.messages):
            break
    await planner.give_slots()
    await planner.publish_estimates()


async def test_what_is_there_goes_on_and_nothing_new_comes(world: World) -> None:
    runs, planner = await world.ran(gpus=2), await world.planner()
    [card, _] = await world.cards(runs)
    here, there = (card.node, "b" if card.node == "a" else "a")
    await planned(planner)
    view = await cordoned(world, here)
    assert (view.cordon.by, view.cordon.reason) if view.cordon else None == ("root", "A fan is loud.")
    assert (view.free, view.schedulable, view.fenced_at) == (0, True, None)
    first, second = await world.submitted(gpus=2), await world.submitted(gpus=2)
    both = await world.submitted(nodes=2)
    await planned(planner)
    assert (await world.row(runs)).status is JobStatus.RUNNING
    assert {gpu.node for gpu in await world.cards(first)} == {there}
    assert (await world.row(second)).status is JobStatus.QUEUED
    # Its slot is where something will be free, not on the cordoned node.
    assert {gpu.node for gpu in await world.cards(second)} <= {there}
    waits = await world.view(both)
    assert (waits.reservation.reason.code, waits.estimated_start_at) == (ReasonCode.NODE_UNAVAILABLE, None)
    assert f"{here}: Cordoned by an administrator (root: A fan is loud.)" in waits.reservation.reason.detail
    view = await uncordoned(world, here)
    assert (view.cordon, view.detail) == (None, None)
    await world.operate()
    await planned(planner)
    assert (await world.view(both)).estimated_start_at is not None


async def test_a_cordon_stands_whatever_the_cluster_reports(world: World) -> None:
    await cordoned(world, "a")
    world.cluster.away = {"a"}
    await update_inventory(world.uow, world.cluster, world.clock)
    world.cluster.away = set()
    await update_inventory(world.uow, world.cluster, world.clock)
    async with world.uow() as uow:
        [a, b] = await uow.inventory.nodes(after=None, limit=10)
    assert ((a.ready, a.free), (b.ready, b.free)) == ((True, 0), (True, 2))
    wide = await world.submitted(nodes=2)
    await world.plan()
    assert (await world.row(wide)).status is JobStatus.QUEUED


async def test_saying_it_again_changes_nothing_but_another_reason(world: World) -> None:
    first = (await cordoned(world, "a")).cordon
    world.clock.go_on(timedelta(minutes=1))
    assert first is not None
    for reason in (first.reason, None):
        assert (await cordoned(world, "a", reason)).cordon == first
    assert (await cordoned(world, "a", "Another reason.")).cordon == replace(first, reason="Another reason.")
    for _ in range(2):
        assert (await uncordoned(world, "a")).cordon is None
    assert (await cordoned(world, "a", None)).cordon != first
    rows = await world.sql(
        "SELECT kind, actor, data FROM events WHERE subject = 'a' AND kind LIKE '%cordoned' ORDER BY id"
    )
    assert [tuple(row) for row in rows] == [
        ("node_cordoned", "root", {"reason": "A fan is loud."}),
        ("node_cordoned", "root", {"reason": "Another reason."}),
        ("node_uncordoned", "root", {}),
        ("node_cordoned", "root", {}),
    ]


async def test_only_administrators_cordon_what_there_is(world: World) -> None:
    for act in (lambda uow, who, node: cordon(uow, who, node, None, world.clock.now()),
                lambda uow, who, node: uncordon(uow, who, node, world.clock.now())):  # fmt: skip
        async with world.uow() as uow:
            with pytest.raises(ForbiddenError):
                await act(uow, world.who, "a")
            with pytest.raises(NotFoundError):
                await act(uow, root(world), "z")
