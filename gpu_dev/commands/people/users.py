"""`users list|add|disable|enable|me`."""

from collections.abc import Iterable
from itertools import islice
from typing import Annotated

import typer

from gpu_dev.client import GpuDevClient
from gpu_dev.display.local_times import local_time
from gpu_dev.display.output import Column, Format, View, show_list, show_one
from gpu_dev.display.views import USER
from gpu_dev.inputs.asking import confirmed
from gpu_dev.inputs.ids import require_known
from gpu_dev.inputs.requests import make_request
from gpu_dev.options import Output, Yes
from gpu_dev.session import client_for
from gpu_dev.terminal import put
from gpu_dev.wire.people import BelongingOut, UserCreate
from reservation_core.domain.status_words import subject_status
from reservation_core.domain.statuses import BookingStatus, JobStatus, Role

app = typer.Typer(no_args_is_help=True, add_completion=False)
_MOST = 100_000
_COUNTED = 1000
_WAITING_JOBS = (JobStatus.QUEUED,)
_RUNNING_JOBS = (JobStatus.STARTING, JobStatus.RUNNING, JobStatus.ENDING)
_WAITING_BOOKINGS = (BookingStatus.WAITING, BookingStatus.OFFERED)
_BOOKED = (BookingStatus.CONFIRMED, BookingStatus.ACTIVE)
UserName = Annotated[str, typer.Argument(metavar="NAME", help="A user's name.")]
_LEFT = View[BelongingOut](
    name=lambda thing: thing.id,
    columns=(
        Column("ID", lambda thing: thing.id),
        Column("NAME", lambda thing: thing.name or ""),
        Column("STATUS", lambda thing: subject_status(thing.id, thing.status)),
        Column("STARTS", lambda thing: local_time(thing.starts_at)),
        Column("ENDS", lambda thing: local_time(thing.ends_at)),
    ),
    empty="Nothing.",
)


@app.command("list")
def list_users(ctx: typer.Context, output: Output = Format.TABLE) -> None:
    """List users (administrators)."""
    with client_for(ctx) as client:
        put(show_list(list(islice(client.users(), _MOST)), USER, output))


@app.command()
def add(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A short name or an e-mail address.")],
    role: Annotated[
        Role, typer.Option(help="What the user may do. It stays: another role needs another user.")
    ] = Role.USER,
    output: Annotated[Format | None, typer.Option("--output", "-o", help="Output format.")] = None,
) -> None:
    """Add a user (administrators). Then create a token for them."""
    with client_for(ctx) as client:
        user = client.create_user(make_request(UserCreate, {"name": name, "role": role}, name="NAME"))
    if output is not None:
        put(show_one(user, USER, output))
    else:
        put(f"{user.name} added. A token for them: gpu-dev tokens create --user {user.name}\n")


@app.command()
def disable(
    ctx: typer.Context,
    name: UserName,
    end: Annotated[bool, typer.Option("--end", help="End the user's running jobs and bookings, too.")] = False,
    yes: Yes = False,
) -> None:
    """Disable a user (administrators): their tokens stop working, and nothing new of theirs starts.

    It asks first, and counts their waiting jobs and requests, which are cancelled, and their running jobs and bookings.
    These go on and are listed; --end ends them, too.
    """
    with client_for(ctx) as client:
        if not yes:
            users = {user.name: user for user in islice(client.users(), _MOST)}
            require_known(name, users, "user", "gpu-dev users list")
            if users[name].disabled_at is None:
                confirmed(_question(client, name, end=end), yes=yes)
            elif end and (running := _counts(client, name, waiting=False)):
                confirmed(f"{name} is disabled already. End what goes on of {name} ({running})?", yes=yes)
        found = client.disable_user(name, end=end)
    what = "jobs, bookings and requests" if end else "waiting jobs and requests"
    cancelled = f"; {what} cancelled: {found.cancelled}" if found.cancelled else ""
    put(f"{name} is disabled{cancelled}\n")
    if found.left_in_all:
        put(f"Left: {found.left_in_all}\n")
        put(show_list(found.left, _LEFT, Format.TABLE))
    if found.left_in_all and not end:
        put(f"End all of it: gpu-dev users disable {name} --end\n")


def _question(client: GpuDevClient, name: str, *, end: bool) -> str:
    waiting, running = _counts(client, name, waiting=True), _counts(client, name, waiting=False)
    cancelled = f"waiting jobs and requests are cancelled ({waiting}); " if waiting else ""
    kept = f"running jobs and bookings {'end' if end else 'go on'}{f' ({running})' if running else ''}"
    return f"Disable {name}? Their tokens stop working; {cancelled}{kept}."


def _counts(client: GpuDevClient, name: str, *, waiting: bool) -> str:
    """How many jobs and bookings of theirs wait, or run or are booked, counted up to a bound; empty: none."""
    jobs = client.jobs(_WAITING_JOBS if waiting else _RUNNING_JOBS, user=name)
    bookings = client.bookings.calendar(statuses=_WAITING_BOOKINGS if waiting else _BOOKED, user=name)
    words = [_counted(jobs, "job"), _counted(bookings, "request" if waiting else "booking")]
    return " and ".join(filter(None, words))


def _counted(found: Iterable[object], word: str) -> str:
    number = sum(1 for _ in islice(found, _COUNTED))
    more = " or more" if number == _COUNTED else ""
    return f"{number}{more} {word if number == 1 else f'{word}s'}" if number else ""


@app.command()
def enable(ctx: typer.Context, name: UserName) -> None:
    """Enable a disabled user (administrators): tokens that were not revoked work again."""
    with client_for(ctx) as client:
        user = client.enable_user(name)
    put(f"{user.name} is enabled. To end their old tokens: gpu-dev tokens revoke --all --user {user.name}\n")


@app.command()
def me(ctx: typer.Context, output: Output = Format.TABLE) -> None:
    """Show your user name and role."""
    with client_for(ctx) as client:
        put(show_one(client.me(), USER, output))
