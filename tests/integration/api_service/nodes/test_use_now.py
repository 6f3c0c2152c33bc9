"""The use of all GPUs now over REST: page by page, with holders for those who may see them."""

from datetime import timedelta

import httpx
import pytest

from reservation_core.domain.gpu_use.samples import GpuSample
from reservation_core.runtime.settings.components import ApiSettings, Holders
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.gpu_use.store_samples import store_samples
from tests.integration.api_service.bookings.calendars import add_nodes
from tests.integration.api_service.callers import submitted
from tests.integration.api_service.nodes.test_gpu_use import had

UNKNOWN = ("sampled_at", "utilisation", "memory_used_bytes", "power_w", "temperature_c", "ecc_uncorrected", "processes")


@pytest.fixture(autouse=True)
async def job(runtime: Runtime, alice: httpx.AsyncClient) -> str:
    """A job of alice's has GPU 1 of node `a`, which has two; it was sampled just now."""
    await add_nodes(runtime, a=("h100", 2))
    now = runtime.clock.now().replace(microsecond=0)
    made: str = (await submitted(alice))["id"]
    await had(runtime, made, 1, now - timedelta(hours=1), now + timedelta(hours=1), over=False)
    at = now - timedelta(seconds=10)
    sample = GpuSample("GPU-a-1", at, 0.5, 2**30, 80 * 2**30, 412.54, 61, 0, 79, ())
    await store_samples(runtime.uow, [sample])
    return made


async def test_each_gpu_with_its_newest_sample(alice: httpx.AsyncClient, bob: httpx.AsyncClient, job: str) -> None:
    idle, used = (await alice.get("/v1/gpus/use")).json()["items"]
    assert {idle[name] for name in (*UNKNOWN, "xid", "holder")} == {None}
    assert (idle["state"], used["state"]) == ("free", "held")
    assert used["holder"] == {"id": job, "user": "alice", "yours": True}
    assert (used["utilisation"], used["memory_used_bytes"], used["power_w"]) == (0.5, 2**30, 412.5)
    assert (used["temperature_c"], used["ecc_uncorrected"], used["xid"], used["processes"]) == (61, 0, 79, 0)
    assert used["simulated"] is False
    [_, others] = (await bob.get("/v1/gpus/use")).json()["items"]
    assert others == {**used, "holder": {**used["holder"], "yours": False}}


async def test_page_by_page(alice: httpx.AsyncClient) -> None:
    first = (await alice.get("/v1/gpus/use?limit=1")).json()
    second = (await alice.get(f"/v1/gpus/use?limit=1&cursor={first['next_cursor']}")).json()
    assert [gpu["index"] for gpu in (*first["items"], *second["items"])] == [0, 1]
    assert second["next_cursor"] is None
    assert (await alice.get("/v1/gpus/use?cursor=x")).status_code == 400


@pytest.mark.parametrize("settings", [ApiSettings(holders=Holders.SELF)])
async def test_holders_are_hidden_as_elsewhere(settings: ApiSettings, bob: httpx.AsyncClient) -> None:
    del settings
    [_, used] = (await bob.get("/v1/gpus/use")).json()["items"]
    assert used["holder"] == {"id": None, "user": None, "yours": False}
    assert used["utilisation"] == 0.5
