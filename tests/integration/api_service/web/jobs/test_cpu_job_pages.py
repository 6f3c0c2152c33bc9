"""Jobs without GPUs on the pages: the form, its verdict, lists, the queue and the job."""

import httpx

from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import add_nodes, execute
from tests.integration.api_service.callers import submitted
from tests.integration.api_service.web.browsing import words
from tests.integration.api_service.web.conftest import SignedIn

FORM = {"gpus": "0", "nodes": "1", "duration": "1h", "command": "true"}


async def test_pages_of_a_job_without_gpus(runtime: Runtime, browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    await add_nodes(runtime, titan=("h100", 2))
    await execute(runtime, "UPDATE nodes SET spare_cpu_milli = 4000, spare_memory_bytes = 17179869184")
    browser = await browsing("alice")
    assert "Starts now" in words((await browser.send("/submit/verdict", **FORM)).text)
    too_much = words((await browser.send("/submit/verdict", **FORM, cpus="5")).text)
    assert "The most is 4 CPUs and 16 GiB of memory (on titan)." in too_much
    nowhere = words((await browser.send("/submit/verdict", **{**FORM, "nodes": "2"})).text)
    assert "a job without GPUs runs on one node" in nowhere
    assert (await browser.send("/submit", **FORM)).status_code == 303
    [job] = (await alice.get("/v1/jobs")).json()["items"]
    page = words(await browser.get(f"/jobs/{job['id']}"))
    assert "GPUs none, for at most 1 h" in page
    assert "the queue of jobs without GPUs" in page
    assert "1 CPU, 2 GiB" in page
    assert "1 job waits for CPUs alone" in words(await browser.get("/queue"))
    assert "CPUs alone" in words(await browser.get("/queue"))
    await submitted(alice)
    assert (await browser.client.get("/jobs")).status_code == 200
    again = await browser.get(f"/submit?again={job['id']}")
    assert 'value="0"' in again


async def test_administrators_see_what_nodes_keep(runtime: Runtime, browsing: SignedIn) -> None:
    await add_nodes(runtime, titan=("h100", 2))
    await execute(runtime, "UPDATE nodes SET spare_cpu_milli = 4000, spare_memory_bytes = 17179869184")
    page = words(await (await browsing("root")).get("/admin/nodes"))
    assert "4 of 4 CPUs free for jobs without GPUs" in page


async def test_the_form_names_the_setting_where_nothing_is_kept(runtime: Runtime, browsing: SignedIn) -> None:
    await add_nodes(runtime, titan=("h100", 2))
    await execute(runtime, "UPDATE nodes SET spare_cpu_milli = 0, spare_memory_bytes = 0")
    browser = await browsing("alice")
    for path in ("/submit/verdict", "/submit"):
        said = words((await browser.send(path, **FORM)).text)
        assert "no node keeps CPUs and memory for such jobs" in said
        assert "ask an administrator to set GPU_DEV_CPU_JOB_SHARE" in said
