"""A real Volcano scheduler that calls the extender, on a real API server."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from tests.clusters.card_cluster import CardCluster, card_pod, container
from tests.kubernetes.api_client import JsonObject
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.real.volcano import POD_GROUPS, pod_group, started_volcano, volcano_of
from tests.programs.admission_process import PATIENCE_S, admission
from tests.programs.ports import own_port
from tests.read_yaml import read_yaml
from tests.waiting import eventually

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "scheduler-extender.md"


@pytest.fixture
def volcano(api_server: ApiServer) -> Path:
    program = volcano_of(api_server)
    if program is None:
        pytest.skip("KUBEBUILDER_ASSETS names no vc-scheduler")
    return program


def config(port: int, actions: str | None = None, **arguments: object) -> str:
    """What the guide has for Volcano's ConfigMap, with these arguments of the plugin; None: without it."""
    [written] = re.findall(r"^```yaml\n(actions: .*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    read = read_yaml(written)
    read["actions"] = actions or read["actions"]
    [plugin] = [plugin for tier in read["tiers"] for plugin in tier["plugins"] if plugin["name"] == "extender"]
    of_plugin = plugin["arguments"]
    of_plugin["extender.urlPrefix"] = f"http://127.0.0.1:{port}/scheduler"
    for name, value in arguments.items():
        if value is None:
            of_plugin.pop(f"extender.{name}", None)
        else:
            of_plugin[f"extender.{name}"] = value
    return yaml.safe_dump(read)


@asynccontextmanager
async def at_work(
    server: ApiServer, program: Path, cards: CardCluster, actions: str | None = None, **arguments: object
) -> AsyncIterator[None]:
    """The extender as it is delivered for Volcano, and a Volcano with `config` that calls it."""
    port = own_port()
    async with (
        admission(server, port, "--assume-at=filter", QUOTA_NAME=cards.quota_name),
        started_volcano(server, program, cards.client, config(port, actions, **arguments)),
    ):
        yield


def member(cards: CardCluster, gang: str, name: str, **amounts: int) -> JsonObject:
    made = card_pod(name, container(**amounts), nodeSelector={"test-nodes": cards.prefix}, schedulerName="volcano")
    made["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": gang}
    return made


async def add_gang(cards: CardCluster, name: str, pods: int, **amounts: int) -> None:
    """All of its pods or none; they are named `name-0`, `name-1` and so on."""
    await cards.client.call("POST", POD_GROUPS.format(namespace=cards.namespace), pod_group(name, pods))
    for number in range(pods):
        await cards.add(member(cards, name, f"{name}-{number}", **amounts))


async def eventually_judged(cards: CardCluster, count: int) -> None:
    """Wait until so many pods were told why they wait."""

    async def judged() -> bool:
        listed = (await cards.client.call("GET", cards.path))["items"]
        return sum(1 for pod in listed if pod["status"].get("conditions")) >= count

    await eventually(judged, PATIENCE_S)


async def told(cards: CardCluster, name: str, what: str) -> None:
    """Wait until a pod says so of why it waits."""

    async def said() -> bool:
        conditions = (await cards.read(name))["status"].get("conditions") or []
        return any(
            condition["type"] == "PodScheduled" and what in condition.get("message", "") for condition in conditions
        )

    await eventually(said, PATIENCE_S)


async def test_a_quota_lets_as_many_through_as_it_says_and_the_others_know_why(
    api_server: ApiServer, volcano: Path, cards: CardCluster
) -> None:
    for _ in range(3):
        await cards.add_node(gpus=8)
    await cards.put_quotas({cards.namespace: {"quota": {"H100": 8}}})
    async with at_work(api_server, volcano, cards):
        for number in range(20):
            await add_gang(cards, f"p{number}", 1, gpu=1)
        bound = await cards.eventually_bound(8)
        for number in range(20):
            if f"p{number}-0" not in bound:
                await told(cards, f"p{number}-0", "8 of 8 H100 used; ask an administrator, or wait")
        assert len(await cards.bound()) == 8
        await cards.client.call("DELETE", f"{cards.path}/{next(iter(bound))}", {"gracePeriodSeconds": 0})
        await cards.put_quotas({cards.namespace: {"quota": {"H100": 9}}})
        await cards.eventually_bound(9)


@pytest.mark.parametrize("actions", [None, "enqueue, allocate, preempt, backfill"], ids=["as_in_the_guide", "preempt"])
async def test_a_gang_that_asks_for_more_than_there_is_quota_keeps_nobody_out(
    api_server: ApiServer, volcano: Path, cards: CardCluster, actions: str | None
) -> None:
    for _ in range(3):
        await cards.add_node(gpus=8)
    await cards.put_quotas({cards.namespace: {"quota": {"H100": 8}}})
    async with at_work(api_server, volcano, cards, actions):
        await add_gang(cards, "large", 12, gpu=1)
        await eventually_judged(cards, 12)
        await add_gang(cards, "small", 8, gpu=1)
        bound = await cards.eventually_bound(8)
        assert {name.partition("-")[0] for name in bound} == {"small"}


@pytest.mark.parametrize("newer", [True, False], ids=["tells_of_allocations", "asks_only"])
async def test_shares_share_cards_and_no_card_is_overdrawn(
    api_server: ApiServer, volcano: Path, cards: CardCluster, newer: bool
) -> None:
    for _ in range(2):
        await cards.add_node(shared=2, memory=100)
    verbs = {} if newer else {"allocateFuncVerb": None, "deallocateFuncVerb": None}
    async with at_work(api_server, volcano, cards, **verbs):
        for number in range(8):
            await add_gang(cards, f"p{number}", 1, core=60, memory=1)
        bound = await cards.eventually_bound(4)
        for number in range(8):
            if f"p{number}-0" not in bound:
                await told(cards, f"p{number}-0", "card")
        assert len(await cards.bound()) == 4

        async def all_marked() -> bool:
            found = await cards.cards_by_node()
            return [sorted(of_node.values()) for of_node in found.values()] == [[600, 600], [600, 600]]

        await eventually(all_marked, PATIENCE_S)
