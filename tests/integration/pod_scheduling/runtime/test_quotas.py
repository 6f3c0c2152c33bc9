"""Quotas on an API server: racing pods never get more than there is, nor anything where no quota can be read."""

import asyncio
from datetime import UTC, datetime

import pytest

from pod_scheduling.ports.extender import NotSyncedError
from pod_scheduling.ports.pod_binding import BindRefusedError
from reservation_core.adapters.postgres.connection.engine import open_engine
from tests.clusters.card_cluster import CardCluster, card_pod, container
from tests.integration.pod_scheduling.runtime.asking import HOUR, PATIENCE_S, Starter, bind_all, binding, knows
from tests.integration.reservation_core.adapters.postgres.conftest import Seed
from tests.kubernetes.api_client import MERGE, JsonObject
from tests.waiting import eventually


async def test_of_a_hundred_racing_pods_the_quota_lets_exactly_eight_through(
    cards: CardCluster, start: Starter
) -> None:
    node = await cards.add_node(gpus=100)
    await cards.put_quotas({cards.namespace: {"quota": {"H100": 8}, "pool": []}})
    running = await start(assume_at="bind")
    pods = list(await asyncio.gather(*(cards.add(card_pod(f"p{number}", container(gpu=1))) for number in range(100))))
    await knows(running, pods[0], node)
    assert all(running.extender.filter(pod, [node]).fitting == (node,) for pod in pods)
    bound, refused = await bind_all(running, pods, node)
    assert bound == 8
    assert set(refused) == {
        f"GPU quota of namespace {cards.namespace}: 8 of 8 H100 used; ask an administrator, or wait"
    }
    assert len(await cards.bound()) == 8
    there = await cards.bound()
    left = next(pod for pod in pods if pod["metadata"]["name"] not in there)
    assert running.extender.filter(left, [node]).fitting == ()


async def test_broken_quotas_leave_the_last_ones_in_force_and_say_so(cards: CardCluster, start: Starter) -> None:
    node = await cards.add_node(gpus=4)
    await cards.put_quotas({cards.namespace: {"quota": {"H100": 1}}})
    running = await start(assumed_s=2)
    two = await cards.add(card_pod("two", container(gpu=2)))
    one = await cards.add(card_pod("one", container(gpu=1)))
    await knows(running, two, node)
    assert running.extender.filter(two, [node]).fitting == ()
    await cards.put_quotas('{"' + cards.namespace + '": {"quota": {"H100": -2}}}')
    await eventually(lambda: running.problems(), PATIENCE_S)
    assert f'namespace "{cards.namespace}", quota, H100' in running.problems()[0]
    assert running.numbers()["quotas_invalid"] == 1
    assert running.ready()
    assert running.extender.filter(two, [node]).fitting == ()
    assert running.extender.filter(one, [node]).fitting == (node,)

    async def told(reason: str) -> bool:
        return any(event["reason"] == reason for event in await cards.quota_events())

    await eventually(lambda: told("BadQuotas"), PATIENCE_S)
    await cards.put_quotas({cards.namespace: {"quota": {"h100": 2}}})
    await eventually(lambda: running.extender.filter(two, [node]).fitting == (node,), PATIENCE_S)
    assert running.problems() == []
    await eventually(lambda: told("QuotasRead"), PATIENCE_S)
    await cards.put_quotas({cards.namespace: {"quota": {}}})
    await eventually(lambda: running.extender.filter(one, [node]).fitting == (), PATIENCE_S)
    await cards.put_quotas(None)
    await eventually(lambda: running.problems(), PATIENCE_S)
    assert "under the key gpu_quota" in running.problems()[0]
    assert running.extender.filter(one, [node]).fitting == ()
    await cards.drop_quotas()
    await eventually(lambda: running.extender.filter(two, [node]).fitting == (node,), PATIENCE_S)


async def test_quotas_that_could_never_be_read_let_nobody_through(cards: CardCluster, start: Starter) -> None:
    node = await cards.add_node(gpus=4)
    await cards.put_quotas("not JSON")
    running = await start(wait=False)
    pod = await cards.add(card_pod("pod", container(gpu=1)))
    await eventually(lambda: running.problems(), PATIENCE_S)
    with pytest.raises(NotSyncedError):
        running.extender.filter(pod, [node])
    with pytest.raises(NotSyncedError):
        await running.extender.bind(binding(pod, node))
    assert not running.ready()
    await cards.put_quotas({})
    await eventually(running.ready, PATIENCE_S)


async def test_where_only_the_filter_is_asked_two_racing_pods_do_not_both_pass(
    cards: CardCluster, start: Starter
) -> None:
    node = await cards.add_node(shared=4, memory=8)
    await cards.put_quotas({cards.namespace: {"quota": {"H100": 1}}})
    running = await start(assume_at="filter")
    one = await cards.add(card_pod("one", container(core=60, memory=1)))
    other = await cards.add(card_pod("other", container(core=60, memory=1)))
    await knows(running, one, node)
    for _ in range(3):  # a retry is never refused because it was seen before
        assert running.extender.filter(one, [node]).fitting == (node,)
    assert running.extender.filter(other, [node]).fitting == ()
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "one"}, "target": target}
    await cards.client.call("POST", f"{cards.path}/one/binding", body)

    async def marked() -> str | None:
        said = (await cards.read("one"))["metadata"].get("annotations") or {}
        return said.get("tencent.com/predicate-gpu-idx-0")

    assert await eventually(marked, PATIENCE_S) == "0"
    assert running.extender.filter(other, [node]).fitting == ()
    await cards.client.call("DELETE", f"{cards.path}/one", {"gracePeriodSeconds": 0})
    await eventually(lambda: running.extender.filter(other, [node]).fitting == (node,), PATIENCE_S)


async def test_waiting_pods_are_marked_when_their_quota_is_raised(cards: CardCluster, start: Starter) -> None:
    node = await cards.add_node(gpus=4)
    await cards.put_quotas({cards.namespace: {"quota": {"H100": 0}}})
    running = await start()
    pod = await cards.add(card_pod("waits", container(gpu=1)))
    await knows(running, pod, node)
    assert running.extender.filter(pod, [node]).fitting == ()
    await cards.put_quotas({cards.namespace: {"quota": {"H100": 1}}})

    async def asked_again() -> str | None:
        said = (await cards.read("waits"))["metadata"].get("annotations") or {}
        return said.get("gpu-dev/asked-again")

    assert datetime.fromisoformat(await eventually(asked_again, PATIENCE_S)).tzinfo is not None
    await eventually(lambda: running.numbers()["nudged_total"] == 1, PATIENCE_S)
    assert running.extender.filter(pod, [node]).fitting == (node,)


async def test_owners_are_held_to_our_own_policy_with_what_the_ledger_has_of_theirs(
    cards: CardCluster, start: Starter, database_url: str
) -> None:
    node, other = await cards.add_node(gpus=8), await cards.add_node(gpus=8, product="Tesla-T4")
    engine = open_engine(database_url, pool=2, application="test")
    try:
        seed, now = Seed(engine), datetime.now(UTC)
        ann, bob = await seed.user("ann"), await seed.user("bob")
        of_ann, of_bob, later, *_ = await seed.node("elsewhere", cards=6)
        for job, user, card, begins in (
            ("job-a", ann, of_ann, -HOUR),
            ("job-b", bob, of_bob, -HOUR),
            ("job-c", ann, later, HOUR),
        ):
            await seed.job(job, user, "running", attempt=1, started_at=now - HOUR, ends_at=now + 5 * HOUR)
            await seed.allocate(job, card, now + begins, now + 5 * HOUR, held=False)
        await seed.run(
            "INSERT INTO policies (gpu_type, max_gpus, changed_at, changed_by) VALUES ('h100', 3, :now, 'root')",
            now=now,
        )
        await seed.run("UPDATE policy_state SET revision = revision + 1")
        await cards.client.call(
            "PATCH",
            f"/api/v1/namespaces/{cards.namespace}",
            {"metadata": {"labels": {"gpu-dev/enforce-bookings": "true"}}},
            content_type=MERGE,
        )
        running = await start(database_url=database_url, ledger_s=0.2)

        async def owned(name: str, gpus: int, **marks: str) -> JsonObject:
            pod = card_pod(name, container(gpu=gpus))
            pod["metadata"]["annotations"] = {f"gpu-dev/{key}": value for key, value in marks.items()}
            return await cards.add(pod)

        two, more = await owned("two", 2, owner="ann"), await owned("more", 1, owner="ann")
        booked, nobodys = await owned("booked", 4, owner="ann", booking="job-b9"), await owned("nobodys", 4)
        await knows(running, two, node, other)
        # The namespace may be seen to be an enforced one a moment later than the pods in it.
        great = await owned("great", 4, owner="bob")
        await eventually(lambda: running.extender.filter(great, [node]).fitting == (), PATIENCE_S)
        await running.extender.bind(binding(two, node))
        told = "ann holds 3 of the 3 h100 that the policy allows at once (everybody, h100); end something, or wait"
        assert running.extender.filter(more, [node]).unresolvable == {node: told}
        with pytest.raises(BindRefusedError, match="ann holds 3 of the 3 h100"):
            await running.extender.bind(binding(more, node))
        assert running.extender.filter(more, [other]).fitting == (other,)
        assert running.extender.filter(booked, [node]).fitting == (node,)
        assert running.extender.filter(nobodys, [node]).fitting == (node,)
        await seed.run("UPDATE policies SET max_gpus = 4")
        await seed.run("UPDATE policy_state SET revision = revision + 1")
        await eventually(lambda: running.extender.filter(more, [node]).fitting == (node,), PATIENCE_S)
        await seed.run("UPDATE policies SET max_gpus = 3")
        await seed.run("UPDATE policy_state SET revision = revision + 1")
        await eventually(lambda: running.extender.filter(more, [node]).fitting == (), PATIENCE_S)
        await seed.run("UPDATE allocations SET released_at = clock_timestamp() WHERE reservation_id = 'job-a'")
        await eventually(lambda: running.extender.filter(more, [node]).fitting == (node,), PATIENCE_S)
    finally:
        await engine.dispose()
