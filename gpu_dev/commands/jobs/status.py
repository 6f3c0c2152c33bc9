"""`status`, and `gpu-dev` alone: one's jobs, bookings and quota, and what ends soon."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import islice

import typer
from msgspec import Struct

from gpu_dev.client import GpuDevClient
from gpu_dev.display.calendar_views import BOOKING, is_over, limit_of
from gpu_dev.display.local_times import local_time
from gpu_dev.display.output import Column, Format, View, amount, coloured, show_list, show_one
from gpu_dev.display.views import JOB
from gpu_dev.errors import ExitCode
from gpu_dev.following import place_note
from gpu_dev.inputs.durations import format_duration
from gpu_dev.inputs.machine_zone import local_now
from gpu_dev.options import Output
from gpu_dev.session import OPEN_BOOKINGS, client_for, connection_of
from gpu_dev.terminal import Rendered, harmless, put, say
from gpu_dev.wire.bookings import BookingOut
from gpu_dev.wire.jobs import Job
from gpu_dev.wire.policy import ExplainRequest, LimitOut
from reservation_core.domain.policy.nouns import QUOTAS, RuleName
from reservation_core.domain.statuses import FINAL_STATUSES, BookingStatus, JobStatus

app = typer.Typer(add_completion=False)

_SOON = timedelta(hours=24)
_MOST = 20
_MOST_TYPES = 5
_QUOTA_WORDS = {
    RuleName.MAX_GPUS: "GPUs at once",
    RuleName.MAX_GPU_HOURS_PER_WEEK: "GPU-hours in the fullest week",
    RuleName.MAX_OPEN_BOOKINGS: "open bookings",
}


class Overview(Struct, kw_only=True):
    """What a user has at a server now."""

    user: str
    server: str
    jobs: list[Job]
    bookings: list[BookingOut]
    quotas: list[LimitOut]


_OVERVIEW = View[Overview](name=lambda seen: seen.user, columns=(Column("USER", lambda seen: seen.user),))


@app.command()
def status(ctx: typer.Context, output: Output = Format.TABLE) -> None:
    """Show your jobs, bookings and quota, and what ends soon."""
    with client_for(ctx) as client:
        seen = overview_of(client)
    put(as_text(seen, local_now()) if output in (Format.TABLE, Format.WIDE) else show_one(seen, _OVERVIEW, output))


def begin(ctx: typer.Context) -> None:
    """What `gpu-dev` alone shows: the status, or the help where there is no token yet."""
    if connection_of(ctx).token is None:
        put(Rendered(f"{ctx.get_help()}\n"))
        say("You are not signed in. Begin with: gpu-dev login SERVER")
        raise typer.Exit(ExitCode.USAGE)
    with client_for(ctx) as client:
        put(as_text(overview_of(client), local_now()))
    say("All commands: gpu-dev --help")


def overview_of(client: GpuDevClient) -> Overview:
    """Ask the server for all of it; of jobs and bookings the first few."""
    me = client.me().name
    jobs = list(islice(client.jobs(frozenset(JobStatus) - FINAL_STATUSES, user=me), _MOST + 1))
    bookings = list(islice(client.bookings.calendar(statuses=OPEN_BOOKINGS, mine=True), _MOST + 1))
    types = {job.gpu_type for job in jobs} | {booking.gpu_type for booking in bookings}
    quotas = _quotas(client, sorted(filter(None, types))[:_MOST_TYPES])
    return Overview(user=me, server=client.server, jobs=jobs, bookings=bookings, quotas=quotas)


def _quotas(client: GpuDevClient, types: Iterable[str]) -> list[LimitOut]:
    """Each quota once, for any type and for these. All of them hold for bookings, those of jobs as well."""
    # A booking begins on a whole minute. What ended in this one is still in its sum, but not in the next one's.
    start = (local_now() + timedelta(minutes=1)).isoformat(timespec="minutes")
    found = {
        (limit.rule, limit.scope): limit
        for gpu_type in (None, *types)
        for limit in client.policy.explain(
            ExplainRequest(gpus=1, gpu_type=gpu_type, start=start, duration=timedelta(minutes=1))
        ).limits
        if limit.rule in QUOTAS
    }
    return list(found.values())


def as_text(seen: Overview, now: datetime) -> Rendered:
    """The overview for people."""
    parts = [harmless(f"{seen.user} at {seen.server}\n")]
    if seen.jobs:
        parts.append(_titled("Jobs", show_list(seen.jobs[:_MOST], JOB, Format.TABLE), len(seen.jobs), "gpu-dev list"))
        parts.append(place_note(seen.jobs[:_MOST], Format.TABLE))
    else:
        parts.append("\nNo jobs wait or run. Start one: gpu-dev run --gpus 1 --for 1h -- python train.py\n")
    if seen.bookings:
        table = show_list(seen.bookings[:_MOST], BOOKING, Format.TABLE)
        parts.append(_titled("Bookings", table, len(seen.bookings), "gpu-dev book list"))
    quotas = "".join(f"  {_quota_line(limit)}\n" for limit in seen.quotas)
    if quotas:
        parts.append(f"\nQuota\n{quotas}")
    endings = "".join(f"  {line}\n" for line in _ending_soon(seen, now))
    if endings:
        parts.append(harmless(f"\nEnds within a day\n{endings}"))
    return Rendered("".join(parts))


def _titled(title: str, table: str, count: int, more: str) -> str:
    return f"\n{title}\n{table}" + (f"  more: {more}\n" if count > _MOST else "")


def _quota_line(limit: LimitOut) -> Rendered:
    words = _QUOTA_WORDS[RuleName(limit.rule)]
    limited = words if limit.value is None else f"of {limit_of(limit)} {words}"
    ending = ", no limit" if limit.value is None else ", over" if is_over(limit) else ""
    return Rendered(coloured(f"{amount(limit.used or 0)} {limited}{ending}") + harmless(f" ({limit.scope})"))


def _ending_soon(seen: Overview, now: datetime) -> Iterator[str]:
    """What ends within a day, the first first, with the command that prolongs it."""
    jobs = []
    for job in seen.jobs:
        release_at = None if job.idle is None else job.idle.release_at
        if release_at is not None and (job.ends_at is None or release_at < job.ends_at):
            at = local_time(release_at)
            yield f"{job.id} ends at {at} if its GPUs are still idle then. Keep it: gpu-dev keep {job.id}"
        elif job.ends_at is not None:
            jobs.append((job.ends_at, job.id, "gpu-dev extend"))
    bookings = [(one.end, one.id, "gpu-dev book extend") for one in seen.bookings if one.status is BookingStatus.ACTIVE]
    for end, of, command in sorted(jobs + bookings):
        if end <= now + _SOON:
            minutes = (end - now) // timedelta(minutes=1)
            left = f"about {format_duration(timedelta(minutes=minutes))}" if minutes > 0 else "less than 1m"
            yield f"{of} ends at {local_time(end)}, in {left}. Longer: {command} {of} --by 1h"
