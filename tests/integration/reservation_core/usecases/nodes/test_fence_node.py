"""Nodes that don't answer: nothing is freed on silence alone, and everything on an administrator's word."""

from dataclasses import replace
from datetime import timedelta

import pytest

from reservation_core.domain.errors import ForbiddenError, NodeAnswersError, NodeNotFencedError, NotFoundError
from reservation_core.domain.model import PodPhase
from reservation_core.domain.statuses import JobStatus, ReasonCode, Role
from reservation_core.ports.nodes.inventory import NodeView
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.jobs.cancel import cancel
from reservation_core.usecases.nodes.fence_node import end_fenced_reservations, fence, unfence
from reservation_core.usecases.nodes.update_inventory import update_inventory
from reservation_core.usecases.running.resync import Resync, ResyncRules
from tests.integration.reservation_core.usecases.world import LAUNCH, World, pod

RESYNC = ResyncRules(
    starting_patience=timedelta(hours=1),
    ending_patience=timedelta(hours=1),
    grace=timedelta(seconds=1),
    belt=LAUNCH.belt,
    max_starts=3,
)


def root(world: World) -> Principal:
    return replace(world.who, user="root", role=Role.ADMIN)


async def goes_away(world: World, *nodes: str) -> None:
    """They stop answering, and so do their pods."""
    world.cluster.away = set(nodes)
    world.cluster.obedient = False
    await update_inventory(world.uow, world.cluster, world.clock)


async def fenced(world: World, node: str) -> NodeView:
    async with world.uow() as uow:
        return await fence(uow, root(world), node, "The power supply burnt.", world.clock.now())


async def resynced(world: World) -> None:
    await Resync(world.uow, world.cluster, world.clock, RESYNC).once()


async def states(world: World) -> dict[str, str]:
    async with world.uow() as uow:
        return {f"{gpu.node}/{gpu.index}": gpu.state.value for gpu in await uow.inventory.gpus(after=None, limit=100)}


async def ran_on(world: World, node: str) -> str:
    """The id of a job that runs on both cards of a node."""
    other = "b" if node == "a" else "a"
    first, second = await world.ran(gpus=2), await world.ran(gpus=2)
    [card, _] = await world.cards(first)
    here, there = (first, second) if card.node == node else (second, first)
    async with world.uow() as uow:
        await cancel(uow, world.who, there, None, world.clock.now())
    await world.operate()
    assert {card.node for card in await world.cards(there)} == {other}
    return here


async def test_the_cards_of_a_node_that_is_away_are_quarantined_and_come_back(world: World) -> None:
    assert set((await states(world)).values()) == {"free"}
    await goes_away(world, "a")
    assert await states(world) == {"a/0": "quarantined", "a/1": "quarantined", "b/0": "free", "b/1": "free"}
    waiting = await world.submitted(gpus=1, nodes=2)
    await world.plan()
    assert (await world.row(waiting)).status is JobStatus.QUEUED
    async with world.uow() as uow:
        [node, _] = await uow.inventory.nodes(after=None, limit=10)
    assert (node.free, node.detail) == (0, "It does not answer: its GPUs are quarantined until it is back.")
    await goes_away(world)
    await world.plan()
    assert (await world.row(waiting)).status is JobStatus.STARTING


async def test_silence_frees_nothing(world: World) -> None:
    job_id = await ran_on(world, "a")
    await goes_away(world, "a")
    for _ in range(3):
        world.clock.go_on(timedelta(minutes=10))
        await resynced(world)
        await world.operate()
    assert (await world.row(job_id)).status is JobStatus.RUNNING
    assert all(card.held for card in await world.cards(job_id))
    async with world.uow() as uow:
        await cancel(uow, world.who, job_id, None, world.clock.now())
    await world.operate()
    await resynced(world)
    assert (await world.row(job_id)).status is JobStatus.ENDING
    assert all(card.held for card in await world.cards(job_id))
    assert world.cluster.forgotten == []


async def test_a_fence_ends_what_ran_there_and_gives_back_what_is_elsewhere(world: World) -> None:
    gang = await world.ran(gpus=1, nodes=2)
    other = await world.ran()
    [card] = await world.cards(other)
    away = "b" if card.node == "a" else "a"
    rank = next(c.rank for c in await world.cards(gang) if c.node == away)
    await goes_away(world, away)
    await fenced(world, away)
    await resynced(world)
    row = await world.row(gang)
    assert (row.status, row.outcome, row.reason.code) == (JobStatus.ENDING, JobStatus.FAILED, ReasonCode.NODE_LOST)
    assert f"{away} was fenced by root (The power supply burnt.)" in row.reason.detail
    assert [event.actor for event in await world.events(gang) if event.kind == "node_fenced"] == ["root"]
    world.cluster.obedient = True  # where there is power
    await world.operate()
    assert world.cluster.forgotten == [str(pod(gang, rank))]
    assert world.cluster.deleted == [str(pod(gang, 1 - rank))]
    assert (await world.row(gang)).status is JobStatus.FAILED
    assert (await world.row(other)).status is JobStatus.RUNNING
    assert sorted((await states(world)).values()) == ["free", "held", "quarantined", "quarantined"]


async def test_what_was_ending_there_is_let_go(world: World) -> None:
    job_id = await ran_on(world, "a")
    async with world.uow() as uow:
        await cancel(uow, world.who, job_id, None, world.clock.now())
    await goes_away(world, "a")
    await world.operate()
    assert (await world.row(job_id)).status is JobStatus.ENDING
    await fenced(world, "a")
    await resynced(world)
    await world.operate()
    assert (await world.row(job_id)).status is JobStatus.CANCELLED


async def test_what_was_only_starting_there_is_queued_again(world: World) -> None:
    job_id = await world.started()
    [card] = await world.cards(job_id)
    await goes_away(world, card.node)
    await fenced(world, card.node)
    await resynced(world)
    await world.operate()
    assert (await world.row(job_id)).status is JobStatus.QUEUED
    await world.plan()
    [again] = await world.cards(job_id)
    assert again.node != card.node


async def test_a_fence_stands_until_it_is_taken_back(world: World) -> None:
    await goes_away(world, "a")
    node = await fenced(world, "a")
    assert (node.fenced_by, node.ready) == ("root", False)
    assert node.detail is not None
    assert "Fenced by root at 2030-01-01T12:00:00Z (The power supply burnt.)" in node.detail
    assert "gpu-dev nodes unfence a" in node.detail
    world.clock.go_on(timedelta(hours=1))
    assert await fenced(world, "a") == node
    await goes_away(world)
    assert (await states(world))["a/0"] == "quarantined"
    waiting = await world.submitted(gpus=1, nodes=2)
    await world.plan()
    assert (await world.row(waiting)).status is JobStatus.QUEUED
    async with world.uow() as uow:
        node = await unfence(uow, root(world), "a", world.clock.now())
    assert (node.fenced_by, node.free) == (None, 2)
    await world.plan()
    assert (await world.row(waiting)).status is JobStatus.STARTING


async def test_a_fenced_node_that_answers_again_speaks_for_its_own_pods(world: World) -> None:
    job_id = await ran_on(world, "a")
    await goes_away(world, "a")
    await fenced(world, "a")
    await goes_away(world)
    assert await end_fenced_reservations(world.uow, world.clock, 3) == 0
    assert (await world.row(job_id)).status is JobStatus.RUNNING
    async with world.uow() as uow:
        await cancel(uow, world.who, job_id, None, world.clock.now())
    await world.operate()
    assert world.cluster.forgotten == []
    assert (await world.row(job_id)).status is JobStatus.ENDING


async def test_what_is_left_over_on_a_fenced_node_is_forgotten(world: World) -> None:
    job_id = await ran_on(world, "a")
    holding = world.cluster.pods[pod(job_id)].holding
    world.cluster.show(pod(job_id, attempt=0), PodPhase.RUNNING, holding=holding)
    await goes_away(world, "a")
    await resynced(world)
    assert (world.cluster.deleted[-1], world.cluster.forgotten) == (str(pod(job_id, attempt=0)), [])
    await fenced(world, "a")
    await resynced(world)
    assert world.cluster.forgotten == [str(pod(job_id, attempt=0))]


async def test_what_a_fence_is_refused_for(world: World) -> None:
    now = world.clock.now()
    for who, node, error in (
        (world.who, "a", ForbiddenError),
        (root(world), "a", NodeAnswersError),
        (root(world), "nowhere", NotFoundError),
    ):
        with pytest.raises(error):
            async with world.uow() as uow:
                await fence(uow, who, node, None, now)
    for who, node, error in (
        (world.who, "a", ForbiddenError),
        (root(world), "a", NodeNotFencedError),
        (root(world), "nowhere", NotFoundError),
    ):
        with pytest.raises(error):
            async with world.uow() as uow:
                await unfence(uow, who, node, now)
