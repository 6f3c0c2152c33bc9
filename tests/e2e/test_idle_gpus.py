"""A job that leaves its GPUs idle is warned and ended, the next one gets them, and who says so keeps a job."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.e2e.systems.system_process import ROOT, SystemProcess, ended
from tests.network.receivers import receiving
from tests.waiting import eventually, eventually_sync

IDLE = "at_s,gpu,utilisation\n0,0,0\n0,1,0\n"
RULE = {"below": 0.9, "window": "PT1M", "grace": "PT1M", "then": "release"}
SHORTER = "UPDATE policies SET idle_window = interval '6 s', idle_grace = interval '20 s'"
"""Nobody may say so; a minute of each would be waited for here. Few samples are enough, as a busy machine has them."""


@pytest.fixture
def system(database_url: str, tmp_path: Path) -> Iterator[SystemProcess]:
    recording = tmp_path / "use.csv"
    recording.write_text(IDLE)
    system = SystemProcess(
        tmp_path / "home",
        forked=True,
        GPU_DEV_DATABASE_URL=database_url,
        GPU_DEV_LOCAL_GPUS="h100:2",
        GPU_DEV_LOCAL_USE=str(recording),
        GPU_DEV_SAMPLE_EVERY_S="1",
        GPU_DEV_NOTICES__ALLOW="127.0.0.1",
    )
    yield system
    system.clear()


def cli(system: SystemProcess, *words: str) -> str:
    """What a command prints."""
    environment = {"GPU_DEV_SERVER": system.url, "GPU_DEV_TOKEN": system.token, "HOME": str(system.home), "TZ": "UTC"}
    command = [sys.executable, "-m", "gpu_dev", *words]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False).stdout


async def test_what_is_left_idle_is_warned_and_ended_and_runs_the_next_job(
    system: SystemProcess, database_url: str
) -> None:
    async with receiving() as receiver:
        await asyncio.to_thread(play, system, database_url, receiver.url())
        left, kept, _ = system.jobs
        wanted = {("idle", left), ("idle", kept), ("ended", left)}
        await eventually(lambda: wanted <= {(got.json["kind"], got.json["reservation"]["id"]) for got in receiver.got})
    warning, *_ = [
        got.json for got in receiver.got if (got.json["kind"], got.json["reservation"]["id"]) == ("idle", left)
    ]
    assert f"`gpu-dev keep {left}`" in warning["text"]
    [end] = [got.json for got in receiver.got if (got.json["kind"], got.json["reservation"]["id"]) == ("ended", left)]
    assert "Its GPUs were idle for" in end["text"]


def play(system: SystemProcess, database_url: str, receiver: str) -> None:
    """Two jobs hold both GPUs and leave them idle; one of them is kept, a third waits."""
    with system.start() as http:
        http.post("/v1/notifications/targets", json={"channel": "webhook", "address": receiver}).raise_for_status()
        cli(system, "policy", "set", "default", "idle=90%,1m,1m,release")
        assert http.get("/v1/policy/default").json()["rules"]["idle"] == RULE
        with psycopg.connect(database_url.replace("+asyncpg", "")) as database:
            database.execute(SHORTER)
        left = system.submit(http, 1, "sleep", "300")
        kept = system.submit(http, 1, "sleep", "300")
        following = system.submit(http, 1, "true")

        eventually_sync(lambda: http.get(f"/v1/jobs/{kept}").json()["idle"])
        eventually_sync(lambda: f"{kept} keeps its GPUs" in cli(system, "keep", kept))
        eventually_sync(lambda: f"gpu-dev keep {left}" in cli(system, "explain", left))

        assert ended(http, left)["reason"]["code"] == "idle"  # type: ignore[index]
        assert ended(http, following)["status"] == "succeeded"
        life, other = events(http, left), events(http, kept)
        order = [*life]
        assert order.index("idle_warning") < order.index("idle_released") < order.index("expired")
        # It is idle still, so it is warned again, and may have been ended by now; but not when the other was.
        assert other["kept"] < life["idle_released"] < other.get("idle_released", "~")
        assert http.get(f"/v1/jobs/{following}").json()["started_at"] < other.get("idle_released", "~")
        http.post(f"/v1/jobs/{kept}/cancel")


def events(http: httpx.Client, job: str) -> dict[str, str]:
    """When each kind of event came first, in order."""
    found = http.get("/v1/events", params={"subject": job, "order": "oldest", "limit": 200}).raise_for_status()
    kinds: dict[str, str] = {}
    for event in found.json()["items"]:
        kinds.setdefault(event["kind"], event["at"])
    return kinds
