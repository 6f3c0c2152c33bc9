"""`audit`: the audit log; `audit export`: all of it, to keep it elsewhere; `audit verify`: whether it was changed."""

import dataclasses
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from http import HTTPStatus
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec.structs import asdict

from gpu_dev.client import GpuDevClient
from gpu_dev.display.local_times import local_sentence, local_time
from gpu_dev.display.output import Column, Format, View, as_json, show_list
from gpu_dev.errors import AmbiguousIdError, ApiError, ClientError, NoSuchObjectError, NotOwnJobError, UsageError
from gpu_dev.inputs.ids import SEARCHED
from gpu_dev.inputs.machine_zone import local_now
from gpu_dev.inputs.times import parse_period, zone_name
from gpu_dev.options import Output, Zone
from gpu_dev.session import client_for, whole_id
from gpu_dev.terminal import Rendered, put, say
from gpu_dev.wire.audit_log import ChainLineOut as SentLine
from gpu_dev.wire.audit_log import EventOut
from reservation_core.domain.event_kinds import all_kinds, near_kinds, unknown_kind_words
from reservation_core.domain.history.audit_chain import AuditedEvent, ChainCheck, ChainLine, MissingEvent, exact
from reservation_core.domain.history.event_words import kind_named, kind_words
from reservation_core.domain.status_words import subject_status
from reservation_core.domain.statuses import Role

app = typer.Typer(add_completion=False)
_LONGEST_LINE = 16 * 2**20
_SHOWN = 10
_NOTED = re.compile(r"([0-9]{1,18}):([0-9a-f]{64})")


def _became(event: EventOut) -> str:
    def words(status: str | None) -> str:
        return "-" if status is None else subject_status(event.subject, status)

    return "" if event.before == event.after else f"{words(event.before)} -> {words(event.after)}"


_EVENT = View[EventOut](
    name=lambda event: str(event.id),
    columns=(
        Column("AT", lambda event: local_time(event.at)),
        Column("ACTOR", lambda event: event.actor),
        Column("WHAT", lambda event: kind_words(event.kind)),
        Column("ABOUT", lambda event: event.subject or ""),
        Column("BECAME", _became),
        Column("WHY", lambda event: local_sentence(event.reason or "")),
        Column("MORE", lambda event: json.dumps(event.data, ensure_ascii=False) if event.data else "", wide=True),
    ),
    empty="No event matches.",
)


Kinds = Annotated[
    list[str] | None,
    typer.Option(help="Only this kind of event, such as node_fenced or 'node fenced' (may be repeated)."),
]
Actor = Annotated[str | None, typer.Option(help="Only what this user did; `system` is the server.")]
Subject = Annotated[
    str | None, typer.Option(help="Only about this: an id, a node, user:NAME, project:NAME, policy:SCOPE.")
]
From = Annotated[str | None, typer.Option("--from", help="Only from this time on (default: the first event).")]
To = Annotated[str | None, typer.Option("--to", help="Only before this time (default: now).")]
ChainedFrom = Annotated[
    str | None, typer.Option("--from", help="Only what was chained from this time on (default: the first event).")
]
ChainedTo = Annotated[str | None, typer.Option("--to", help="Only what was chained before this time (default: now).")]


@app.callback(invoke_without_command=True)
def audit(
    ctx: typer.Context,
    kind: Kinds = None,
    actor: Actor = None,
    subject: Subject = None,
    start: From = None,
    end: To = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Show at most this many.")] = 100,
    oldest_first: Annotated[bool, typer.Option("--oldest-first", help="Show the oldest first.")] = False,
    zone: Zone = None,
    output: Output = Format.TABLE,
) -> None:
    """Show who did what to what, when and why, newest first unless --oldest-first is given.

    Administrators see all events; other users need --subject with something of their own.
    """
    if ctx.invoked_subcommand is not None:
        return
    begin, until = _period(start, end, zone)
    kind = [kind_named(one) for one in kind or ()]
    unknown = [one for one in kind if one not in all_kinds()]
    if mistyped := [one for one in unknown if near_kinds(one)]:
        raise UsageError(unknown_kind_words(mistyped[0]))
    with client_for(ctx) as client:

        def listed(about: str | None) -> list[EventOut]:
            found = client.record.listed(
                oldest_first=oldest_first, kinds=kind, actor=actor, subject=about, start=begin, end=until
            )
            return list(islice(found, limit + 1))

        try:
            events = listed(subject)
        except ApiError as refusal:
            meant = None if refusal.problem.status != HTTPStatus.NOT_FOUND else _meant(client, subject)
            if meant is None:
                raise
            events = listed(meant)
        else:
            meant = None if events else _meant(client, subject)
            events = events if meant is None else listed(meant)
    if unknown and not events:  # a server of another version could have had some
        raise UsageError(f"{unknown_kind_words(unknown[0])} `gpu-dev audit` shows what there is.")
    if len(events) > limit:
        say(f"Only the {'oldest' if oldest_first else 'newest'} {limit} are shown; more with --limit.")
    put(show_list(events[:limit], _EVENT, output))


def _meant(client: GpuDevClient, subject: str | None) -> str | None:
    """What a name stands for: a node, a user, a project, or a job, whose id it is then; None for what is no name.

    Raises AmbiguousIdError where several have this name.
    """
    if subject is None or ":" in subject:
        return None
    me = client.me()
    subject = me.name if subject == "me" else subject
    if me.role is Role.ADMIN:
        if subject in (node.name for node in client.nodes()):
            return subject
        named = [f"user:{subject}"] if _is_there(client.user, subject) else []
        named += [f"project:{subject}"] if _is_there(client.policy.project, subject) else []
    else:
        named = [f"user:{me.name}"] if subject == me.name else []
    if not named:
        return _job_named(client, subject)
    named += [job.id for job in islice(client.jobs(), SEARCHED) if job.name == subject]
    if len(named) > 1:
        raise AmbiguousIdError(f"Several are named {subject}: {', '.join(named[:_SHOWN])}. Give one of them.")
    say(f"{subject} is {named[0]}.")
    return named[0]


def _is_there(look_at: Callable[[str], object], name: str) -> bool:
    try:
        look_at(name)
    except ApiError as error:
        if error.problem.status != HTTPStatus.NOT_FOUND:
            raise
        return False
    return True


def _job_named(client: GpuDevClient, subject: str) -> str | None:
    """The id of the job with this name; None without one."""
    try:
        return whole_id(client, subject)
    except NotOwnJobError:
        raise
    except NoSuchObjectError:
        return None


@app.command()
def export(
    ctx: typer.Context,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Write to this file instead of stdout.")] = None,
    start: ChainedFrom = None,
    end: ChainedTo = None,
    zone: Zone = None,
) -> None:
    """Write the audit log as JSON lines with its digests, in the order of its chain, oldest first (administrators).

    `audit verify FILE` checks it, without a server. Exports of consecutive times form one chain. Old events are
    removed, by default after 400 days: export a month with --from and --to before that.
    """
    begin, until = _period(start, end, zone)
    with client_for(ctx) as client:
        found = client.record.chain(start=begin, end=until)
        check = ChainCheck()
        written = _checked(found, check)
        if file is None:
            for line in written:
                put(line)
        else:
            count = _write_whole(file, written)
            say(f"{count} {'line is' if count == 1 else 'lines are'} in {file}.")
    if check.head is not None:
        say(f"The last digest, to note elsewhere: {_noted_text(check.head)}")


@app.command()
def verify(
    ctx: typer.Context,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Exported files, the oldest first. Without: the server's log."),
    ] = None,
    noted: Annotated[
        str | None,
        typer.Option(metavar="POSITION:DIGEST", help="A digest noted earlier: it has to be in the chain."),
    ] = None,
) -> None:
    """Check that no event was changed, removed or inserted since it was chained (administrators).

    With files no server is asked. Someone who can write to the database could make a new chain: note a digest
    elsewhere now and then, and check with --noted that it is still in the chain.
    """
    check = ChainCheck(None if noted is None else _noted(noted))
    if files:
        for line in _lines_of(files):
            check.take(line)
        check.finish()
        _report(check, None)
        return
    with client_for(ctx) as client:
        for sent in client.record.chain():
            check.take(line_of(sent))
        standing = client.record.chain_head()
    check.finish()
    _report(check, standing.unchained_since)


def _report(check: ChainCheck, unchained_since: datetime | None) -> None:
    """Say what was found. Raises ClientError where something was."""
    if check.head is not None:
        put(f"{check.events} events are at positions {check.first} to {check.head[0]}.\n")
        put(f"The last digest, to note elsewhere: {_noted_text(check.head)}\n")
    else:
        put("No event is chained yet.\n")
    if check.removed:
        put(f"{check.removed} events were removed by retention; their digests are still checked.\n")
    if unchained_since is not None:
        put(f"Some events since {local_time(unchained_since)} are not chained yet. Try again in a moment.\n")
    if not check.count:
        put("The chain is whole.\n")
        return
    for problem in check.problems:
        put(f"{problem}\n")
    raise ClientError(
        f"The audit log was changed; problems shown above: {len(check.problems)} of {check.count}."
        " Compare with an earlier export.",
    )


def _checked(found: Iterable[SentLine], check: ChainCheck) -> Iterator[Rendered]:
    """Lines to be written; what is checked tells the last digest."""
    for sent in found:
        line = line_of(sent)
        check.take(line)
        yield as_json(as_document(line))


def as_document(line: ChainLine) -> dict[str, Any]:
    """A line as REST has it, with its times as exact as they are hashed."""
    document = dataclasses.asdict(line)
    for part in (document["event"], document["missing"]):
        if part is not None:
            part["at"] = exact(part["at"])
    return document


def line_of(sent: SentLine) -> ChainLine:
    """A line as the chain's check takes it."""
    event = None if sent.event is None else AuditedEvent(**asdict(sent.event))
    missing = None if sent.missing is None else MissingEvent(**asdict(sent.missing))
    return ChainLine(sent.position, sent.previous, sent.digest, event, missing)


def _lines_of(files: Iterable[Path]) -> Iterator[ChainLine]:
    for file in files:
        try:
            with file.open(encoding="utf-8") as reading:
                for number, text in enumerate(iter(lambda: reading.readline(_LONGEST_LINE), ""), 1):
                    yield _line(file, number, text)
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            raise UsageError(f"{file} could not be read: {reason}.") from error


def _line(file: Path, number: int, text: str) -> ChainLine:
    from pydantic import ValidationError

    from reservation_core.contracts.audit_log import ChainLineOut

    try:
        return ChainLineOut.model_validate_json(text).line()
    except ValidationError as error:
        raise ClientError(
            f"Line {number} of {file} is not a line that `audit export` writes. Compare with another copy of the file."
        ) from error


def _noted(text: str) -> tuple[int, str]:
    match = _NOTED.fullmatch(text)
    if match is None:
        raise UsageError("--noted takes POSITION:DIGEST as `audit verify` and `audit export` print it.")
    return int(match[1]), match[2]


def _noted_text(head: tuple[int, str]) -> str:
    return f"{head[0]}:{head[1]}"


def _period(start: str | None, end: str | None, zone: str | None) -> tuple[datetime | None, datetime | None]:
    return parse_period(start, end, local_now(), zone_name(zone), past=True)


def _write_whole(file: Path, lines: Iterable[str]) -> int:
    """Write lines into a file that is only there once all of them are; returns how many."""
    unfinished = file.with_name(f"{file.name}.unfinished")
    count = 0
    try:
        with unfinished.open("w", encoding="utf-8") as writing:
            for line in lines:
                writing.write(line)
                count += 1
            writing.flush()
            os.fsync(writing.fileno())
        unfinished.replace(file)
    except OSError as error:
        raise UsageError(f"{file} could not be written: {error.strerror}.") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return count
