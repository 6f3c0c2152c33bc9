"""Commands in everyday use load neither pydantic, which costs twice the processor time of all else, nor what judges."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from reservation_core.contracts import (
    audit_log,
    bookings,
    jobs,
    maintenance,
    nodes,
    notices,
    people,
    policy,
    sessions,
    sign_in,
    simulations,
)
from tests.unit.gpu_dev.examples import NOON, job_json

HEAVY = (
    "pydantic",
    "reservation_core.domain.bookings.nouns",
    "reservation_core.domain.errors",
    "reservation_core.domain.gpu_use.roll_ups",
    "reservation_core.domain.model",
    "reservation_core.domain.policy.limits",
)
"""What a command needs no class of: making one costs more than reading an answer."""
TYPED_TIMES = ("gpu_dev.inputs.times", "zoneinfo")
_RUN = "from gpu_dev.__main__ import start; start()"
_NONE: dict[str, Any] = {"items": [], "next_cursor": None}
_JOB = json.loads(job_json())
_USER = people.UserOut(name="ann", role="user", created_at=NOON, disabled_at=None)
_LIMIT = policy.LimitOut(rule="max_gpus", value=4, used=2, scope="default")
_GPU = nodes.GpuOut(
    node="n1", index=0, uuid=None, gpu_type="h100", memory_bytes=None, state="free", holder=None, free_at=None
)
_LEVEL = nodes.UseLevel(mean=0.5, max=1)
_POINT = nodes.UsePointOut(
    at=NOON, samples=6, utilisation=_LEVEL, memory_bytes=None, power_w=None, temperature_c=None, ecc_uncorrected=None,
    xid=None, processes=None,
)  # fmt: skip
_USED = nodes.GpuUseOut(node="n1", index=0, uuid=None, gpu_type="h100", memory_bytes=None, points=[_POINT])
_USE = nodes.UseOut(start=NOON, end=NOON, step=60, simulated=True, gpus=[_USED])
_NOW = nodes.GpuNowOut(
    node="n1", index=0, gpu_type="h100", memory_bytes=2**36, state="held", simulated=True, sampled_at=NOON,
    holder={"id": "job-1", "user": "ann", "yours": True}, utilisation=0.5, memory_used_bytes=2**30, power_w=400,
    temperature_c=60, ecc_uncorrected=0, xid=None, processes=1,
)  # fmt: skip
_TOKEN = people.TokenOut(
    id="tok-1", user="ann", name=None, created_at=NOON, expires_at=None, revoked_at=None, last_used_at=None, scopes=[],
    made_with=None, session=False, budget=None,
)  # fmt: skip
_BOOKING = bookings.BookingOut(
    id="bkg-1", title=None, user="ann", project=None, status="confirmed", reason={"code": "booked", "detail": "Yours."},
    gpus=1, gpu_type="h100", nodes=1, node=None, start=NOON, end=NOON, duration=60, created_at=NOON, series_id=None,
    allocations=[], workload=None, jobs=[], used_at=None, release_at=None, offer_until=None, waits_until=None,
    auto_accept=False,
)  # fmt: skip
_RULE = policy.RuleOut(
    scope="default", user=None, project=None, gpu_type=None, rules={"max_gpus": 2, "max_duration": "P1Y35D"},
    from_file=False, version=1, changed_at=NOON, changed_by="ann",
)  # fmt: skip
_TARGET = notices.NoticeTargetCreated(
    id="ntg-1", user="ann", channel="webhook", name=None, address="https://example.org", status="ready",
    created_at=NOON, verified_at=None, delivered_at=None, failed_at=None, failure=None, secret="s",
)  # fmt: skip
_WINDOW = maintenance.MaintenanceOut(
    id="mnt-1", status="confirmed", gpus=[{"node": "n1", "index": 0}], start=NOON, end=NOON, reason="x",
    created_by="ann", created_at=NOON, finished_at=None, affected=[],
)  # fmt: skip
_KEY = sessions.SshKeyOut(
    id="key-1", user="ann", name=None, type="ssh-ed25519", fingerprint="SHA256:x", public_key="x", created_at=NOON,
    last_used_at=None,
)  # fmt: skip
_LINE = audit_log.ChainLineOut(
    position=1, previous="0" * 64, digest="a" * 64, event=None,
    missing={"id": 1, "at": NOON, "content": "b" * 64, "removed_by_retention": True},
)  # fmt: skip
_SPEC = jobs.JobSpec(
    name=None, gpus=2, gpu_type=None, nodes=1, duration=60, priority=0, booking_id=None, project=None,
    workload={"image": None, "command": ["x"], "env": {}, "working_dir": None},
)  # fmt: skip
_SIGNED_IN = sign_in.SignedIn(user="ann", role="user", token_id="tok-1", token="t", expires_at=NOON)
_SLOT = bookings.FreeSlotOut(gpu_type="h100", start=NOON, end=NOON, latest_start=NOON)
_SERIES = bookings.BookingSeries(series_id="ser-1", items=[_BOOKING], skipped=[])
_VERDICT = policy.Explanation(
    verdict="accepted", starts_at=NOON, reasons=[{"code": "waiting_for_gpus", "detail": "Later."}], allowed=True,
    kind="job", broken_rules=[], possible_from=None, limits=[_LIMIT], exceptions=[],
)  # fmt: skip
_START = jobs.JobVerdict(
    verdict="accepted", promised_start_at=NOON, estimated_start=None, queue_position=1, reasons=[],
    instead=[{"change": "fewer", "gpus": 1, "gpu_type": None, "nodes": 1, "duration": 60, "promised_start_at": NOON}],
)  # fmt: skip
_WAITS = simulations.SimulatedWaits(
    gpus=8, mean_s=60, median_s=60, p90_s=60, p99_s=60, longest_s=60, slowdown=1, used=0.5, broken=0, ahead_s=0,
    ahead_p90_s=0, refused_bookings=0, by_size=[], by_user=[], curve=[],
)  # fmt: skip
_SIMULATION = simulations.SimulationOut(
    answer="As today.", jobs=1, bookings=0, today=_WAITS, changed=_WAITS, left_out=[]
)


def _page(*items: Any) -> dict[str, Any]:
    return {"items": [item.model_dump(mode="json") for item in items], "next_cursor": None}


_ANSWERS = {
    "/v1/jobs": {"items": [_JOB], "next_cursor": None},
    "/v1/users/me": _USER.model_dump(mode="json"),
    "/v1/gpus": _page(_GPU),
    "/v1/gpus/use": _page(_NOW),
    "/v1/queue": {**_NONE, "totals": [{"gpu_type": None, "jobs": 1, "gpus": 2}]},
    "/v1/tokens": _page(_TOKEN),
    "/v1/policy/explain": _VERDICT.model_dump(mode="json"),
    "/v1/simulations": _SIMULATION.model_dump(mode="json"),
    "/v1/bookings/slots": _page(_SLOT),
    "/v1/bookings/bkg-1": _BOOKING.model_dump(mode="json"),
    "/v1/events/chain": _page(_LINE),
    "/v1/policy/default": _RULE.model_dump(mode="json"),
    "/v1/notifications/preferences": {"kinds": {"ended": ["email"]}},
    f"/v1/jobs/{_JOB['id']}/metrics": _USE.model_dump(mode="json"),
    f"/v1/jobs/{_JOB['id']}/spec": _SPEC.model_dump(mode="json"),
}

_FILES = {
    "job.json": '{"gpus": 4, "duration": "PT1H", "workload": {"command": ["sh", "-c", "a\\nb"], "env": {"A": "1"}}}',
    "key.pub": f"ssh-ed25519 {'A' * 68} ann@laptop\n",
    "token": "t\n",
    "id-token": "aaa.bbb.ccc\n",
}
_MADE = {
    "/v1/jobs": _JOB,
    "/v1/bookings": _BOOKING.model_dump(mode="json"),
    "/v1/users": _ANSWERS["/v1/users/me"],
    "/v1/tokens": {**_TOKEN.model_dump(mode="json"), "token": "secret"},
    "/v1/keys": _KEY.model_dump(mode="json"),
    "/v1/login": _SIGNED_IN.model_dump(mode="json"),
    "/v1/maintenance": _WINDOW.model_dump(mode="json"),
    "/v1/notifications/targets": _TARGET.model_dump(mode="json"),
}


class _Server(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        sent = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = urlsplit(self.path).path
        answer = _ANSWERS.get(path, _JOB if path.startswith("/v1/jobs/") else _NONE)
        answer = _MADE.get(path, answer) if self.command == "POST" else answer
        answer = _START.model_dump(mode="json") if self.path.endswith("?dry_run=true") else answer
        answer = _SERIES.model_dump(mode="json") if b'"recurrence"' in sent else answer
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PATCH = do_PUT = _answer  # noqa: N815 - the library's names

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Server) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def run_without(modules: tuple[str, ...], start: str, server: str, words: str, tmp_path: Path) -> None:
    """Run a command that can't import these modules, and expect an answer without complaints."""
    for name, text in _FILES.items():
        (tmp_path / name).write_text(text)
    program = f"import sys; sys.modules |= dict.fromkeys({modules}); {start}"
    command = [sys.executable, "-c", program, *words.format(job=_JOB["id"], folder=tmp_path).split()]
    environment = {"GPU_DEV_SERVER": server, "GPU_DEV_TOKEN": "t", "HOME": str(tmp_path)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, input="t\n")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout or words.startswith("scancel")
    assert "rror" not in ended.stderr


@pytest.mark.parametrize(
    "words",
    [
        "--help", "--version", "list", "list --limit 7 --status running -o json", "list -o yaml", "list -o wide",
        "status", "show {job}", "explain {job}", "explain --gpus 2 --for 1h", "gpus", "nodes", "queue", "book list",
        "submit --gpus 4 --for 1h --name x -e A=1 -- sleep 1", "submit --gpus 4 --for 1h --dry-run -- sleep 1",
        "submit --gpus 4 --for 1h --test-only -- sleep 1", "run --gpus 4 --for 1h --test-only -- sleep 1",
        "extend {job} --by 1h", "cancel {job}", "users me", "tokens list", "projects list", "policy list",
        "book create --gpus 1 --start 2030-01-31T09:00 --for 4h --title x", "users add bob", "notify targets",
        "explain --gpus 2 --start 2030-01-31T09:00 --for 4h", "maintenance list", "audit", "logs {job}",
        "config-ssh --dry-run", "book slots --gpus 1 --for 1h", "disk list", "secret list", "keys list",
        "book move bkg-1 --start 2030-01-31T09:00 --node n1", "book move bkg-1 --for 4h --title x",
        "book create --gpus 1 --start 2030-01-31T09:00 --for 4h --rrule FREQ=DAILY;COUNT=3",
        "book create --gpus 1 --start 2030-01-31T09:00 --for PT4H --node n1 --wait --auto-accept",
        "book move bkg-1 --any-node", "audit export", "submit --again {job} --for 1h",
        "submit --json-file {folder}/job.json",
        "submit --gpus 4 --for 1h --inactivity 30m --priority -5", "policy show default",
        "policy set default max_gpus=4 max_duration=7d cost_per_gpu_hour=2.50EUR cooldown=none",
        "policy set default priority=unlimited max_gpu_hours_per_week=0.5", "notify set ended=none",
        "notify add webhook https://example.org/hook --name x", "maintenance plan n1:0,2 --reason x --for 4h --yes",
        "maintenance plan n1 --reason x --start 2030-01-31T09:00 --end 2030-02-01T09:00 --yes",
        "tokens create --gpu-hours 5.5 --until 2030-01-31", "--token-file {folder}/token list",
        "login --oidc --id-token-file {folder}/id-token", "login --token-stdin",
        "login --kubernetes --service-account-token {folder}/id-token", "keys add {folder}/key.pub",
        "simulate --history 90d --add-nodes 2 --order area", "metrics {job} --last 2h",
        "top --once", "top --sort node -o json",
    ],
)  # fmt: skip
def test_what_is_heavy_is_not_needed(server: str, words: str, tmp_path: Path) -> None:
    run_without(HEAVY, _RUN, server, words, tmp_path)


@pytest.mark.parametrize(
    "words",
    ["list", "status", "show {job}", "submit --gpus 4 --for 1h -- a", "queue"],
)
def test_the_reading_of_typed_times_is_not_needed(server: str, words: str, tmp_path: Path) -> None:
    run_without(HEAVY + TYPED_TIMES, _RUN, server, words, tmp_path)
