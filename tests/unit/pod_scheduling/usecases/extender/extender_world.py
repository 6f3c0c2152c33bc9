"""A cluster of cards, and a replica of the extender that serves it, restarts and is killed."""

import asyncio
import json
from dataclasses import dataclass, field

from pod_scheduling.domain.extender.asked_cards import CardResources, asked_cards
from pod_scheduling.domain.extender.board import ExtenderBoard
from pod_scheduling.domain.extender.cards_in_use import CardNode, CardPod, CardsInUse
from pod_scheduling.domain.extender.model_quotas import read_quotas
from pod_scheduling.domain.extender.model_usage import ModelUsage, model_of
from pod_scheduling.domain.placement.rankings import ranking_of
from pod_scheduling.ports.extender import AssumeAt, Binding, Candidates
from pod_scheduling.usecases.extender.rules import ExtendRules
from pod_scheduling.usecases.extender.scheduler_extender import SchedulerExtender
from reservation_core.domain.cards.placement_policies import PlacementPolicy
from tests.clocks import SettableClock
from tests.unit.pod_scheduling.usecases.extender.scripted_card_cluster import Truth, View

QUOTAS = {"a": {"quota": {"h100": 3, "Tesla-T4": 2}}, "b": {"quota": {"H100": 2}, "pool": ["public"]}}
CORE, MEMORY, WHOLE = "tencent.com/vcuda-core", "tencent.com/vcuda-memory", "nvidia.com/gpu"


def share_node(name: str, cards: int = 2, memory: int = 8, label: str = "NVIDIA-H100-PCIe", pool: str = "") -> CardNode:
    return CardNode(name, model_of(label), pool, share_cards=cards, card_memory=memory, cpu_milli=64_000)


def plugin_node(name: str, cards: int = 4, label: str = "Tesla-T4", pool: str = "") -> CardNode:
    return CardNode(name, model_of(label), pool, plugin_cards=cards, cpu_milli=64_000)


def pod(uid: str, namespace: str = "a", **amounts: int) -> CardPod:
    """One container; `core`, `memory`, `gpu`, and `init` for the share of an init container."""
    names = {"core": CORE, "memory": MEMORY, "gpu": WHOLE}
    limits = {names[key]: str(amount) for key, amount in amounts.items() if key in names}
    inits = [{"name": "init", "resources": {"limits": {CORE: str(amounts["init"])}}}] if "init" in amounts else []
    spec = {"containers": [{"name": "main", "resources": {"limits": limits}}], "initContainers": inits}
    return CardPod(uid, namespace, uid, asked_cards(spec, CardResources()), 1000, 100)


@dataclass
class Replica:
    """An extender at work."""

    view: View
    rules: ExtendRules = field(default_factory=lambda: ExtendRules(AssumeAt.BIND))
    policy: PlacementPolicy = PlacementPolicy.BINPACK

    def __post_init__(self) -> None:
        board = ExtenderBoard(CardsInUse(ModelUsage()), ranking_of(self.policy))
        self.extender = SchedulerExtender(self.view, board, self.rules, SettableClock())
        self.task = asyncio.create_task(self.extender.run())

    async def end(self) -> None:
        """As when it is killed: what it has asked for goes on."""
        assert not self.task.done(), self.task.exception()
        self.view.truth.watchers = [watcher for watcher in self.view.truth.watchers if watcher is not self.view]
        self.task.cancel()
        await asyncio.wait([self.task])

    def fits(self, asking: CardPod, *nodes: str) -> tuple[str, ...]:
        return self.extender.filter({"pod": asking}, nodes).fitting

    def chosen(self, asking: CardPod, *nodes: str) -> tuple[str, ...]:
        return self.extender.choose({"pod": asking}, nodes).fitting

    async def bind(self, asking: CardPod, node: str) -> None:
        await self.extender.bind(Binding(asking.namespace, asking.name, asking.uid, node))


def world() -> Truth:
    text = json.dumps(QUOTAS)
    truth = Truth(read_quotas(text), text)
    for node in (
        share_node("n0"), share_node("n1", pool="public"),
        plugin_node("n2"), plugin_node("n3", label="NVIDIA-H100-PCIe", pool="public"),
    ):  # fmt: skip
        truth.put_node(node)
    return truth


BEST_AT_ONCE = ExtendRules(AssumeAt.FILTER, Candidates.BEST)
