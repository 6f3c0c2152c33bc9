"""Submitting, the list and a job's page, as a browser without scripts has them."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from api_service.web.rest_calls import RestCalls, RestProblemError
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.jobs.arrays import RestingArrays, settle_arrays
from tests.integration.api_service.bookings.calendars import add_nodes, booked, booked_now, execute
from tests.integration.api_service.jobs.test_cpu_jobs import keeps
from tests.integration.api_service.web.browsing import Browser, words
from tests.integration.api_service.web.conftest import SignedIn

HOSTILE = "<script>alert('x')</script>\"'&"


async def submitted(client: httpx.AsyncClient, **changed: Any) -> str:
    body = {"gpus": 1, "duration": "PT1H", "workload": {"command": ["true"]}, **changed}
    response = await client.post("/v1/jobs", json=body)
    assert response.status_code == 202, response.text
    return str(response.json()["id"])


async def sent(browser: Browser, **fields: str) -> httpx.Response:
    given = {"gpus": "1", "nodes": "1", "duration": "1h", "command": "true", "key": "k-1"} | fields
    return await browser.send("/submit", **given)


async def test_a_job_is_submitted_by_a_form_and_shown(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    browser = await browsing("alice")
    done = await sent(browser, name="train", gpus="2", duration="1h30m", env="A=1\nB=x=y", command="python train.py")
    assert done.status_code == 303
    path = done.headers["location"]
    page = words(await browser.get(path))
    assert "train" in page
    assert f"{path.removeprefix('/jobs/')} is submitted." in page  # true however soon it starts
    assert "waits for its GPUs" not in page
    spec = (await alice.get(f"/v1{path}/spec")).json()
    assert (spec["gpus"], spec["duration"]) == (2, "PT1H30M")
    assert spec["workload"]["command"] == ["python", "train.py"]
    assert spec["workload"]["env"] == {"A": "1", "B": "x=y"}


async def test_its_disks_and_secrets_are_named_to_those_who_see_its_request(
    browsing: SignedIn, alice: httpx.AsyncClient
) -> None:
    for disk in ("data", "sets"):
        (await alice.post("/v1/disks", json={"name": disk, "size": "1Gi"})).raise_for_status()
    for secret in ("HF_TOKEN", "deploy-key"):
        (await alice.put(f"/v1/secrets/{secret}", json={"value": "in-confidence"})).raise_for_status()
    disks = [{"name": "data", "path": "/disks/data"}, {"name": "sets", "path": "/in", "read_only": True}]
    secrets = [{"name": "HF_TOKEN", "env": "HF_TOKEN"}, {"name": "deploy-key", "path": "/run/secrets/key"}]
    job = await submitted(alice, disks=disks, secrets=secrets)
    (await alice.put(f"/v1/jobs/{job}/shares/bob")).raise_for_status()
    for user in ("alice", "bob", "root"):
        page = await (await browsing(user)).get(f"/jobs/{job}")
        assert "Disks data at /disks/data sets at /in, read-only " in words(page)
        assert "Command true " in words(page)
        assert "Secrets HF_TOKEN in $HF_TOKEN deploy-key in /run/secrets/key " in words(page)
        assert "in-confidence" not in page
    assert "Secrets" not in await (await browsing("alice")).get(f"/jobs/{await submitted(alice)}")


async def test_an_array_is_submitted_and_shows_its_elements(
    browsing: SignedIn, alice: httpx.AsyncClient, runtime: Runtime
) -> None:
    browser = await browsing("alice")
    wrong = await sent(browser, array="1-3")
    assert (wrong.status_code, "Elements are numbered from 0 on" in words(wrong.text)) == (422, True)
    done = await sent(browser, name="sweep", array="0-149%8")
    assert done.status_code == 303, words(done.text)
    path = done.headers["location"]
    await settle_arrays(runtime.uow, runtime.clock, RestingArrays())
    page = await browser.get(path)
    assert "150 queued of 150; at most 8 at once" in words(page)
    assert f'href="{path}.99"' in page
    assert f'href="{path}.100"' not in page
    [following] = re.findall(r'href="([^"]+)">Next elements', page)
    rest = await browser.get(following.replace("&amp;", "&"))
    assert f'href="{path}.100"' in rest
    assert re.findall(r'href="([^"]+)">First elements', rest) == [path]
    gone = await browser.client.get(f"{path}?elements=queued&after=gone")
    assert (gone.status_code, gone.headers["location"]) == (303, f"{path}?elements=queued")
    assert "No element has this status" in words(await browser.get(f"{path}?elements=failed"))
    element = words(await browser.get(f"{path}.3"))
    assert f"3 of {path.rpartition('/')[2]}" in element
    assert "0 of 150 ended" in words(await browser.get("/jobs"))
    assert 'value="0-149%8"' in await browser.get(f"/submit?again={path.rpartition('/')[2]}")
    part = await browser.client.get(f"{path}/elements", headers={"HX-Request": "true"})
    assert part.status_code == 200
    assert (await browser.client.get(f"{path}/log.txt")).text == ""
    assert "150 waiting elements will not start. Elements" in words(await browser.get(f"{path}/cancel"))


async def test_the_same_form_twice_is_one_job(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    browser = await browsing("alice")
    first, second = await sent(browser), await sent(browser)
    assert first.headers["location"] == second.headers["location"]
    assert len((await alice.get("/v1/jobs")).json()["items"]) == 1


async def test_what_is_wrong_is_said_beside_what_was_typed(browsing: SignedIn) -> None:
    browser = await browsing("alice")
    done = await sent(browser, duration="soon", name="kept as it was")
    assert done.status_code == 422
    assert "such as 4h" in words(done.text)
    assert 'value="kept as it was"' in done.text
    done = await sent(browser, priority="50")  # REST's own word: only administrators go first
    assert done.status_code in (403, 409, 422)
    assert 'class="problem"' in done.text


async def test_the_verdict_comes_before_anything_is_sent(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    browser = await browsing("alice")
    response = await browser.client.post(
        "/submit/verdict",
        data={"gpus": "1", "duration": "1h", "command": "nvidia-smi -L"},
        headers={"HX-Request": "true", "X-CSRF-Token": await browser.token("/submit")},
    )
    assert response.status_code == 200
    assert "Accepted" in words(response.text)
    assert "It would wait, and no start is known, because: No GPUs are known here yet." in words(response.text)
    assert "gpu-dev run --gpus 1 --for 1h -- nvidia-smi -L" in words(response.text)
    assert (await alice.get("/v1/jobs")).json()["items"] == []


async def test_the_verdict_counts_the_time_that_pods_take_to_start(
    browsing: SignedIn, alice: httpx.AsyncClient, runtime: Runtime
) -> None:
    """Between now and a booking of all GPUs lies an hour and a bit: the planner starts no job of an hour there."""
    await add_nodes(runtime, titan=("h100", 1))
    start = (datetime.now(UTC) + timedelta(minutes=62)).replace(second=0, microsecond=0)
    request = {"gpus": 1, "start": start.isoformat(), "duration": "PT5H"}
    assert (await alice.post("/v1/bookings", json=request)).status_code == 201
    browser = await browsing("alice")

    async def verdict(duration: str, gpus: str = "1") -> str:
        response = await browser.client.post(
            "/submit/verdict",
            data={"gpus": gpus, "duration": duration, "command": "true"},
            headers={"HX-Request": "true", "X-CSRF-Token": await browser.token("/submit")},
        )
        return words(response.text)

    assert "Starts now Enough GPUs are free for its whole duration." in await verdict("55m")
    assert "Accepted It starts about" in await verdict("1h")
    await keeps(runtime)
    assert "Starts now Enough CPUs and memory are free for its whole duration." in await verdict("1h", gpus="0")


async def test_a_job_over_a_quota_is_accepted_and_one_that_never_fits_is_refused(
    browsing: SignedIn, alice: httpx.AsyncClient, root: httpx.AsyncClient, runtime: Runtime
) -> None:
    await add_nodes(runtime, titan=("h100", 8))
    await root.put("/v1/policy/default", json={"max_gpus": 4, "max_gpu_hours_per_week": 100.5})
    await booked_now(alice, gpus=3, duration="PT5H")
    browser = await browsing("alice")

    async def verdict(gpus: int) -> str:
        response = await browser.client.post(
            "/submit/verdict",
            data={"gpus": str(gpus), "duration": "1h", "command": "true"},
            headers={"HX-Request": "true", "X-CSRF-Token": await browser.token("/submit")},
        )
        return response.text

    over = await verdict(2)
    assert '<span class="badge warn">Accepted</span>' in over
    assert "2 GPUs beside 3 of the same user now; the limit is 4 at once (everybody)." in words(over)
    assert "5 of 4 GPUs with this job, over the quota 3 now" in words(over)
    assert '<p class="share over">' in over
    assert "of 100.5 GPU-hours with this job" in words(over)
    done = await sent(browser, gpus="2", duration="1h")
    assert done.status_code == 303
    never = await verdict(5)
    assert '<span class="badge bad">Refused</span>' in never
    assert (await sent(browser, gpus="5", duration="1h", key="k-2")).status_code == 409
    fits = await verdict(1)
    assert '<span class="badge good">Starts now</span>' in fits
    assert "over the quota" not in fits


async def test_a_job_is_submitted_into_a_booking_that_is_still_ahead(
    browsing: SignedIn, alice: httpx.AsyncClient, runtime: Runtime
) -> None:
    await add_nodes(runtime, titan=("h100", 2))
    made = await booked(alice, title="runs", gpu_type="h100")
    gone = await booked(alice, title="given back", gpu_type="h100")
    await alice.delete(f"/v1/bookings/{gone['id']}")
    browser = await browsing("alice")
    page = await browser.get(f"/submit?booking={made['id']}")
    assert f'<option value="{made["id"]}" selected>runs, ' in page
    assert gone["id"] not in page
    done = await sent(browser, booking=made["id"])
    assert (await alice.get(f"/v1{done.headers['location']}")).json()["booking_id"] == made["id"]


async def test_a_job_like_one_before(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    workload = {"command": ["sh", "-c", "echo a | wc"], "env": {"TOKEN": "mine"}, "working_dir": "/data"}
    job_id = await submitted(alice, name=HOSTILE, workload=workload)
    page = await (await browsing("alice")).get(f"/submit?again={job_id}")
    assert "echo a | wc" in page
    assert "TOKEN=mine" in page
    assert HOSTILE not in page
    await (await browsing("bob")).get(f"/submit?again={job_id}", status=404)


async def test_times_within_sentences_are_those_of_the_chosen_zone_and_only_people_are_named(
    browsing: SignedIn, alice: httpx.AsyncClient, runtime: Runtime
) -> None:
    job_id = await submitted(alice)
    reason = "Running until 2030-01-31T09:00:00Z at the latest."
    await execute(runtime, "UPDATE reservations SET reason = :reason WHERE id = :id", id=job_id, reason=reason)
    await execute(
        runtime,
        "INSERT INTO events (reservation_id, at, actor, kind, before, after, reason_code, reason, data) "
        "VALUES (:id, now(), 'planner', 'allocated', 'queued', 'starting', 'running', :reason, '{}')",
        id=job_id,
        reason=reason,
    )
    browser = await browsing("alice")
    browser.client.cookies.set("gpu_dev_zone", "Asia/Kolkata")
    page = words(await browser.get(f"/jobs/{job_id}"))
    assert page.count("Running until Thu 31 Jan 2030 14:30 IST at the latest.") == 2
    assert "by you" in page
    assert "by planner" not in page


async def test_others_jobs_are_not_there(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    job_id = await submitted(alice, name="secret-project")
    bob = await browsing("bob")
    assert "secret-project" not in await bob.get("/jobs")
    for path in ("", "/log", "/log.txt"):
        assert (await bob.client.get(f"/jobs/{job_id}{path}")).status_code == 404
    await bob.part(f"/jobs/{job_id}/state", 404)
    for path in ("cancel", "extend"):
        assert (await bob.send(f"/jobs/{job_id}/{path}", by="1h")).status_code == 404
    assert (await bob.client.get(f"/live?topics=job:{job_id}")).status_code == 404
    page = await bob.get(f"/jobs/{job_id}", status=404)
    assert '<p><a href="/jobs">Jobs</a></p>' in page
    assert "gpu-dev" not in words(page), "a reader of pages has no use for a command"
    assert (await bob.client.get("/live?topics=admin")).status_code == 422
    assert "secret-project" in await (await browsing("root")).get("/jobs")


async def test_what_people_write_is_text(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    job_id = await submitted(alice, name=HOSTILE)
    browser = await browsing("alice")
    for path in ("/jobs", f"/jobs/{job_id}", "/submit", f"/submit?name={HOSTILE}&duration={HOSTILE}"):
        assert "<script>alert" not in await browser.get(path)
    assert "<script>alert" not in await browser.get(f"/jobs?user={HOSTILE}", status=422)


async def test_a_job_is_cancelled_and_an_extension_that_is_none_is_explained(
    browsing: SignedIn, alice: httpx.AsyncClient
) -> None:
    job_id = await submitted(alice)
    browser = await browsing("alice")
    refused = await browser.send(f"/jobs/{job_id}/extend", by="a while")
    assert refused.status_code == 422
    assert 'class="problem"' in refused.text
    done = await browser.send(f"/jobs/{job_id}/cancel")
    assert done.headers["location"] == f"/jobs/{job_id}"
    page = words(await browser.get(f"/jobs/{job_id}"))
    assert f"{job_id} is cancelled." in page
    assert "End it" not in page


async def test_nobody_has_jobs_at_first(browsing: SignedIn) -> None:
    browser = await browsing("alice")
    assert "Submit your first" in await browser.get("/jobs")
    assert "No job matches" in await browser.get("/jobs?status=running")


async def test_a_job_that_ended_before_its_start_says_so_unless_it_had_run_before(
    browsing: SignedIn, alice: httpx.AsyncClient, runtime: Runtime
) -> None:
    browser = await browsing("alice")
    for attempts, said in ((0, "It never started, so it printed nothing."), (2, "It printed nothing.")):
        job = await submitted(alice)
        await execute(
            runtime, "UPDATE reservations SET attempt = :attempts WHERE id = :job", attempts=attempts, job=job
        )
        await alice.post(f"/v1/jobs/{job}/cancel")
        page = words(await browser.get(f"/jobs/{job}"))
        assert said in page
        assert ("never started" in page) is (attempts == 0)


async def test_an_exit_code_is_said_once(browsing: SignedIn, alice: httpx.AsyncClient, runtime: Runtime) -> None:
    browser, change = await browsing("alice"), "UPDATE reservations SET exit_code = 3, reason = :why WHERE id = :job"
    for why in ("The command ended with exit code 3; its log may say why.", "It was asked to end."):
        job = await submitted(alice)
        await alice.post(f"/v1/jobs/{job}/cancel")
        await execute(runtime, change, job=job, why=why)
        assert (await browser.part(f"/jobs/{job}/state")).count("exit code 3") == 1, why


async def test_several_jobs_are_selected_and_cancelled_at_once(
    browsing: SignedIn, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    browser = await browsing("alice")
    first, second, kept = [await submitted(alice, name=name) for name in ("one", "two", "three")]
    theirs = await submitted(bob)
    page = await browser.get("/jobs")
    assert page.count('name="job" value="job-') == 3
    # Others' jobs, unknown ones and hostile ids are left out.
    chosen = [first, second, second, theirs, "../x", "no"]
    query = {"job": chosen, "next": "/jobs?status=queued"}
    part = (await browser.client.get("/jobs/cancel", params=query)).text
    told = words(part)
    assert "Cancel 2 jobs?" in told
    assert "2 wait: they lose their places in the queue. one (queued), two (queued)." in told
    assert 'href="/jobs?status=queued" data-back' in part
    assert theirs not in part.partition("<footer")[0]
    assert re.findall(r'name="job" value="([^"]+)"', part) == [first, second]
    assert {job["status"] for job in (await alice.get("/v1/jobs")).json()["items"]} == {"queued"}
    token = await browser.token("/jobs")
    form = {"csrf_token": token, "job": [first, theirs, second], "next": "/jobs?status=queued"}
    done = await browser.client.post("/jobs/cancel", data=form)
    assert done.headers["location"] == "/jobs?status=queued"
    said = words(await browser.get("/jobs"))
    assert f"2 jobs are cancelled. 1 could not be cancelled: {theirs}." in said
    states = {job["id"]: job["status"] for job in (await alice.get("/v1/jobs")).json()["items"]}
    assert states == {first: "cancelled", second: "cancelled", kept: "queued"}
    assert (await bob.get(f"/v1/jobs/{theirs}")).json()["status"] == "queued"
    for nothing in ([], [first] * 60):
        left = await browser.client.get("/jobs/cancel", params={"job": nothing})
        assert left.headers["location"] == "/jobs"
        page = await browser.get("/jobs")
        assert '<p class="warning" role="status">Nothing was cancelled:' in page


async def test_a_job_that_fails_midway_does_not_hide_what_was_cancelled(
    browsing: SignedIn, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [await submitted(alice, name=name) for name in ("one", "two", "three")]
    browser, post = await browsing("alice"), RestCalls.post

    async def post_or_fail(calls: RestCalls, model: type[Any], path: str) -> Any:
        if jobs[1] in path:
            raise RestProblemError.because(503, "Try again later.")
        return await post(calls, model, path)

    monkeypatch.setattr(RestCalls, "post", post_or_fail)
    token = await browser.token("/jobs")
    await browser.client.post("/jobs/cancel", data={"csrf_token": token, "job": jobs})
    assert f"2 jobs are cancelled. 1 could not be cancelled: {jobs[1]}." in words(await browser.get("/jobs"))


async def test_the_time_zone_is_changed_on_the_question_whether_to_cancel(
    browsing: SignedIn, alice: httpx.AsyncClient
) -> None:
    path = f"/jobs/cancel?job={await submitted(alice)}"
    browser = await browsing("alice")
    assert f'name="next" value="{path}"' in await browser.get(path)
    done = await browser.send("/zone", zone="Europe/Berlin", next=path)
    assert (done.status_code, done.headers["location"]) == (303, path)
    assert "Cancel 1 job?" in words(await browser.get(path))


async def test_a_job_after_another_is_submitted_and_shown_with_what_it_waits_for(
    browsing: SignedIn, alice: httpx.AsyncClient
) -> None:
    browser = await browsing("alice")
    first = await submitted(alice, name="prepare")
    assert f'href="/submit?after=ok:{first}"' in await browser.get(f"/jobs/{first}")
    form = await browser.get(f"/submit?after=ok:{first}")
    assert f'value="ok:{first}"' in form
    assert f"gpu-dev run --gpus 1 --for 1h --after ok:{first}" in words(form).replace("gpu-dev submit", "gpu-dev run")
    assert f"It waits for {first} to succeed." in words(form)
    assert 'id="waiting-picture"' not in form
    done = await sent(browser, after=f"ok:{first}")
    assert done.status_code == 303
    page = await browser.get(done.headers["location"])
    assert f'<a href="/jobs/{first}">{first}</a> has to succeed' in page
    assert "is submitted." in words(page)
    assert "not known yet" in words(page)
    assert 'id="waiting-picture"' not in page
    again = await browser.get(f"/submit?again={done.headers['location'].removeprefix('/jobs/')}")
    assert first not in again.replace(f"again={first}", "")
    for wrong, said in (("later:x", "as ok:ID, any:ID, failed:ID or started:ID"), ("ok:job-nope", "You have no job")):
        refused = await sent(browser, after=wrong, key=wrong)
        assert refused.status_code == 422
        assert said in words(refused.text)
