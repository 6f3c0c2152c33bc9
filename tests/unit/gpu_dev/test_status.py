"""The quotas that `status` shows."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpu_dev.client import GpuDevClient
from gpu_dev.commands.jobs.status import Overview, as_text, overview_of
from gpu_dev.display.views import TOKEN
from gpu_dev.wire.people import TokenBudgetOut, TokenOut
from gpu_dev.wire.policy import ExplainRequest, LimitOut
from tests.unit.gpu_dev.examples import a_job

TYPES = ["a100", "b200", "h100", "h200", "l40s", "t4", "v100"]


class Server:
    """A server that knows one quota of all GPUs and one of each type; the user has a job on each of seven types."""

    server = "http://here"

    def __init__(self) -> None:
        self.asked: list[str | None] = []
        self.starts: list[datetime] = []
        self.policy = self
        self.bookings = SimpleNamespace(calendar=lambda **_: [])

    def me(self) -> Any:
        return SimpleNamespace(name="alice")

    def jobs(self, *_: object, **__: object) -> Any:
        return (a_job(gpu_type=gpu_type) for gpu_type in TYPES)

    def explain(self, request: ExplainRequest) -> Any:
        self.asked.append(request.gpu_type)
        self.starts.append(datetime.fromisoformat(str(request.start)))
        scopes = ["default", *([] if request.gpu_type is None else [f"gpu_type:{request.gpu_type}"])]
        return SimpleNamespace(limits=[LimitOut(rule="max_gpus", value=2, used=1, scope=scope) for scope in scopes])


def test_quotas_of_held_types_are_asked_for_up_to_five_and_shown_once() -> None:
    server = Server()
    seen = overview_of(cast("GpuDevClient", server))
    assert server.asked == [None, *TYPES[:5]]
    assert [quota.scope for quota in seen.quotas] == ["default", *(f"gpu_type:{name}" for name in TYPES[:5])]


def test_what_has_ended_in_this_minute_does_not_count() -> None:
    server, now = Server(), datetime.now(UTC)
    overview_of(cast("GpuDevClient", server))
    assert all(now < start <= datetime.now(UTC) + timedelta(minutes=1) for start in server.starts)


def test_an_end_is_said_once_for_a_job_whose_gpus_are_idle() -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    idle = {"since": now, "warned_at": now, "release_at": now + timedelta(minutes=30)}
    job = a_job(status="running", ends_at=now + timedelta(hours=2), idle=idle)
    lines = as_text(Overview(user="a", server="s", jobs=[job], bookings=[], quotas=[]), now).partition(
        "Ends within a day"
    )[2]
    assert f"{job.id} ends at " in lines
    assert lines.count(" ends at ") == 1
    assert f"if its GPUs are still idle then. Keep it: gpu-dev keep {job.id}" in lines


@pytest.mark.parametrize(
    ("seconds", "words"), [(-1, "less than 1m"), (44, "less than 1m"), (60, "about 1m"), (5459, "about 1h30m")]
)
def test_an_end_is_said_with_the_minutes_that_are_left(seconds: int, words: str) -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    job = a_job(status="running", ends_at=now + timedelta(seconds=seconds))
    said = as_text(Overview(user="a", server="s", jobs=[job], bookings=[], quotas=[]), now)
    assert f", in {words}. Longer: gpu-dev extend {job.id} --by 1h" in said


def status_of(**limit: Any) -> str:
    """What `status` prints for one quota."""
    quota = LimitOut(rule="max_gpus", scope="default", **limit)
    return as_text(
        Overview(user="a", server="s", jobs=[], bookings=[], quotas=[quota]), datetime(2030, 1, 1, tzinfo=UTC)
    )


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ({"value": 6, "used": 9}, "9 of 6 GPUs at once, over (default)"),
        ({"value": 6, "used": 6}, "6 of 6 GPUs at once (default)"),
        ({"value": 2.5, "used": 1 / 3}, "0.33 of 2.5 GPUs at once (default)"),
        ({"value": None, "used": 9}, "9 GPUs at once, no limit (default)"),
    ],
)
def test_a_quota_is_said_in_rounded_numbers(limit: dict[str, Any], words: str) -> None:
    assert f"  {words}\n" in status_of(**limit)


def test_a_quota_that_is_passed_is_red_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[31m9 of 6 GPUs at once, over\x1b[0m (default)" in status_of(value=6, used=9)
    assert "\x1b[31m" not in status_of(value=6, used=6)


def test_a_budget_is_said_in_rounded_numbers_and_when_it_is_passed() -> None:
    budgets = [TokenBudgetOut(gpu_hours=2, until=None, used_gpu_hours=used, token="tok-1") for used in (1 / 3, 2.25)]
    [column] = [column for column in TOKEN.columns if column.title == "BUDGET"]
    said = [column.value(cast("TokenOut", SimpleNamespace(budget=budget))) for budget in budgets]
    assert said == ["0.33 of 2 GPU-hours", "2.25 of 2 GPU-hours, over"]
