"""Jobs that could never run as they are: refused when they are submitted, with what would do instead."""

import asyncio
from typing import Any

import httpx
import pytest

from reservation_core.adapters.postgres.nodes.inventory import Inventory
from reservation_core.runtime.settings.components import ApiSettings, ClusterKind
from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import add_nodes, asked, at
from tests.integration.api_service.callers import JOB, submitted
from tests.waiting import PATIENCE_S

WITH_IMAGE = {"command": ["true"], "image": "registry.example/train:1"}


async def refusal(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> tuple[str, str]:
    """The code and text of a refusal."""
    answer = await client.post(path, json=body)
    assert answer.status_code == 422, answer.text
    problem = answer.json()
    return problem["type"].removeprefix("urn:gpu-dev:problem:"), problem["detail"]


async def test_a_type_that_was_never_seen_is_refused_with_the_types_that_there_are(
    alice: httpx.AsyncClient, root: httpx.AsyncClient, runtime: Runtime
) -> None:
    # Before the first node nobody knows which types there will be.
    await submitted(alice, gpu_type="h10")
    await add_nodes(runtime, a=("h100", 2), b=("t4", 1))
    async with asyncio.timeout(PATIENCE_S):
        while (await alice.post("/v1/jobs", json={**JOB, "gpu_type": "h10"})).status_code == 202:
            await asyncio.sleep(0.05)
    code, detail = await refusal(alice, "/v1/jobs", {**JOB, "gpu_type": "h10"})
    assert code == "no_such_type"
    assert "Did you mean h100?" in detail
    assert "h100, t4" in detail
    assert "`gpu-dev gpus` shows how many of each are free." in detail
    assert "policy" not in detail, "a command of administrators"
    to_admin = (await refusal(root, "/v1/jobs", {**JOB, "gpu_type": "h10"}))[1]
    assert "gpu-dev policy set gpu_type:h10 max_gpus=8" in to_admin
    await submitted(alice, gpu_type="t4")
    await submitted(alice)


async def test_before_the_first_node_types_are_not_looked_for_at_each_submission(
    alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    types = Inventory.types

    async def counted(inventory: Inventory) -> list[str]:
        nonlocal looks
        looks += 1
        return await types(inventory)

    monkeypatch.setattr(Inventory, "types", counted)
    begun = asyncio.get_running_loop().time()
    for _ in range(20):
        await submitted(alice, gpu_type="h100")
    assert looks <= 1 + (asyncio.get_running_loop().time() - begun)


async def test_a_type_whose_nodes_are_gone_or_to_come_is_accepted(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    await add_nodes(runtime, a=("h100", 2), b=("t4", 1))
    await add_nodes(runtime, a=("h100", 2))
    await submitted(alice, gpu_type="t4")
    assert (await refusal(alice, "/v1/jobs", {**JOB, "gpu_type": "b200"}))[0] == "no_such_type"
    # Nodes of this type may have joined on the way.
    await add_nodes(runtime, c=("b200", 1))
    await submitted(alice, gpu_type="b200")


async def test_a_type_that_the_policy_names_is_accepted_before_its_nodes_come(
    alice: httpx.AsyncClient, root: httpx.AsyncClient, runtime: Runtime
) -> None:
    await add_nodes(runtime, a=("h100", 2))
    assert (await root.put("/v1/policy/gpu_type:b200", json={"max_gpus": 2})).status_code == 200
    await submitted(alice, gpu_type="b200")


@pytest.fixture
def own_word(settings: ApiSettings) -> None:
    """Operators name a product in their settings."""
    settings.gpu.types["nvidia-weird-card"] = "weird"


@pytest.mark.usefixtures("own_word")
async def test_a_type_that_operators_configured_is_accepted_before_its_nodes_come(
    runtime: Runtime, alice: httpx.AsyncClient
) -> None:
    await add_nodes(runtime, a=("h100", 2))
    await submitted(alice, gpu_type="weird")
    assert "h100, weird" in (await refusal(alice, "/v1/jobs", {**JOB, "gpu_type": "b200"}))[1]


async def test_an_image_is_refused_where_jobs_are_processes(
    alice: httpx.AsyncClient, runtime: Runtime, settings: ApiSettings
) -> None:
    await add_nodes(runtime, a=("h100", 2))
    booking = asked(at(1), workload=WITH_IMAGE)
    for path, body in (("/v1/jobs", {**JOB, "workload": WITH_IMAGE}), ("/v1/bookings", booking)):
        code, detail = await refusal(alice, path, body)
        assert (code, "Leave out the image" in detail) == ("no_images", True)
    settings.cluster = ClusterKind.KUBERNETES
    await submitted(alice, workload=WITH_IMAGE)
    assert (await alice.post("/v1/bookings", json=booking)).status_code == 201
