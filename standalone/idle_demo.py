"""The demo's chapter about idle GPUs, with a recording: a session leaves its GPUs idle, and the next job gets them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx

from standalone.checked_system import CheckedSystem, say, title

_RULE = {"below": 0.1, "window": "PT1M", "grace": "PT1M", "then": "release"}
_WARNED_S, _RELEASED_S = 400.0, 200.0
_MARKS = frozenset("▁▂▃▄▅▆▇█")


def show_idle_session(system: CheckedSystem, home: Path) -> None:
    """Show and check what becomes of a session that leaves all GPUs idle. Raises DemoFailedError."""
    title("A session leaves its GPUs idle (about three minutes)")
    system.http.put("/v1/policy/default", json={"idle": _RULE}).raise_for_status()
    say("the policy's rule: GPUs below 10% for a minute are idle; a minute after the warning they go to others")
    with _receiver() as (address, received):
        target = {"channel": "webhook", "address": address}
        system.http.post("/v1/notifications/targets", json=target).raise_for_status()
        left, following = _wait_for_release(system, home)
        _show_next_job(system, left, following)
        _show_graph(system, home, left)
        say("")
        _run(system, home, "events", left)
        _check_audit_log(system, left)
        # All that is sent: what came once nobody listens any more would be tried again for minutes.
        wanted = [("idle", left), ("ended", left), ("ended", following)]
        texts = system.wait_until(lambda: _texts(received, wanted), "notifications of the warning and the ends arrive")
        for text in texts:
            say("a notification arrived at the webhook:")
            for line in text.splitlines():
                say(f"  | {line}" if line else "  |")


def _wait_for_release(system: CheckedSystem, home: Path) -> tuple[str, str]:
    """The ids of a session that was released as idle, and of the job that waited for its GPUs."""
    gpus = len(system.free_gpus())
    left = system.submit({"name": "left", "gpus": gpus, "duration": 3600, "workload": {}})["id"]
    system.wait_until(lambda: system.job(left)["status"] == "running", f"{left} runs")
    command = ["sh", "-c", "echo I have GPUs $CUDA_VISIBLE_DEVICES"]
    following = system.submit({"name": "next", "gpus": gpus, "duration": 60, "workload": {"command": command}})["id"]
    system.wait_until(lambda: system.planned(following), f"{following} waits")
    say(f"its graph in a browser, meanwhile: {system.http.base_url.join(f'/jobs/{left}')}")
    say(f"sign in with the token in {home / 'admin-token'}")
    recording = "the recording must leave all GPUs below 10% for some minutes"
    system.wait_until(lambda: system.job(left)["idle"], f"{left} is warned: {recording}", _WARNED_S)
    say("")
    _run(system, home, "explain", left)
    ended = system.wait_until(lambda: system.ended(left), f"{left} is released: {recording}", _RELEASED_S)
    say(f"{left}: {ended['status']}, {ended['reason']['detail']}")
    system.check(ended["reason"]["code"] == "idle", "the session was released because its GPUs were idle")
    return left, following


def _show_next_job(system: CheckedSystem, left: str, following: str) -> None:
    job = system.wait_until(lambda: system.ended(following), f"{following} ends")
    say(f"{following}: {job['status']}, on GPUs {job['allocations'][0]['gpu_indices']} since {job['started_at']}")
    system.check(job["status"] == "succeeded", "the job that waited has run")
    [had], [has] = system.job(left)["allocations"], job["allocations"]
    same = (had["node"], had["gpu_indices"]) == (has["node"], has["gpu_indices"])
    system.check(same, "it ran on the GPUs of the session")


def _show_graph(system: CheckedSystem, home: Path, job: str) -> None:
    say("")
    shown = _run(system, home, "metrics", job)
    system.check(not _MARKS.isdisjoint(shown), "the graph of the session is in the terminal")
    with httpx.Client(base_url=system.http.base_url, trust_env=False) as browser:
        browser.post("/sign-in", data={"token": _token(home)})
        page = browser.get(f"/jobs/{job}").raise_for_status().text
    graphs = page.count("<polygon")
    say(f"and on its page: {graphs} areas of graphs")
    system.check(bool(graphs), "the graph of the session is on its page")


def _check_audit_log(system: CheckedSystem, job: str) -> None:
    found = system.http.get("/v1/events", params={"subject": job, "order": "oldest"}).raise_for_status().json()["items"]
    kinds = [event["kind"] for event in found]
    say(f"audit log: {', '.join(kinds)}")
    system.check({"idle_warning", "idle_released"} <= {*kinds}, "the audit log has the warning and the release")


def _run(system: CheckedSystem, home: Path, *words: str) -> str:
    """Show a command and what it prints; returns the latter. Raises DemoFailedError if it fails."""
    environment = {**os.environ, "GPU_DEV_SERVER": str(system.http.base_url), "GPU_DEV_TOKEN": _token(home)}
    done = subprocess.run(
        [sys.executable, "-m", "gpu_dev", *words], env=environment, capture_output=True, text=True, check=False
    )
    system.check(done.returncode == 0, f"`gpu-dev {' '.join(words)}` works (it says: {done.stderr.strip()})")
    say(f"$ gpu-dev {' '.join(words)}")
    for line in done.stdout.strip().splitlines():
        say(f"  {line}")
    return done.stdout


def _token(home: Path) -> str:
    return (home / "admin-token").read_text(encoding="ascii").strip()


def _texts(received: list[Any], wanted: list[tuple[str, str]]) -> list[str] | None:
    """The texts of these notifications, by kind and job, once all are there."""
    texts = {(one["kind"], (one["reservation"] or {}).get("id")): one["text"] for one in received}
    return [texts[key] for key in wanted] if texts.keys() >= {*wanted} else None


@contextmanager
def _receiver() -> Iterator[tuple[str, list[Any]]]:
    """A webhook of this machine: its address, and what has arrived there."""
    received: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing: the demo shows what arrives."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/hook", received
        finally:
            server.shutdown()
            thread.join()
