"""Whatever happens in whatever order, however binds end, and whoever leads."""

import asyncio
import random

from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.pod_scheduling.usecases.maps.mapped_pods import Candidate, node, pod, running
from tests.unit.pod_scheduling.usecases.maps.scripted_map_cluster import Truth, View
from tests.virtual_time import run_virtually


def step(truth: Truth, chance: random.Random, made: list[int]) -> None:
    """Something happens to a node or a pod."""
    name = f"w{chance.randrange(3)}"
    here = truth.nodes.get(name)
    match chance.choice(["pod"] * 6 + ["gone"] * 3 + ["touched", "ungate", "node", "node gone"]):
        case "pod":
            made.append(len(made))
            devices = tuple(sorted(chance.sample("0123", chance.randrange(3))))
            word = chance.choice(["node0", "node1", "node2", name])
            new = pod(made[-1], word, devices, chance.choice("abc"), chance.choice([500, 1500, 4000]))
            new.gated = chance.random() < 0.1
            truth.add_pod(new)
        case "gone" if truth.pods:
            truth.drop_pod(chance.choice(sorted(truth.pods)))
        case "touched" if truth.pods:
            truth.change_pod(chance.choice(sorted(truth.pods)))
        case "ungate":
            for uid, listed_pod in truth.pods.items():
                if listed_pod.gated:
                    listed_pod.gated = False
                    truth.change_pod(uid)
                    return
        case "node":
            label = chance.choice([f"node{name[1]}"] * 3 + ["node0"])
            truth.put_node(node(name, label, ready=chance.random() < 0.8, cordoned=chance.random() < 0.2))
        case "node gone" if here is not None:
            truth.drop_node(name)


async def story(seed: int) -> None:
    chance = random.Random(seed)
    truth, made = Truth(), list[int]()
    harm = chance.choice([0.0, 0.2, 0.6])
    one, other = (
        Candidate(View(truth, random.Random(chance.random()), harm=harm, lag_s=chance.choice([0.05, 3])))
        for _ in range(2)
    )
    for number in range(3):
        truth.put_node(node(f"w{number}", f"node{number}"))
    async with running(one, other):
        for _ in range(chance.randrange(1, 6)):
            one.lead_for(chance.uniform(1, 10))
            for _ in range(chance.randrange(30)):
                step(truth, chance, made)
                if chance.random() < 0.5:
                    one.lead_for(10) if one.left_s() > 0 else None
                await asyncio.sleep(chance.choice([0, 0, 0.05, 0.5, 2]))
            if chance.random() < 0.3:
                one.until = min(one.until, asyncio.get_running_loop().time() + 10)
            await asyncio.sleep(max(0.0, one.left_s()) + 5)  # who takes over waits until the lease has run out
            one, other = other, one
        one.view.harm = other.view.harm = 0.0
        for name in ("w0", "w1", "w2"):
            truth.put_node(node(name, f"node{name[1]}"))
        one.lead_for(10_000)
        await asyncio.sleep(400)
    assert truth.breaches == []
    assert truth.left_waiting() == []
    assert one.scheduler.waiting == sum(pod.node is None and not pod.gated for pod in truth.pods.values())


@given(st.integers(0, 2**32))
@examples(120)
def test_whatever_happens_no_card_is_given_twice_and_nobody_waits_for_nothing(seed: int) -> None:
    run_virtually(story(seed))
