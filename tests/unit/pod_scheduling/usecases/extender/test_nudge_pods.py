"""That a raised quota is told to the pods that wait for it, and to no others."""

import asyncio
import json
import random
from typing import Any

from pod_scheduling.domain.extender.model_quotas import read_quotas
from pod_scheduling.ports.card_cluster import QuotasSeen
from pod_scheduling.ports.extender import AssumeAt
from pod_scheduling.usecases.extender.rules import ExtendRules
from tests.unit.pod_scheduling.usecases.extender.extender_world import QUOTAS, Replica, pod, world
from tests.unit.pod_scheduling.usecases.extender.scripted_card_cluster import Truth, View
from tests.virtual_time import run_virtually


def set_quotas(truth: Truth, replica: Replica, **changed: Any) -> None:
    text = json.dumps(QUOTAS | changed)
    truth.quotas = read_quotas(text)
    replica.extender.see(QuotasSeen("quotas", "gpu_quota", text))


async def lab(harm: float = 0.0) -> tuple[Truth, View, Replica]:
    truth = world()
    view = View(truth, random.Random(1), lag_s=0, harm=harm)
    replica = Replica(view, ExtendRules(AssumeAt.FILTER))
    await asyncio.sleep(10)
    for uid, namespace, asked in (("a1", "a", {"gpu": 1}), ("b1", "b", {"gpu": 1}), ("a2", "a", {"core": 50}),
                                  ("bound", "a", {"gpu": 1}), ("a-none", "a", {})):  # fmt: skip
        truth.add_pod(pod(uid, namespace, **asked))
    truth.pods["bound"].node = "n2"
    truth.touch("bound")
    await asyncio.sleep(1)
    return truth, view, replica


def test_who_waits_where_a_quota_was_raised_is_nudged_once() -> None:
    async def work() -> None:
        truth, _, replica = await lab()
        assert truth.nudged == []
        set_quotas(truth, replica, a={"quota": {"h100": 4, "Tesla-T4": 2}})
        await asyncio.sleep(5)
        assert truth.nudged == ["a1", "a2"]
        set_quotas(truth, replica, a={"quota": {"h100": 1, "Tesla-T4": 2}})
        await asyncio.sleep(5)
        assert truth.nudged == ["a1", "a2"]
        replica.extender.see(QuotasSeen("quotas", "gpu_quota", "not JSON"))
        set_quotas(truth, replica, a={"quota": {"h100": 2, "Tesla-T4": 2}})
        await asyncio.sleep(5)
        assert truth.nudged == ["a1", "a2"] * 2
        assert replica.extender.nudger.nudged == 4
        await replica.end()

    run_virtually(work())


def test_who_was_refused_before_the_raised_quota_but_is_seen_after_it_is_nudged_too() -> None:
    async def work() -> None:
        truth, _, replica = await lab()
        set_quotas(truth, replica, a={"quota": {"h100": 4, "Tesla-T4": 2}})
        for uid, namespace, asked in (("late", "a", {"gpu": 1}), ("other", "b", {"gpu": 1}), ("none", "a", {})):
            truth.add_pod(pod(uid, namespace, **asked))
        await asyncio.sleep(5)
        assert sorted(truth.nudged) == ["a1", "a2", "late"]
        await asyncio.sleep(10)
        truth.add_pod(pod("new", "a", gpu=1))
        await asyncio.sleep(5)
        assert sorted(truth.nudged) == ["a1", "a2", "late"]
        await replica.end()

    run_virtually(work())


def test_a_nudge_that_fails_is_tried_again_and_one_that_never_comes_through_is_given_up() -> None:
    async def work() -> None:
        truth, view, replica = await lab()
        view.harm = 1.0
        set_quotas(truth, replica, a={})
        await asyncio.sleep(2)
        view.harm = 0
        await asyncio.sleep(3)
        assert truth.nudged == ["a1", "a2"]
        view.harm = 1.0
        set_quotas(truth, replica, b={"quota": {"H100": 20}})
        await asyncio.sleep(60)
        assert replica.extender.nudger.given_up == 1
        view.harm = 0
        await asyncio.sleep(60)
        assert truth.nudged == ["a1", "a2"]
        await replica.end()

    run_virtually(work())


def test_who_may_not_write_keeps_those_in_mind_that_still_wait() -> None:
    async def work() -> None:
        truth, _, replica = await lab()
        replica.extender.lead()  # another has led: nothing is answered for a moment
        set_quotas(truth, replica, a={})
        truth.drop_pod("a1")
        await asyncio.sleep(2)
        assert truth.nudged == []
        await asyncio.sleep(10)
        assert truth.nudged == ["a2"]
        await replica.end()

    run_virtually(work())
