"""The page Now with the use of each GPU: samples and holders, who sees them, and how an open page keeps up."""

import re
from datetime import timedelta

import httpx
import pytest

from api_service.web.fleet import use_map
from api_service.web.fleet.use_map import UseStep, step_of
from reservation_core.domain.gpu_use.samples import GpuSample
from reservation_core.runtime.settings.components import ApiSettings, Holders
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.gpu_use.store_samples import store_samples
from tests.integration.api_service.bookings.calendars import add_nodes, execute
from tests.integration.api_service.callers import submitted
from tests.integration.api_service.nodes.test_gpu_use import had
from tests.integration.api_service.web.browsing import words
from tests.integration.api_service.web.conftest import SignedIn

_CELL = re.compile(r'<a class="u (\w+)" href="\?view=use&amp;card=([^"]+)" title="([^"]+)"')
_SEEN = "a, GPU 1: 50% used, "


@pytest.fixture
def settings(request: pytest.FixtureRequest) -> ApiSettings:
    """Names are told where a test does not say otherwise."""
    return ApiSettings(holders=getattr(request, "param", Holders.EVERYONE))


@pytest.fixture(autouse=True)
async def job(runtime: Runtime, alice: httpx.AsyncClient) -> str:
    """Node `a` has three GPUs: one without a sample, one of a job of alice's that is half busy, and an idle one."""
    await add_nodes(runtime, a=("h100", 3))
    now = runtime.clock.now().replace(microsecond=0)
    made: str = (await submitted(alice))["id"]
    await had(runtime, made, 1, now - timedelta(hours=1), now + timedelta(hours=1), over=False)
    at = now - timedelta(seconds=10)
    await store_samples(runtime.uow, [GpuSample("GPU-a-1", at, 0.5), GpuSample("GPU-a-2", at, 0.0)])
    return made


def cells(page: str) -> dict[str, tuple[str, str]]:
    """The step and the words of each GPU."""
    return {card: (step, said) for step, card, said in _CELL.findall(page)}


async def test_no_data_is_not_zero(browsing: SignedIn, job: str) -> None:
    page = await (await browsing("alice")).get("/now?view=use")
    assert cells(page) == {
        "a/0": ("un", "a, GPU 0: no data, free"),
        "a/1": ("u2", f"{_SEEN}yours: {job}"),
        "a/2": ("u0", "a, GPU 2: 0% used, free"),
    }
    told = words(page)
    assert "1 of 3 GPUs below 10%, mean 25%, 1 without data" in told
    assert "Below 10%: 1" in told
    assert "35 to 64%: 1" in told
    assert "No data: 1" in told
    assert "simulated" not in told


@pytest.mark.parametrize("settings", [Holders.EVERYONE, Holders.SELF], indirect=True)
async def test_holders_are_shown_as_rest_shows_them(settings: ApiSettings, browsing: SignedIn, job: str) -> None:
    seen, hidden = f"{_SEEN}{job} (alice)", f"{_SEEN}held"
    told = {name: cells(await (await browsing(name)).get("/now?view=use"))["a/1"][1] for name in ("bob", "root")}
    assert told == {"bob": seen if settings.holders is Holders.EVERYONE else hidden, "root": seen}
    data = (await (await browsing("bob")).client.get("/now/use")).json()
    assert data["cells"][1] == ["u2", told["bob"]]


async def test_the_details_of_a_gpu_say_its_use(browsing: SignedIn) -> None:
    browser = await browsing("bob")
    assert "Use no data" in words(await browser.part("/now/card?card=a/0&view=use"))
    assert "Use 50% of the time" in words(await browser.get("/now?view=use&card=a/1"))


async def test_old_samples_are_no_data(runtime: Runtime, browsing: SignedIn) -> None:
    await execute(runtime, "UPDATE gpu_samples SET at = at - interval '2 minutes'")
    page = await (await browsing("alice")).get("/now?view=use")
    assert {step for step, _ in cells(page).values()} == {"un"}
    assert "3 GPUs without data" in words(page)


async def test_an_open_page_asks_for_what_differs(runtime: Runtime, browsing: SignedIn) -> None:
    browser = await browsing("alice")
    page = await browser.get("/now?view=use&type=h100")
    data = (await browser.client.get("/now/use?type=h100")).json()
    assert f'data-mark="{data["mark"]}"' in page
    assert [tuple(cell) for cell in data["cells"]] == list(cells(page).values())
    assert data["sums"] == ["1 of 3 GPUs below 10%, mean 25%, 1 without data"]
    assert data["steps"] == [1, 0, 1, 0, 0, 1]
    await add_nodes(runtime, a=("h100", 3), b=("h100", 1))
    assert (await browser.client.get("/now/use?type=h100")).json()["mark"] != data["mark"]
    assert (await browser.client.get("/now/use?type=a100")).json()["cells"] == []


async def test_more_gpus_than_cells_are_counts_alone(browsing: SignedIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(use_map, "MOST_CELLS", 2)
    monkeypatch.setattr("api_service.web.routes.now.MOST_CELLS", 2)
    browser = await browsing("alice")
    page = await browser.get("/now?view=use")
    assert cells(page) == {}
    assert "1 of 3 GPUs below 10%" in words(page)
    assert "There are 3 GPUs, and at most 2 can be shown one by one" in words(page)
    assert (await browser.client.get("/now/use")).json()["cells"] == []


async def test_the_view_is_entered_and_left_by_a_load(browsing: SignedIn) -> None:
    client = (await browsing("alice")).client
    here, there = {"HX-Request": "true", "HX-Current-URL": "http://x/now?view=use"}, {"HX-Request": "true"}
    answers = [await client.get("/now?view=map", headers=here), await client.get("/now?view=use", headers=there)]
    assert [answer.headers["hx-redirect"] for answer in answers] == ["/now?view=map", "/now?view=use"]
    assert "hx-redirect" not in (await client.get("/now?view=map", headers=there)).headers


@pytest.mark.parametrize(
    ("percent", "step"),
    [
        (None, UseStep.NONE), (0, UseStep.IDLE), (9, UseStep.IDLE), (10, UseStep.LOW), (34, UseStep.LOW),
        (35, UseStep.HALF), (64, UseStep.HALF), (65, UseStep.HIGH), (89, UseStep.HIGH), (90, UseStep.FULL),
        (100, UseStep.FULL),
    ],
)  # fmt: skip
def test_steps(percent: int | None, step: UseStep) -> None:
    assert step_of(percent) is step
