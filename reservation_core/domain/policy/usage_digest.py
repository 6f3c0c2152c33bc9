"""The weekly digest of a project: what it held, used and wasted, and what would have been enough. Weeks are of UTC."""

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from reservation_core.domain.gpu_use.figures import memory_figure
from reservation_core.domain.policy.usage import GpuTime, UsedGpus

WEEK = timedelta(days=7)
_AFTER = timedelta(hours=2)
"""How long after its end a week is summed up: samples come late, and hours are rolled up when they are over."""
_HOUR = Decimal(3600)


def week_to_sum_up(now: datetime) -> datetime:
    """The begin of the newest week of which all is known."""
    at = now - _AFTER
    monday = at.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=at.weekday())
    return monday - WEEK


def digest_of(time: GpuTime, used: UsedGpus, week: datetime) -> dict[str, Any]:
    """A project's week as plain data; what no sample says is null."""
    enough = None if used.utilised is None else float(time.used / _HOUR) * used.utilised
    return {
        "week": week.date().isoformat(),
        "held_gpu_hours": _hours(time.held),
        "used_gpu_hours": _hours(time.used),
        "idle_gpu_hours": _hours(time.idle),
        "wasted_gpu_hours": _hours(time.wasted),
        "utilised": None if used.utilised is None else round(used.utilised, 4),
        "memory_peak": used.memory_peak,
        "enough_gpu_hours": None if enough is None else round(enough, 2),
    }


def digest_words(subject: str | None, data: Mapping[str, Any]) -> tuple[str, str, str]:
    """The title of a project's digest, the figures, and where there is more."""
    title = f"Project {(subject or '').removeprefix('project:')}"
    held, used, idle, wasted = (
        f"{data.get(f'{name}_gpu_hours', 0):.1f}" for name in ("held", "used", "idle", "wasted")
    )
    happened = (
        f"In the week from {data.get('week')} it held {held} GPU-hours and used {used}: {idle} were idle, of which"
        f" {wasted} were wasted."
    )
    utilised, enough, peak = (data.get(name) for name in ("utilised", "enough_gpu_hours", "memory_peak"))
    if utilised is None or enough is None:
        busy = "There is no data on how busy its GPUs were."
    else:
        memory = "" if peak is None else f", with at most {memory_figure(peak, None)} of memory in use on one"
        busy = (
            f"While jobs had them, its GPUs were {utilised:.0%} utilised{memory}: about {enough:.1f} GPU-hours of busy"
            " GPUs would have been enough."
        )
    return title, f"{happened} {busy}", f"Details: `gpu-dev usage --by project{_of_week(data.get('week'))}`."


def _of_week(week: str | None) -> str:
    """The options for the digest's week, not the one in which it is read."""
    if week is None:
        return ""
    return f" --from {week} --to {date.fromisoformat(week) + WEEK} -z UTC"


def _hours(seconds: Decimal) -> float:
    return round(float(seconds / _HOUR), 2)
