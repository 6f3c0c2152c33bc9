"""The extender on an API server: what it answers, what it writes, and that racing pods never get more than there is."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from pod_scheduling.ports.extender import Binding, NotSyncedError
from pod_scheduling.ports.pod_binding import BindRefusedError
from pod_scheduling.runtime.extender import RunningExtender, run_extender
from pod_scheduling.runtime.settings.admission import AdmissionSettings
from pod_scheduling.usecases.extender.rules import ExtendRules
from reservation_core.adapters.postgres.connection.engine import open_engine
from tests.card_cluster import CardCluster, card_pod, container
from tests.integration.reservation_core.adapters.postgres.conftest import Seed
from tests.kubernetes.api_client import MERGE, JsonObject
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.fault_proxy import FaultProxy, Harm, Partition
from tests.waiting import eventually

PATIENCE_S = 120
HOUR = timedelta(hours=1)

Starter = Callable[..., Awaitable[RunningExtender]]


@pytest.fixture
async def cards(api_server: ApiServer, namespace: str) -> AsyncIterator[CardCluster]:
    async with api_server.client() as client:
        made = CardCluster(client, namespace)
        yield made
        await made.clean_up()


@pytest.fixture
async def start(
    api_server: ApiServer, namespace: str, cards: CardCluster, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Starter]:
    """Begins an extender. Binds of earlier processes count for a second, where in earnest it is five."""
    monkeypatch.setattr("pod_scheduling.runtime.extender.ExtendRules", partial(ExtendRules, unclear_s=1.0))
    async with AsyncExitStack() as running:

        async def starter(
            *, wait: bool = True, url: str | None = None, database_url: str | None = None, **rules: Any
        ) -> RunningExtender:
            config = api_server.kubeconfig
            if url is not None:
                config = api_server.kubeconfig_with(api_server.admin_token, "proxied", url=url)
            settings = AdmissionSettings.model_validate(
                {
                    "database_url": database_url,
                    "kubernetes": {"kubeconfig": config},
                    "admission": {"quota_name": cards.quota_name, "lease_namespace": namespace, **rules},
                }
            )
            made = await running.enter_async_context(run_extender(settings))
            if wait:
                await eventually(made.ready, PATIENCE_S)
            return made

        yield starter


def binding(pod: JsonObject, node: str) -> Binding:
    metadata = pod["metadata"]
    return Binding(metadata["namespace"], metadata["name"], metadata["uid"], node)


async def knows(running: RunningExtender, pod: JsonObject, *nodes: str) -> None:
    """Wait until these nodes are known."""

    def known() -> bool:
        found = running.extender.filter(pod, nodes)
        return not any("not seen this node" in reason for reason in found.failed.values())

    await eventually(known, PATIENCE_S)


async def bind_all(running: RunningExtender, pods: list[JsonObject], node: str) -> tuple[int, list[str]]:
    """Bind all at once; how many were, and why the others were not."""
    results = await asyncio.gather(*(running.extender.bind(binding(pod, node)) for pod in pods), return_exceptions=True)
    refused = [str(result) for result in results if isinstance(result, BindRefusedError)]
    assert not [result for result in results if result is not None and not isinstance(result, BindRefusedError)]
    return results.count(None), refused


async def test_a_share_is_written_once_with_the_binding(cards: CardCluster, start: Starter) -> None:
    node = await cards.add_node(shared=2, memory=32)
    running = await start()
    first = await cards.add(card_pod("first", container("a", core=60, memory=8), container("b", core=30, memory=4)))
    second = await cards.add(card_pod("second", container(core=50, memory=4)))
    await knows(running, first, node)
    assert running.extender.filter(first, [node, "elsewhere"]).fitting == (node,)
    await running.extender.bind(binding(first, node))
    await running.extender.bind(binding(second, node))
    said = (await cards.read("first"))["metadata"]["annotations"]
    assert said["tencent.com/predicate-gpu-idx-0"] == said["tencent.com/predicate-gpu-idx-1"] == "0"
    assert said["gpu-dev/cards"] == "0=900/12"
    assert said["tencent.com/predicate-node"] == node
    assert said["tencent.com/gpu-assigned"] == "false"
    assert len(said["tencent.com/predicate-time"]) == 19
    assert (await cards.read("second"))["metadata"]["annotations"]["tencent.com/predicate-gpu-idx-0"] == "1"
    await running.extender.bind(binding(first, node))  # asked again: it is there


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


async def test_racing_shares_never_get_more_of_a_card_than_there_is(cards: CardCluster, start: Starter) -> None:
    node = await cards.add_node(shared=3, memory=100)
    running = await start()
    pods = [await cards.add(card_pod(f"p{number}", container(core=30 + number, memory=1))) for number in range(20)]
    await knows(running, pods[0], node)
    bound, refused = await bind_all(running, pods, node)
    assert bound
    assert refused
    assert all(milli <= 1000 for milli in (await cards.cards_by_node())[node].values())


async def test_150_is_refused_with_a_reason(cards: CardCluster, start: Starter) -> None:
    node = await cards.add_node(shared=4, memory=8)
    running = await start()
    pod = await cards.add(card_pod("odd", container(core=150)))
    await knows(running, pod, node)
    found = running.extender.filter(pod, [node])
    assert found.fitting == ()
    assert "ask for 100 or 200" in found.unresolvable[node]
    with pytest.raises(BindRefusedError, match="ask for 100 or 200"):
        await running.extender.bind(binding(pod, node))


async def test_pods_without_gpus_pass_and_are_bound_untouched(cards: CardCluster, start: Starter) -> None:
    node = await cards.add_node()
    running = await start()
    pod = await cards.add(card_pod("plain"))
    assert running.extender.filter(pod, [node, "unknown"]).fitting == (node, "unknown")
    assert running.extender.prioritize(pod, [node, "unknown"]) == [0, 0]
    await running.extender.bind(binding(pod, node))
    assert not (await cards.read("plain"))["metadata"].get("annotations")


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


async def test_nothing_is_answered_before_everything_was_seen(
    cards: CardCluster, start: Starter, fault_proxy: FaultProxy
) -> None:
    pod = await cards.add(card_pod("pod", container(gpu=1)))
    fault_proxy.partition(Partition.REFUSED)
    running = await start(wait=False, url=fault_proxy.url)
    assert not running.ready()
    with pytest.raises(NotSyncedError):
        running.extender.filter(pod, ["n"])
    with pytest.raises(NotSyncedError):
        running.extender.prioritize(pod, ["n"])
    fault_proxy.heal()
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


async def test_a_pod_that_brings_its_cards_along_is_given_others_where_those_are_taken(
    cards: CardCluster, start: Starter
) -> None:
    node = await cards.add_node(shared=2, memory=8)
    running = await start(assume_at="filter")
    brought = {"tencent.com/predicate-gpu-idx-0": "0", "tencent.com/predicate-time": "1", "gpu-dev/cards": "0=600"}
    pods = []
    for name in ("one", "other"):
        thing = card_pod(name, container(core=60))
        thing["metadata"]["annotations"] = {**brought, "tencent.com/gpu-assigned": "false"}
        pods.append(await cards.add(thing))
    await knows(running, pods[0], node)
    await eventually(lambda: running.scheduling.waiting == 2, PATIENCE_S)
    for name in ("one", "other"):
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        await cards.client.call("POST", f"{cards.path}/{name}/binding", body)

    async def apart() -> bool:
        return (await cards.cards_by_node())[node] == {0: 600, 1: 600}

    await eventually(apart, PATIENCE_S)
    for name in ("one", "other"):
        said = (await cards.read(name))["metadata"]["annotations"]
        assert f"{said['tencent.com/predicate-gpu-idx-0']}=600" == said["gpu-dev/cards"]
        assert said["tencent.com/predicate-node"] == node
    await eventually(lambda: running.numbers()["marked_total"] >= 2, PATIENCE_S)  # it hears of it after the server
    assert running.numbers()["marked_total"] == 2


async def test_a_claim_ends_by_itself(cards: CardCluster, start: Starter) -> None:
    node = await cards.add_node(gpus=4)
    await cards.put_quotas({cards.namespace: {"quota": {"H100": 1}}})
    running = await start(assume_at="filter", assumed_s=1)
    one = await cards.add(card_pod("one", container(gpu=1)))
    other = await cards.add(card_pod("other", container(gpu=1)))
    await knows(running, one, node)
    running.extender.filter(one, [node])
    await eventually(lambda: running.extender.filter(other, [node]).fitting == (node,), PATIENCE_S)


async def test_that_it_answers_by_old_news_is_told_until_it_follows_again(
    cards: CardCluster, start: Starter, fault_proxy: FaultProxy
) -> None:
    node = await cards.add_node(gpus=1)
    running = await start(url=fault_proxy.url)
    pod = await cards.add(card_pod("pod", container(gpu=1)))
    await knows(running, pod, node)
    await eventually(lambda: running.problems() == [], PATIENCE_S)
    fault_proxy.partition(Partition.REFUSED)
    (problem,) = await eventually(running.problems, PATIENCE_S)
    assert "may be out of date" in problem
    assert running.ready()
    assert running.extender.filter(pod, [node]).fitting == (node,)
    fault_proxy.heal()
    await eventually(lambda: running.problems() == [], PATIENCE_S)


@pytest.mark.parametrize("harm", [Harm.HANG_AFTER, Harm.DROP_ANSWER])
async def test_a_bind_whose_answer_was_lost_is_found_done(
    cards: CardCluster, start: Starter, fault_proxy: FaultProxy, harm: Harm
) -> None:
    node = await cards.add_node(shared=1, memory=8)
    running = await start(url=fault_proxy.url)
    pod = await cards.add(card_pod("pod", container(core=60)))
    rival = await cards.add(card_pod("rival", container(core=60)))
    await knows(running, pod, node)
    fault_proxy.inject(harm, "POST", "/pods/pod/binding", times=1)
    with suppress(BindRefusedError):
        await running.extender.bind(binding(pod, node))
    assert running.extender.filter(rival, [node]).fitting == ()

    async def found_done() -> bool:
        with suppress(BindRefusedError):  # a busy machine answers too late, and is asked once more
            await running.extender.bind(binding(pod, node))
            return True
        return False

    await eventually(found_done, PATIENCE_S)
    assert await cards.bound() == {"pod": node}
    assert (await cards.cards_by_node())[node] == {0: 600}
    assert running.extender.filter(rival, [node]).fitting == ()


async def test_a_bind_that_never_came_through_counts_until_that_is_known(
    cards: CardCluster, start: Starter, fault_proxy: FaultProxy
) -> None:
    node, other = await cards.add_node(gpus=1), await cards.add_node(gpus=1)
    await cards.put_quotas({cards.namespace: {"quota": {"H100": 1}}})
    running = await start(url=fault_proxy.url)
    pod = await cards.add(card_pod("pod", container(gpu=1)))
    rival = await cards.add(card_pod("rival", container(gpu=1)))
    await knows(running, pod, node, other)
    fault_proxy.inject(Harm.HANG, "POST", "/pods/pod/binding", times=1)
    with pytest.raises(BindRefusedError, match="not known"):
        await running.extender.bind(binding(pod, node))
    assert running.extender.filter(rival, [other]).fitting == ()
    assert running.extender.filter(pod, [node, other]).fitting == (node, other)
    await running.extender.bind(binding(pod, other))  # waits until the first one is known not to have been
    assert await cards.bound() == {"pod": other}


async def test_what_was_not_bound_is_free_again_without_being_asked(
    cards: CardCluster, start: Starter, fault_proxy: FaultProxy
) -> None:
    node = await cards.add_node(gpus=1)
    running = await start(url=fault_proxy.url)
    pod = await cards.add(card_pod("pod", container(gpu=1)))
    rival = await cards.add(card_pod("rival", container(gpu=1)))
    await knows(running, pod, node)
    fault_proxy.inject(Harm.HANG, "POST", "/pods/pod/binding", times=1)
    with pytest.raises(BindRefusedError):
        await running.extender.bind(binding(pod, node))
    await eventually(lambda: running.extender.filter(rival, [node]).fitting == (node,), PATIENCE_S)
    assert running.numbers()["binds_given_up_total"] == 1


async def test_a_bind_that_the_server_refuses_counts_no_more(
    cards: CardCluster, start: Starter, fault_proxy: FaultProxy
) -> None:
    node = await cards.add_node(gpus=1)
    running = await start(url=fault_proxy.url)
    pod = await cards.add(card_pod("pod", container(gpu=1)))
    rival = await cards.add(card_pod("rival", container(gpu=1)))
    await knows(running, pod, node)
    fault_proxy.inject(Harm.ANSWER, "POST", "/pods/pod/binding", code=403, times=1)
    with pytest.raises(BindRefusedError, match="403"):
        await running.extender.bind(binding(pod, node))
    assert running.extender.filter(rival, [node]).fitting == (node,)


async def test_one_of_two_replicas_answers_and_another_takes_over(
    cards: CardCluster, start: Starter, fault_proxy: FaultProxy
) -> None:
    lease = {"leader_elect": True, "lease_s": 6, "renew_within_s": 4, "retry_s": 0.3}
    node = await cards.add_node(gpus=2)
    first = await start(url=fault_proxy.url, **lease)
    pod = await cards.add(card_pod("pod", container(gpu=1)))
    await knows(first, pod, node)
    second = await start(wait=False, **lease)
    await eventually(lambda: second.scheduling.waiting > 0, PATIENCE_S)
    assert not second.ready()
    with pytest.raises(NotSyncedError):
        await second.extender.bind(binding(pod, node))
    fault_proxy.partition(Partition.REFUSED)
    await eventually(second.ready, PATIENCE_S)
    assert not first.ready()
    await second.extender.bind(binding(pod, node))
    assert await cards.bound() == {"pod": node}


async def test_a_node_that_changes_its_model_or_goes_counts_as_it_is_now(cards: CardCluster, start: Starter) -> None:
    node = await cards.add_node(gpus=4, product="Tesla-T4", pool="public")
    await cards.put_quotas({cards.namespace: {"quota": {"H100": 1}, "pool": ["public"]}})
    running = await start()
    pod = await cards.add(card_pod("pod", container(gpu=1)))
    await knows(running, pod, node)
    assert "has no quota for GPUs Tesla-T4" in running.extender.filter(pod, [node]).unresolvable[node]
    label = {"metadata": {"labels": {"nvidia.com/gpu.product": "NVIDIA-H100-NVL"}}}
    await cards.client.call("PATCH", f"/api/v1/nodes/{node}", label, content_type=MERGE)
    await eventually(lambda: "NVL" in str(running.extender.filter(pod, [node]).unresolvable), PATIENCE_S)
    label = {"metadata": {"labels": {"nvidia.com/gpu.product": "NVIDIA-H100-PCIe"}}}
    await cards.client.call("PATCH", f"/api/v1/nodes/{node}", label, content_type=MERGE)
    await eventually(lambda: running.extender.filter(pod, [node]).fitting == (node,), PATIENCE_S)
    label = {"metadata": {"labels": {"gpu-pool": None}}}
    await cards.client.call("PATCH", f"/api/v1/nodes/{node}", label, content_type=MERGE)
    await eventually(lambda: "in no pool" in str(running.extender.filter(pod, [node]).unresolvable), PATIENCE_S)
    await cards.client.call("DELETE", f"/api/v1/nodes/{node}", {})
    await eventually(lambda: "not seen" in str(running.extender.filter(pod, [node]).failed), PATIENCE_S)


async def test_cards_that_the_ledger_has_promised_are_kept_off(
    cards: CardCluster, start: Starter, database_url: str
) -> None:
    whole, shared = await cards.add_node(gpus=3), await cards.add_node(shared=2, memory=8)
    engine = open_engine(database_url, pool=2, application="test")
    try:
        seed = Seed(engine)
        user, now = await seed.user(), datetime.now(UTC)
        job = await seed.job("job-b1", user, "running", attempt=1, started_at=now, ends_at=now + 2 * HOUR)
        for name, count in ((whole, 3), (shared, 2)):
            first, *_ = await seed.node(name, cards=count)
            await seed.allocate(job, first, now + HOUR, now + 2 * HOUR, held=False)
        running = await start(database_url=database_url, ledger_s=0.2)
        share = await cards.add(card_pod("share", container(core=30, memory=1)))
        three = await cards.add(card_pod("three", container(gpu=3)))
        await knows(running, three, whole, shared)
        found = running.extender.filter(three, [whole])
        assert found.failed == {whole: "2 GPUs are free and 3 are asked for, 1 GPU being promised; wait"}
        await running.extender.bind(binding(share, shared))
        assert (await cards.cards_by_node())[shared] == {1: 300}
        await seed.run("UPDATE allocations SET released_at = clock_timestamp()")
        await eventually(lambda: running.extender.filter(three, [whole]).fitting == (whole,), PATIENCE_S)
    finally:
        await engine.dispose()


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


async def test_a_new_process_knows_the_cards_that_the_one_before_it_gave(cards: CardCluster, start: Starter) -> None:
    node = await cards.add_node(shared=2, memory=8)
    first = await start()
    pod = await cards.add(card_pod("pod", container(core=60, memory=8), initContainers=[container("init", core=80)]))
    await knows(first, pod, node)
    await first.extender.bind(binding(pod, node))
    assert (await cards.cards_by_node())[node] == {0: 800}
    second = await start()
    small = await cards.add(card_pod("small", container(core=30)))
    await knows(second, small, node)
    await second.extender.bind(binding(small, node))
    assert (await cards.read("small"))["metadata"]["annotations"]["tencent.com/predicate-gpu-idx-0"] == "1"
