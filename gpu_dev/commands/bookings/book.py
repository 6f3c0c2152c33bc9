"""`book create|list|show|extend|shorten|move|cancel|slots|waitlist|accept|decline|feed`."""

from collections.abc import Callable
from datetime import timedelta
from itertools import islice
from typing import Annotated, Any, TypeVar

import typer

from gpu_dev.calls.booking_calls import Reach
from gpu_dev.commands.bookings.lost_dates import dates_lost
from gpu_dev.commands.bookings.made_bookings import say_if_notified, show_booking, show_made
from gpu_dev.commands.bookings.possible_slots import check_possible
from gpu_dev.commands.jobs.job_options import Image, WorkingDir
from gpu_dev.display.calendar_views import (
    BOOKING,
    FEED,
    SLOT,
    WAITLIST,
    bookings_of,
)
from gpu_dev.display.local_times import local_time
from gpu_dev.display.output import Format, show_list, show_one
from gpu_dev.errors import AmbiguousIdError, ApiError, UsageError
from gpu_dev.inputs.asking import confirmed
from gpu_dev.inputs.durations import format_duration, parse_duration
from gpu_dev.inputs.machine_zone import local_now
from gpu_dev.inputs.requests import make_request, workload_fields
from gpu_dev.inputs.slots import recurrence_rule, slot_fields
from gpu_dev.inputs.times import parse_end, parse_instant, parse_new_end, parse_period, parse_time, zone_name
from gpu_dev.options import Output, Yes, Zone
from gpu_dev.session import booking_id_of, check_type, client_for
from gpu_dev.terminal import put, say
from gpu_dev.wire.bookings import (
    BookingChange,
    BookingCreate,
    BookingOut,
)
from reservation_core.domain.status_words import booking_status
from reservation_core.domain.statuses import BookingStatus

app = typer.Typer(no_args_is_help=True, add_completion=False)
T = TypeVar("T")

_COMMAND_LAST = {"allow_interspersed_args": False}
BookingIdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="A booking's id (`bkg-` may be left out) or title.")
]
OneOutput = Annotated[Format | None, typer.Option("--output", "-o", help="Output format.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show the result; nothing is booked or changed.")]
Gpus = Annotated[int, typer.Option("--gpus", "-g", min=1, help="GPUs on each node.")]
GpuType = Annotated[str | None, typer.Option("--type", "-t", help="The type, such as h100 (default: any).")]
Nodes = Annotated[int, typer.Option("--nodes", "-N", min=1, help="Number of nodes.")]
Node = Annotated[str | None, typer.Option("--node", help="On this node.")]
Series = Annotated[
    str | None,
    typer.Option(
        "--rrule",
        help='A series: "daily 5", "weekdays 10", "weekly 8", or as in RFC 5545: FREQ=WEEKLY;BYDAY=MO,WE;COUNT=8.',
    ),
]


@app.command(context_settings=_COMMAND_LAST)
def create(
    ctx: typer.Context,
    gpus: Gpus,
    start: Annotated[
        str, typer.Option("--start", "-s", help='When: "tomorrow 9am", "mon 14:30", now; "mon 9-17" says the end, too.')
    ],
    command: Annotated[list[str] | None, typer.Argument(metavar="COMMAND", help="Run this at its start.")] = None,
    duration: Annotated[str | None, typer.Option("--for", "-d", help="Duration: 4h, 90m, 2d.")] = None,
    end: Annotated[str | None, typer.Option("--end", help="Until when, instead of --for.")] = None,
    gpu_type: GpuType = None,
    nodes: Nodes = 1,
    node: Node = None,
    title: Annotated[str | None, typer.Option("--title", help="Its purpose.")] = None,
    project: Annotated[str | None, typer.Option("--project", "-p", help="For this project (default: none).")] = None,
    rrule: Series = None,
    skip: Annotated[
        bool, typer.Option("--skip-conflicts", help="Leave out dates of a series that are not available.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Join the waitlist if nothing is free.")] = False,
    auto_accept: Annotated[
        bool, typer.Option("--auto-accept", help="With --wait: book freed GPUs at once, without asking.")
    ] = False,
    env: Annotated[
        list[str] | None, typer.Option("--env", "-e", metavar="K=V", help="A variable of the command.")
    ] = None,
    image: Image = None,
    working_dir: WorkingDir = None,
    zone: Zone = None,
    dry_run: DryRun = False,
    output: OneOutput = None,
) -> None:
    """Book GPUs for a time slot, and print which.

    With a command after `--` it is started when the slot begins.
    """
    fields: dict[str, Any] = {
        "gpus": gpus,
        "gpu_type": None if gpu_type is None else gpu_type.lower(),
        "nodes": nodes,
        "node": node,
        "title": title,
        "project": project,
        "workload": workload_fields(command, env, image, working_dir),
        "recurrence": None
        if rrule is None
        else {"rrule": recurrence_rule(rrule), "on_conflict": "skip" if skip else "fail"},
        "wait": wait or None,
        "auto_accept": auto_accept or None,
    }

    def request() -> BookingCreate:
        asked = fields | slot_fields(start, end, duration, zone)
        return make_request(BookingCreate, {name: value for name, value in asked.items() if value is not None})

    with client_for(ctx) as client:
        book = client.bookings.would_book if dry_run else client.bookings.book
        made = _booked(book, request, starts_now=start.strip().lower() == "now")
        show_made(made, output)
        if output is None and isinstance(made, BookingOut):
            say_if_notified(client, made)


def _booked(book: Callable[[BookingCreate], T], request: Callable[[], BookingCreate], *, starts_now: bool) -> T:
    try:
        return book(request())
    except ApiError as refusal:
        if not starts_now or not _is_past(refusal):
            raise
        return book(request())  # the minute has turned on the way


@app.command("list")
def list_bookings(
    ctx: typer.Context,
    start: Annotated[
        str | None, typer.Option("--from", help="Only bookings that end after this time (default: now).")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", help="Only bookings that begin before this time (default: all).")
    ] = None,
    everybody: Annotated[bool, typer.Option("--all", "-a", help="All users' bookings, not only yours.")] = False,
    user: Annotated[str | None, typer.Option(help="Only this user's.")] = None,
    status: Annotated[
        list[BookingStatus] | None,
        typer.Option(help="Only in this status (may be repeated); `confirmed` is shown as booked."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Show at most this many, the earliest.")] = 200,
    zone: Zone = None,
    output: Output = Format.TABLE,
) -> None:
    """List your bookings by start; with --all the whole calendar."""
    begin, until = parse_period(start, end, local_now(), zone_name(zone))
    with client_for(ctx) as client:
        found = client.bookings.calendar(
            start=begin,
            end=until,
            statuses=status or (),
            user=user,
            mine=not everybody and user is None,
        )
        bookings = list(islice(found, limit + 1))
    if len(bookings) > limit:
        say(f"Only the first {limit} are shown; more with --limit.")
    put(show_list(bookings[:limit], bookings_of(user) if user or status or start or end else BOOKING, output))


@app.command()
def show(ctx: typer.Context, booking_id: BookingIdArgument, output: Output = Format.TABLE) -> None:
    """Show one booking."""
    with client_for(ctx) as client:
        booking = client.bookings.get(booking_id_of(client, booking_id))
        show_booking(booking, output)
        if output is Format.TABLE:
            say_if_notified(client, booking)


@app.command()
def extend(
    ctx: typer.Context,
    booking_id: BookingIdArgument,
    by: Annotated[str, typer.Option(help="How much longer, such as 1h or 90m.")],
    dry_run: DryRun = False,
    output: OneOutput = None,
) -> None:
    """Give a booking more time at its end."""
    _move_end(ctx, booking_id, parse_duration(by), output, dry_run=dry_run)


@app.command()
def shorten(
    ctx: typer.Context,
    booking_id: BookingIdArgument,
    by: Annotated[str, typer.Option(help="How much shorter, such as 1h or 90m.")],
    dry_run: DryRun = False,
    output: OneOutput = None,
) -> None:
    """Give back time at a booking's end."""
    _move_end(ctx, booking_id, -parse_duration(by), output, dry_run=dry_run)


@app.command()
def move(
    ctx: typer.Context,
    booking_id: BookingIdArgument,
    start: Annotated[str | None, typer.Option("--start", "-s", help="The new start.")] = None,
    end: Annotated[
        str | None,
        typer.Option(
            "--end",
            help="The new end. 18:00 is the first after the start; without --start, on the last day of several.",
        ),
    ] = None,
    duration: Annotated[str | None, typer.Option("--for", "-d", help="The new length.")] = None,
    node: Annotated[str | None, typer.Option("--node", help="On this node.")] = None,
    any_node: Annotated[bool, typer.Option("--any-node", help="On any node.")] = False,
    title: Annotated[str | None, typer.Option("--title", help="Its purpose.")] = None,
    zone: Zone = None,
    dry_run: DryRun = False,
    output: OneOutput = None,
) -> None:
    """Change a booking's time, node or title. If that is not possible, the old slot stays."""
    if node is not None and any_node:
        raise UsageError("--node pins it to a node, --any-node unpins it: give one of them.")
    name, now = zone_name(zone), local_now()
    fields: dict[str, Any] = {
        "start": None if start is None else parse_time(start, now, name),
        "end": end,
        "duration": None if duration is None else parse_duration(duration),
        "node": node,
        "title": title,
    }
    fields = {key: value for key, value in fields.items() if value is not None}
    if any_node:
        fields["node"] = None
    if not fields:
        raise UsageError("Say what to change: --start, --end, --for, --node, --any-node or --title.")
    if name is not None and (start is not None or end is not None):
        fields["time_zone"] = name
    with client_for(ctx) as client:
        whole = booking_id_of(client, booking_id)
        if end is not None:
            if start is None:
                booking = client.bookings.get(whole)
                fields["end"] = parse_new_end(end, booking.start, booking.end, now, name)
            else:
                fields["end"] = parse_end(end, parse_instant(start, now, name), now, name, start=start)
        act = client.bookings.would_change if dry_run else client.bookings.change
        show_booking(act(whole, make_request(BookingChange, fields)), output)


@app.command()
def cancel(
    ctx: typer.Context,
    booking_ids: Annotated[list[str], typer.Argument(metavar="ID", help="Bookings' ids or titles.")],
    following: Annotated[bool, typer.Option("--following", help="Of a series: these dates and those after.")] = False,
    series: Annotated[bool, typer.Option("--series", help="Of a series: all dates that are not over.")] = False,
    yes: Yes = False,
    output: OneOutput = None,
) -> None:
    """Cancel bookings: their remaining time is free at once, and jobs in them end.

    With --following or --series it shows the dates, and asks first.
    """
    if following and series:
        raise UsageError("Give one of --following and --series.")
    reach: Reach = "following" if following else "all" if series else "this"
    with client_for(ctx) as client:
        try:
            chosen = [booking_id_of(client, given, of_series=following or series) for given in booking_ids]
        except AmbiguousIdError as several:
            raise AmbiguousIdError(f"{several.detail} To cancel all dates of a series, add --series.") from several
        if reach != "this" and not yes:
            confirmed(dates_lost(client, chosen, reach), yes=yes)
        cancelled = [one for booking_id in chosen for one in client.bookings.cancel(booking_id, series=reach)]
    if output is not None:
        put(show_list(cancelled, BOOKING, output))
        return
    for one in cancelled:
        put(f"{one.id}: {booking_status(one.status)}\n")


@app.command()
def slots(
    ctx: typer.Context,
    gpus: Gpus,
    duration: Annotated[str, typer.Option("--for", "-d", help="Duration: 4h, 90m, 2d.")],
    gpu_type: GpuType = None,
    nodes: Nodes = 1,
    node: Node = None,
    start: Annotated[str | None, typer.Option("--from", help="From when (default: now).")] = None,
    end: Annotated[str | None, typer.Option("--to", help="Until when (default: 30 days later).")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Show at most this many, the earliest.")] = 20,
    zone: Zone = None,
    output: Output = Format.TABLE,
) -> None:
    """Find times at which the GPUs are free for that long. Rules and quotas are not checked.

    `gpu-dev explain --start` checks them for one time, and the calendar in the browser finds only what you may book.
    """
    begin, until = parse_period(start, end, local_now(), zone_name(zone))
    with client_for(ctx) as client:
        found = client.bookings.slots(
            gpus,
            parse_duration(duration),
            gpu_type=None if gpu_type is None else gpu_type.lower(),
            nodes=nodes,
            node=node,
            start=begin,
            end=until,
            limit=limit,
        )
        if not found and gpu_type is not None:
            check_type(client, gpu_type, (card.gpu_type for card in client.gpus()))
        if not found:
            check_possible(client, gpus, parse_duration(duration), gpu_type, nodes, node)
    put(show_list(found, SLOT, output))


@app.command()
def waitlist(
    ctx: typer.Context,
    everybody: Annotated[bool, typer.Option("--all", "-a", help="All users' requests (administrators).")] = False,
    output: Output = Format.TABLE,
) -> None:
    """List requests on the waitlist, and offers. Answer offers with `book accept` or `book decline`."""
    with client_for(ctx) as client:
        statuses = (BookingStatus.WAITING, BookingStatus.OFFERED)
        found = list(islice(client.bookings.calendar(statuses=statuses, mine=not everybody), 10_000))
    put(show_list(found, WAITLIST, output))


@app.command()
def accept(ctx: typer.Context, booking_id: BookingIdArgument, output: OneOutput = None) -> None:
    """Accept an offer of the waitlist."""
    with client_for(ctx) as client:
        show_booking(client.bookings.accept(booking_id_of(client, booking_id)), output)


@app.command()
def decline(ctx: typer.Context, booking_id: BookingIdArgument, output: OneOutput = None) -> None:
    """Decline an offer: the next on the waitlist gets it."""
    with client_for(ctx) as client:
        show_booking(client.bookings.decline(booking_id_of(client, booking_id)), output)


@app.command()
def feed(
    ctx: typer.Context,
    drop: Annotated[bool, typer.Option("--drop", help="Remove the address; asks first.")] = False,
    yes: Yes = False,
    output: OneOutput = None,
) -> None:
    """Make a private calendar address (iCalendar) of your bookings; an earlier address stops working."""
    with client_for(ctx) as client:
        if drop:
            confirmed("Remove your calendar's address? Calendar programs that read it get nothing more.", yes=yes)
            client.bookings.drop_feed()
            say("Your calendar has no address any more.")
            return
        made = client.bookings.make_feed()
        server = client.server
    if made.path is None:
        raise UsageError("The answer was lost on its way. Make another address.", next_command="gpu-dev book feed")
    if output is not None:
        put(show_one(made, FEED, output))
        return
    end = "" if made.expires_at is None else f", at {local_time(made.expires_at)} at the latest"
    say(f"Anyone with this address can read your calendar. It is not shown again, and ends with your token{end}.")
    put(f"{server.rstrip('/')}{made.path}\n")


def _is_past(refusal: ApiError) -> bool:
    return any(rule.code == "past_start" for rule in refusal.problem.broken_rules or ())


def _move_end(ctx: typer.Context, booking_id: str, by: timedelta, output: Format | None, *, dry_run: bool) -> None:
    with client_for(ctx) as client:
        whole = booking_id_of(client, booking_id)
        booking, tag = client.bookings.get_with_etag(whole)
        length = booking.duration + by
        if length <= timedelta(0):
            raise UsageError(
                f"{whole} lasts {format_duration(booking.duration)}: cancel it to give all of it back.",
                next_command=f"gpu-dev book cancel {whole}",
            )
        # What the end is counted from must still be so: a second try after a lost answer must not extend twice.
        act = client.bookings.would_change if dry_run else client.bookings.change
        show_booking(act(whole, BookingChange(duration=length), if_match=tag), output)
