"""Pods that no live row wants: removed, taken up again, or reported and left alone."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from reservation_core.domain.model import PodHolding, PodPhase, PodPlace, PodStatus
from reservation_core.domain.statuses import JobStatus
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.jobs.unknown_pods import UnknownPod
from reservation_core.usecases.nodes.update_inventory import update_inventory
from reservation_core.usecases.running.adopt import AccountReport, AccountRules, Accounts
from tests.database.sql import sql
from tests.integration.reservation_core.usecases.world import World, pod
from tests.waiting import PATIENCE_S

HOUR = timedelta(hours=1)
RULES = AccountRules(grace=timedelta(seconds=1), end_unknown=False)
Settle = Callable[..., Awaitable[AccountReport]]


def holding(world: World, node: str = "a", *indices: int, pods: int = 1) -> PodHolding:
    now = world.clock.now()
    return PodHolding(node, indices or (0,), pods, now, now + HOUR)


@pytest.fixture
def settle(world: World) -> Settle:
    """Account for every pod; the memory is that of one process."""
    accounts = {end: Accounts(world.uow, world.cluster, world.clock, replace(RULES, end_unknown=end)) for end in (0, 1)}

    async def settle(*, end_unknown: bool = False) -> AccountReport:
        pods = list(world.cluster.pods.values())
        return await accounts[end_unknown].settle(pods, pods)

    return settle


async def unknown(world: World) -> list[UnknownPod]:
    async with world.uow() as uow:
        return await uow.unknown_pods.page(after=None, limit=100)


async def states(world: World) -> dict[str, str]:
    async with world.uow() as uow:
        return {f"{gpu.node}/{gpu.index}": gpu.state.value for gpu in await uow.inventory.gpus(after=None, limit=100)}


async def recorded(world: World, kind: str) -> list[str]:
    found = await world.sql("SELECT subject FROM events WHERE kind = :kind ORDER BY id", kind=kind)
    return [row.subject for row in found]


async def forget_attempt(world: World, job_id: str) -> None:
    """What a backup from before the job's start has of it."""
    async with world.uow() as uow:
        await sql(uow, "DELETE FROM allocations WHERE reservation_id = :id", id=job_id)
        await sql(
            uow,
            "UPDATE reservations SET status = 'queued', attempt = 0, range_end = NULL, started_at = NULL, "
            "ends_at = NULL, version = 1 WHERE id = :id",
            id=job_id,
        )


# --- unknown


async def test_a_pod_that_the_ledger_does_not_know_is_reported_and_left_alone(world: World, settle: Settle) -> None:
    name = pod("job-nobody")
    world.cluster.show(name, PodPhase.RUNNING, holding=holding(world, "a", 1))
    assert (await settle()).reported == 1
    assert (await settle()).reported == 0
    assert (world.cluster.deleted, world.cluster.forgotten) == ([], [])
    [found] = await unknown(world)
    assert (found.name, found.node, found.gpu_indices, found.end_requested_at) == (str(name), "a", (1,), None)
    assert await recorded(world, "unknown_pod") == [str(name)]


async def test_its_cards_are_not_given_out_while_it_is_there(world: World, settle: Settle) -> None:
    world.cluster.show(pod("job-nobody"), PodPhase.RUNNING, holding=holding(world, "a", 0, 1))
    await settle()
    assert await states(world) == {"a/0": "foreign", "a/1": "foreign", "b/0": "free", "b/1": "free"}
    waiting = await world.submitted(gpus=2, nodes=2)
    fitting = await world.submitted(gpus=2)
    await world.plan()
    assert (await world.row(waiting)).status is JobStatus.QUEUED
    assert {card.node for card in await world.cards(fitting)} == {"b"}
    async with world.uow() as uow:
        [node, _] = await uow.inventory.nodes(after=None, limit=10)
    assert node.detail is not None
    assert "A pod that the ledger does not know holds GPUs 0,1 here" in node.detail
    # The inventory's next look changes nothing about it.
    await update_inventory(world.uow, world.cluster, world.clock)
    assert (await states(world))["a/0"] == "foreign"
    world.cluster.pods.clear()
    await settle()
    assert await states(world) == {"a/0": "free", "a/1": "free", "b/0": "held", "b/1": "held"}
    assert await unknown(world) == []
    assert await recorded(world, "unknown_pod_over") == ["job-nobody-1-0"]


async def test_of_a_pod_that_does_not_say_what_it_holds_all_cards_of_its_node_count(
    world: World, settle: Settle
) -> None:
    world.cluster.show(pod("job-nobody"), PodPhase.PENDING, place=PodPlace("a", None))
    # A job that has been given a card there and has no pod yet goes elsewhere.
    held = await world.submitted(gpus=2)
    await world.plan()
    assert {card.node for card in await world.cards(held)} == {"a"}
    assert (await settle()).reported == 1
    assert (await states(world)) == {"a/0": "foreign", "a/1": "foreign", "b/0": "free", "b/1": "free"}
    await world.operate()
    assert world.cluster.created == []
    assert (await world.row(held)).status is JobStatus.QUEUED
    waiting = await world.submitted(gpus=2, nodes=2)
    await world.plan()
    assert {card.node for card in await world.cards(held)} == {"b"}
    assert (await world.row(waiting)).status is JobStatus.QUEUED
    async with world.uow() as uow:
        [node, _] = await uow.inventory.nodes(after=None, limit=10)
        [found] = await uow.unknown_pods.page(after=None, limit=10)
    nodes_out = (await world.sql("SELECT nodes_out FROM queue_status")).scalar_one()
    assert found.detail == (
        "The ledger has no reservation of this name. It does not say which GPUs it holds: it may be any of its node."
    )
    said = "A pod that the ledger does not know holds GPUs 0,1 here: they are not given out until it ends"
    assert said in str(node.detail)
    assert said in nodes_out
    assert node.free == 0
    world.cluster.pods.clear()
    await settle()
    assert (await states(world))["a/0"] == "free"


async def test_where_only_their_number_matters_so_many_cards_count_and_those_that_nobody_has(
    world: World, settle: Settle
) -> None:
    first, second = await world.ran(), await world.ran()
    assert [{(card.node, card.index) for card in await world.cards(job_id)} for job_id in (first, second)] == [
        {("a", 0)},
        {("a", 1)},
    ]
    await ended(world, first)
    world.cluster.show(pod("job-nobody"), PodPhase.RUNNING, place=PodPlace("a", 1))
    world.cluster.show(pod("job-no-node"), PodPhase.PENDING)
    await settle()
    assert await states(world) == {"a/0": "foreign", "a/1": "held", "b/0": "free", "b/1": "free"}
    # The same one at the next look, whatever has become free meanwhile.
    await ended(world, second)
    await settle()
    assert await states(world) == {"a/0": "foreign", "a/1": "free", "b/0": "free", "b/1": "free"}
    world.cluster.show(pod("job-nobody"), PodPhase.RUNNING, place=PodPlace("a", 2))
    await settle()
    assert (await states(world))["a/1"] == "foreign"
    world.cluster.show(pod("job-nobody"), PodPhase.RUNNING, place=PodPlace("elsewhere", None))
    await settle()
    assert set((await states(world)).values()) == {"free"}


async def ended(world: World, job_id: str) -> None:
    """Let a job's pod finish and go."""
    now = world.clock.now()
    await world.see(world.cluster.show(pod(job_id), PodPhase.FINISHED, exit_code=0, started_at=now, finished_at=now))
    await world.operate()
    assert (await world.row(job_id)).status is JobStatus.SUCCEEDED


async def test_what_has_finished_holds_no_cards(world: World, settle: Settle) -> None:
    world.cluster.show(pod("job-nobody"), PodPhase.FINISHED, holding=holding(world, "a", 0), exit_code=0)
    await settle()
    [found] = await unknown(world)
    assert (found.node, found.gpu_indices) == (None, None)
    assert (await states(world))["a/0"] == "free"


async def test_an_administrators_word_ends_it(world: World, settle: Settle) -> None:
    world.cluster.show(pod("job-nobody"), PodPhase.RUNNING, holding=holding(world))
    await settle()
    async with world.uow() as uow:
        await uow.unknown_pods.request_end("job-nobody-1-0", "root", world.clock.now())
    assert (await settle()).ended == 1
    assert world.cluster.deleted == ["job-nobody-1-0"]
    await settle()
    assert await unknown(world) == []


async def test_by_policy_it_is_ended_without_anybodys_word(world: World, settle: Settle) -> None:
    world.cluster.obedient = False
    world.cluster.show(pod("job-nobody"), PodPhase.RUNNING, holding=holding(world))
    assert (await settle(end_unknown=True)).ended == 1
    assert (await settle(end_unknown=True)).ended == 1
    assert await recorded(world, "unknown_pod_end_requested") == ["job-nobody-1-0"]
    [found] = await unknown(world)
    assert found.end_requested_by == "system"


async def test_a_pod_of_a_past_that_is_over_is_removed_and_recorded_once(world: World, settle: Settle) -> None:
    world.cluster.obedient = False
    job_id = await world.ran()
    world.cluster.show(pod(job_id, attempt=0), PodPhase.RUNNING)
    assert ((await settle()).removed, (await settle()).removed) == (1, 1)
    assert world.cluster.deleted == [str(pod(job_id, attempt=0))] * 2
    assert await recorded(world, "orphan_removed") == [str(pod(job_id, attempt=0))]
    assert (await world.row(job_id)).status is JobStatus.RUNNING
    assert await unknown(world) == []


async def test_a_cluster_that_can_not_be_asked_concludes_nothing(world: World, settle: Settle) -> None:
    world.cluster.show(pod("job-nobody"), PodPhase.RUNNING, holding=holding(world))
    await settle()
    world.cluster.down = True
    with pytest.raises(ClusterUnavailableError):
        await settle()
    assert len(await unknown(world)) == 1


# --- adopted


async def test_a_running_job_that_the_ledger_has_forgotten_is_taken_up_again(world: World, settle: Settle) -> None:
    job_id = await world.ran(gpus=2)
    cards = {(card.node, card.index) for card in await world.cards(job_id)}
    await forget_attempt(world, job_id)
    report = await settle()
    assert [status.name for status in report.adopted] == [pod(job_id)]
    row = await world.row(job_id)
    assert (row.status, row.attempt) == (JobStatus.STARTING, 1)
    taken = await world.cards(job_id)
    assert {(card.node, card.index) for card in taken} == cards
    assert all(card.held for card in taken)
    assert (await world.kinds(job_id))[-1] == "adopted"
    await world.see(*report.adopted)
    assert (await world.row(job_id)).status is JobStatus.RUNNING
    assert await unknown(world) == []


async def test_a_running_job_without_gpus_is_taken_up_again(world: World, settle: Settle) -> None:
    await world.sql("UPDATE nodes SET spare_cpu_milli = 2000, spare_memory_bytes = 4294967296")
    job_id = await world.ran(gpus=0, resources={"cpus": 2})
    [place] = await world.cards(job_id)
    await forget_attempt(world, job_id)
    report = await settle()
    assert [status.name for status in report.adopted] == [pod(job_id)]
    [taken] = await world.cards(job_id)
    assert (taken.node, taken.held) == (place.node, True)
    await forget_attempt(world, job_id)
    # Meanwhile the node keeps less: what it has given up is not given again.
    await world.sql("UPDATE nodes SET spare_cpu_milli = 1000")
    report = await settle()
    assert (report.adopted, report.reported) == ([], 1)
    [found] = await unknown(world)
    assert "CPUs and memory" in found.detail


async def test_a_gang_is_taken_up_when_all_its_pods_are_there(world: World, settle: Settle) -> None:
    job_id = await world.ran(gpus=1, nodes=2)
    await forget_attempt(world, job_id)
    lost = world.cluster.pods.pop(pod(job_id, 1))
    assert (await settle()).adopted == []
    [found] = await unknown(world)
    assert "1 of the 2 pods" in found.detail
    assert (await world.row(job_id)).status is JobStatus.QUEUED
    world.cluster.pods[pod(job_id, 1)] = lost
    assert len((await settle()).adopted) == 2
    assert {(card.node, card.rank) for card in await world.cards(job_id)} == {("a", 0), ("b", 1)}
    assert await unknown(world) == []


async def test_cards_of_another_are_refused_by_the_ledger_and_the_pod_reported(world: World, settle: Settle) -> None:
    job_id = await world.ran()
    [card] = await world.cards(job_id)
    await forget_attempt(world, job_id)
    # Meanwhile the ledger gives the card to another, as it must never: its pod is there.
    other = await world.submitted(priority=5)
    world.rules = replace(world.rules, batch=1)
    await world.plan()
    assert [(gpu.node, gpu.index) for gpu in await world.cards(other)] == [(card.node, card.index)]
    report = await settle(end_unknown=True)
    assert (report.adopted, report.reported, report.ended) == ([], 1, 0)
    [found] = await unknown(world)
    assert "given some of these GPUs to another job" in found.detail
    assert world.cluster.deleted == []
    # It can't be started beside its own pod, whose name its next one would have.
    await world.plan()
    assert (await world.row(job_id)).status is JobStatus.QUEUED
    # Once the other lets go, it is taken up.
    await world.sql(
        "UPDATE allocations SET held = false, released_at = clock_timestamp(), "
        "during = tstzrange(lower(during), clock_timestamp()) WHERE held"
    )
    assert len((await settle()).adopted) == 1
    assert await unknown(world) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda h: None, "does not say which GPUs"),
        (lambda h: replace(h, gpu_indices=(0, 1)), "holds GPUs 0,1, and its job asks for 1"),
        (lambda h: replace(h, gpu_indices=()), "holds GPUs none"),
        (lambda h: replace(h, pods=2), "does not match its job"),
        (lambda h: replace(h, ends_at=h.starts_at), "does not match its job"),
        (lambda h: replace(h, gpu_indices=(7,)), "inventory does not have"),
        (lambda h: replace(h, node="nowhere"), "inventory does not have"),
    ],
    ids=["nothing", "too-many", "none", "gang", "empty-range", "no-such-card", "no-such-node"],
)
async def test_a_pod_that_contradicts_its_job_is_reported(
    world: World, settle: Settle, change: Callable[[PodHolding], PodHolding | None], said: str
) -> None:
    job_id = await world.ran()
    await forget_attempt(world, job_id)
    status = world.cluster.pods[pod(job_id)]
    assert status.holding is not None
    world.cluster.pods[pod(job_id)] = replace(status, holding=change(status.holding))
    assert (await settle()).adopted == []
    [found] = await unknown(world)
    assert said in found.detail
    assert (await world.row(job_id)).status is JobStatus.QUEUED
    assert await world.cards(job_id) == ()


async def test_a_job_that_ended_meanwhile_keeps_its_end(world: World, settle: Settle) -> None:
    job_id = await world.ran()
    await forget_attempt(world, job_id)
    world.cluster.show(pod(job_id), PodPhase.FINISHED, started_at=world.clock.now(), exit_code=0)
    await world.see(*(await settle()).adopted)
    row = await world.row(job_id)
    assert (row.status, row.outcome) == (JobStatus.ENDING, JobStatus.SUCCEEDED)


async def test_a_start_of_an_older_attempt_gives_its_cards_back(world: World, settle: Settle) -> None:
    job_id = await world.started()
    [before] = await world.cards(job_id)
    name = pod(job_id, attempt=2)
    world.cluster.pods.clear()
    where = holding(world, "b" if before.node == "a" else "a", before.index)
    world.cluster.pods[name] = PodStatus(name, PodPhase.RUNNING, started_at=world.clock.now(), holding=where)
    assert len((await settle()).adopted) == 1
    row = await world.row(job_id)
    assert (row.status, row.attempt) == (JobStatus.STARTING, 2)
    held = sorted(key for key, state in (await states(world)).items() if state == "held")
    assert held == [f"{where.node}/{before.index}"]


async def test_no_pod_is_made_on_cards_that_an_unknown_pod_holds(world: World, settle: Settle) -> None:
    job_id = await world.submitted(gpus=2)
    await world.plan()
    [node] = {card.node for card in await world.cards(job_id)}
    world.cluster.show(pod("job-nobody"), PodPhase.RUNNING, holding=holding(world, node, 1))
    await settle()
    await world.operate()
    assert world.cluster.created == []
    row = await world.row(job_id)
    assert (row.status, row.attempt) == (JobStatus.QUEUED, 1)
    assert "start_failed" in await world.kinds(job_id)
    await world.plan()
    await world.operate()
    assert [spec.node for spec in world.cluster.created] == [{"a": "b", "b": "a"}[node]]


async def test_who_is_busy_with_a_reservations_pods_is_not_waited_for(world: World, settle: Settle) -> None:
    world.cluster.show(pod("job-nobody"), PodPhase.RUNNING, holding=holding(world))
    async with world.uow.hold_pods(["job-nobody"]):
        async with asyncio.timeout(PATIENCE_S):
            assert (await settle()).reported == 0
    assert (await settle()).reported == 1
