"""`python -m standalone.demo`: the whole system at work on this machine, in a temporary home.

The demo starts the system as a process and calls it like any client: over HTTP, with a token. It checks everything that
it shows, and exits with 0 only if all checks hold and nothing is left behind. With a recording of the use of GPUs
(`GPU_DEV_LOCAL_USE`) it also shows what becomes of a session that leaves its GPUs idle.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import psutil

from reservation_core.adapters.local.inventory import LocalInventory
from reservation_core.adapters.postgres.embedded.errors import EmbeddedPostgresError
from reservation_core.adapters.postgres.embedded.server import EmbeddedPostgres
from standalone.checked_system import PATIENCE_S, CheckedSystem, DemoFailedError, say, title
from standalone.idle_demo import show_idle_session

_SIMULATED = "h100:4"
_RECORDING = "GPU_DEV_LOCAL_USE"
_WORKLOAD = """
echo "I am job $GPU_DEV_JOB_ID on node $GPU_DEV_NODE"
echo "CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES"
if [ "$1" = real ]; then
  nvidia-smi -i "$CUDA_VISIBLE_DEVICES" --query-gpu=index,uuid,name --format=csv,noheader
fi
"""


class Demo:
    """One run against a system that is up. `simulated`: its GPUs don't exist. `played`: a recording is played back."""

    def __init__(self, system: CheckedSystem, home: Path, *, simulated: bool, played: bool) -> None:
        self._system = system
        self._home = home
        self._simulated = simulated
        self._played = played

    def run(self) -> None:
        """Show and check everything. Raises DemoFailedError."""
        free = self._system.free_gpus()
        say(f"GPUs: {len(free)} free on {len({gpu['node'] for gpu in free})} node(s)")
        self._system.check(bool(free), "there is at least one free GPU")
        try:
            self._one_job(min(2, max(_per_node(free).values())))
            self._waiting_in_line(free)
            if self._played and len(_per_node(free)) == 1:
                show_idle_session(self._system, self._home)
            self._nothing_left(len(free))
        except BaseException:
            self._end_all()
            raise

    def _one_job(self, gpus: int) -> None:
        title(f"A job with {gpus} GPU(s), from POST /v1/jobs to its log")
        command = ["sh", "-c", _WORKLOAD, "sh", "simulated" if self._simulated else "real"]
        job = self._system.submit({"name": "demo", "gpus": gpus, "duration": 60, "workload": {"command": command}})
        for event in self._life(job["id"]):
            change = f"{event['before'] or 'new'} -> {event['after']}" if event["after"] else ""
            say(f"{event['at'][11:23]}  {event['kind']:<16} {change:<22} {(event['reason'] or {}).get('detail', '')}")
        self._queues()

        job = self._system.job(job["id"])
        self._system.check(
            job["status"] == "succeeded", f"the job succeeded (it is {job['status']}: {job['reason']['detail']})"
        )
        log = self._system.http.get(f"/v1/jobs/{job['id']}/logs").raise_for_status().text
        say("its log:")
        for line in log.splitlines():
            say(f"  | {line}")
        [allocation] = job["allocations"]
        indices = ",".join(str(index) for index in allocation["gpu_indices"])
        self._system.check(len(allocation["gpu_indices"]) == gpus, f"it was given {gpus} GPU(s)")
        self._system.check(
            f"CUDA_VISIBLE_DEVICES={indices}" in log.splitlines(), f"the process saw exactly its GPUs, {indices}"
        )
        self._system.check(f"job {job['id']} on node {allocation['node']}" in log, "it knew its job and its node")
        if not self._simulated:
            seen = all(uuid in log for uuid in allocation["gpu_uuids"])
            self._system.check(seen, "nvidia-smi inside the job named the same GPUs as the ledger")

    def _waiting_in_line(self, free: list[dict[str, Any]]) -> None:
        title("All GPUs taken, and one more job")
        sleep = {"command": ["sleep", "600"]}
        holders = [
            self._system.submit({"name": "holder", "gpus": count, "duration": 600, "workload": sleep})["id"]
            for count in _per_node(free).values()
        ]
        self._system.wait_until(
            lambda: all(self._system.job(holder)["status"] == "running" for holder in holders), "they all run"
        )
        self._system.check(not self._system.free_gpus(), "no GPU is free now")

        command = ["sh", "-c", _WORKLOAD, "sh", "simulated"]
        waiting = self._system.submit({"name": "patient", "gpus": 1, "duration": 60, "workload": {"command": command}})[
            "id"
        ]
        job = self._system.wait_until(lambda: self._system.planned(waiting), f"{waiting} gets an estimated start")
        place, start = job["queue_position"], job["estimated_start_at"]
        say(f"{waiting} waits: place {place} in the queue, estimated start {start}")
        say(f"  because {job['reason']['code']}: {job['reason']['detail']}")
        self._system.check(job["queue_position"] == 1, "it is first in the queue")
        first_end = min(self._system.job(holder)["ends_at"] for holder in holders)
        self._system.check(
            job["estimated_start_at"][:16] >= first_end[:16], "it is not promised a GPU before one is free"
        )

        title("The GPUs are given back by a cancel, and the waiting job gets one")
        for holder in holders:
            self._system.http.post(f"/v1/jobs/{holder}/cancel").raise_for_status()
        for holder in holders:
            ended = self._system.wait_until(partial(self._system.ended, holder), f"{holder} ends")
            say(f"{holder}: {ended['status']}, {ended['reason']['detail']}")
            self._system.check(ended["status"] == "cancelled", "the cancelled job is cancelled")
        job = self._system.wait_until(lambda: self._system.ended(waiting), f"{waiting} ends")
        say(f"{waiting}: {job['status']}, on GPU {job['allocations'][0]['gpu_indices']} since {job['started_at']}")
        self._system.check(job["status"] == "succeeded", "the job that waited has run")

    def _nothing_left(self, free: int) -> None:
        title("Afterwards")
        self._system.wait_until(lambda: len(self._system.free_gpus()) == free, f"all {free} GPUs are free again")
        say(f"{free} of {free} GPUs are free again")
        self._system.check(not self._system.http.get("/v1/queue").raise_for_status().json()["items"], "nobody waits")
        self._system.wait_until(lambda: not _processes_of(self._system.submitted), "no process of any job is left")
        say("no process of any job is left")
        self._system.wait_until(lambda: not any(depth for _, depth, _ in self._queue_rows()), "every queue is empty")
        self._queues()

    def _end_all(self) -> None:
        """Leave no job running on this machine after a failure."""
        for job in self._system.submitted:
            with suppress(httpx.HTTPError):
                self._system.http.post(f"/v1/jobs/{job}/cancel")
        with suppress(DemoFailedError):
            self._system.wait_until(lambda: not _processes_of(self._system.submitted), "no process of any job is left")

    def _life(self, job_id: str) -> Iterator[dict[str, Any]]:
        """The job's events as they come; the stream ends with the last one."""
        with self._system.http.stream("GET", f"/v1/jobs/{job_id}/events") as answer:
            for line in answer.iter_lines():
                if line.startswith("data:"):
                    event: dict[str, Any] = json.loads(line.removeprefix("data:"))
                    yield event

    def _queues(self) -> None:
        rows = self._queue_rows()
        say(f"PGMQ: {', '.join(f'{name} {depth} waiting of {total} sent' for name, depth, total in rows)}")

    def _queue_rows(self) -> list[tuple[str, int, int]]:
        """PGMQ's queues from the database, dead letters included: name, messages now, messages ever."""
        statement = "SELECT queue_name, queue_length, total_messages FROM pgmq.metrics_all() ORDER BY queue_name"

        async def rows() -> list[tuple[str, int, int]]:
            connection = await asyncpg.connect(EmbeddedPostgres(self._home).libpq_url)
            try:
                return [(*row,) for row in await connection.fetch(statement)]
            finally:
                await connection.close()

        return asyncio.run(rows())


def main() -> int:
    """Run the demo; returns 0 if all checks hold."""
    began = time.monotonic()
    home = Path(tempfile.mkdtemp(prefix="gpu-dev-demo-"))
    environment, simulated = _environment(home)
    title("The system")
    if simulated:
        say(f"The GPUs are SIMULATED (GPU_DEV_LOCAL_GPUS={environment['GPU_DEV_LOCAL_GPUS']}): jobs are real")
        say("processes and get real GPU numbers, but these GPUs do not exist.")
    try:
        try:
            with _system(home, environment) as http:
                system = CheckedSystem(http)
                Demo(system, home, simulated=simulated, played=simulated and bool(environment.get(_RECORDING))).run()
            _check_database_gone(home)
        except (DemoFailedError, EmbeddedPostgresError, httpx.HTTPError, asyncpg.PostgresError, OSError) as error:
            _report_failure(error, home)
            return 1
    finally:
        EmbeddedPostgres(home).destroy()
        shutil.rmtree(home, ignore_errors=True)
    title(f"All {system.checked} checks held, in {time.monotonic() - began:.0f} s")
    say("`make up` starts the system to stay.")
    return 0


def _check_database_gone(home: Path) -> None:
    if EmbeddedPostgres(home).pid is not None:
        raise DemoFailedError("the database server still runs after the system has ended")


def _environment(home: Path) -> tuple[dict[str, str], bool]:
    """The environment for the system, and whether its GPUs are simulated."""
    environment = {name: value for name, value in os.environ.items() if name != "GPU_DEV_DATABASE_URL"}
    environment |= {"GPU_DEV_HOME": str(home), "GPU_DEV_CLUSTER": "local", "GPU_DEV_LISTEN": "127.0.0.1:0"}
    environment |= {"GPU_DEV_LOG_JSON": "true", "PYTHONUNBUFFERED": "1"}
    if environment.get(_RECORDING):
        environment |= {"GPU_DEV_SAMPLE_EVERY_S": "1", "GPU_DEV_NOTICES__ALLOW": "127.0.0.1"}
    if environment.get("GPU_DEV_LOCAL_GPUS"):
        return environment, True
    inventory = LocalInventory(None)
    try:
        real = any(node.gpus for node in inventory.nodes())
    finally:
        inventory.close()
    if not real:
        environment["GPU_DEV_LOCAL_GPUS"] = _SIMULATED
    return environment, not real


@contextmanager
def _system(home: Path, environment: dict[str, str]) -> Iterator[httpx.Client]:
    """Run the system in a process of its own; yields a client and ends it in order. Raises DemoFailedError."""
    with (home / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "standalone"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        url = _address(server)
        token = (home / "admin-token").read_text(encoding="ascii").strip()
        say(f"{url} is up")
        # No proxy: the system is on this machine.
        with httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=30, trust_env=False
        ) as http:
            yield http
        server.terminate()
        if server.wait(timeout=PATIENCE_S) != 0:
            raise DemoFailedError(f"the system ended with exit code {server.returncode}")
    except subprocess.TimeoutExpired:
        raise DemoFailedError(f"the system did not end within {PATIENCE_S:.0f} s of SIGTERM") from None
    finally:
        if server.poll() is None:
            server.terminate()
            try:
                server.wait(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                server.kill()
        if server.stdout is not None:
            server.stdout.close()
        server.wait()


def _address(server: "subprocess.Popen[str]") -> str:
    """Wait for the URL that the system prints once it is up. Raises DemoFailedError if it ends instead."""
    for line in server.stdout or ():
        words = line.split()
        if words[:1] == ["URL"]:
            return words[1]
    raise DemoFailedError(f"the system did not start (exit code {server.wait()})")


def _processes_of(jobs: list[str]) -> list[int]:
    """Live processes on this machine that carry one of these jobs' ids in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("GPU_DEV_JOB_ID") in jobs and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue  # ended meanwhile, or another user's process: the jobs' are readable
    return found


def _per_node(gpus: list[dict[str, Any]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for gpu in gpus:
        counts[gpu["node"]] = counts.get(gpu["node"], 0) + 1
    return counts


def _report_failure(error: Exception, home: Path) -> None:
    sys.stdout.flush()
    log = (home / "server.log").read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
    sys.stderr.write("\n".join(["", "The system's last log lines:", *log, "", f"The demo FAILED: {error}", ""]))


if __name__ == "__main__":
    sys.exit(main())
