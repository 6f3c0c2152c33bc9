"""From a command's context to a client for the server it should talk to, and the ids known there."""

import os
from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING

import typer

from gpu_dev.client import GpuDevClient
from gpu_dev.display.local_times import local_sentence
from gpu_dev.errors import ClientError, ExitCode, NoSuchObjectError, NotOwnJobError, UsageError
from gpu_dev.inputs.ids import (
    FULL_LENGTH,
    PREFIX,
    SEARCHED,
    element_of,
    is_whole,
    named_id,
    named_job,
    normal_id,
    read_otherwise,
    resolve_id,
    whole_booking_id,
)
from gpu_dev.server.connection import Connection, normal_server, resolve, resolve_job
from gpu_dev.server.exchange import Exchange
from gpu_dev.terminal import clean, say
from reservation_core.domain.similar_names import did_you_mean
from reservation_core.domain.statuses import FINAL_STATUSES, BookingStatus, RequestVerdict

if TYPE_CHECKING:
    from gpu_dev.wire.notices import NoticeTargetOut
    from gpu_dev.wire.people import TokenOut
    from gpu_dev.wire.sessions import SshKeyOut

_COMPLETED = 100
_SHOWN = 5
OPEN_BOOKINGS = (BookingStatus.CONFIRMED, BookingStatus.ACTIVE, BookingStatus.WAITING, BookingStatus.OFFERED)


def connection_of(ctx: typer.Context) -> Connection:
    """The server and token that the options, the environment and the login file name."""
    given = ctx.find_root().params
    return resolve(given.get("server"), given.get("token_file"), os.environ)


def own_job(ctx: typer.Context, job_id: str | None) -> tuple[str, Connection] | None:
    """Inside a job, unless a token is given: that job and the way to its server. None for another job's id."""
    given = ctx.find_root().params
    if given.get("token_file") or os.environ.get("GPU_DEV_TOKEN"):
        return None
    return resolve_job(job_id, os.environ)


def server_of(ctx: typer.Context, server: str | None) -> str:
    """The server's address in its one form: the one given, or the one that any command would use."""
    return connection_of(ctx).server if server is None else normal_server(server)


def client_for(ctx: typer.Context) -> GpuDevClient:
    """A client for that server, which signs in again where it knows how; use it as a context manager."""
    return client_of(connection_of(ctx))


def client_of(connection: Connection) -> GpuDevClient:
    """The same for a connection."""
    if connection.way is None:
        return GpuDevClient(Exchange(connection))
    from gpu_dev.server.signing_in import renewal_of

    return GpuDevClient(Exchange(connection, renew=renewal_of(connection)))


def whole_id(client: GpuDevClient, text: str) -> str:
    """The id of the one job that `text` stands for: an id, the beginning of one, or a name.

    A job of one's own goes before those of others that are shared, ended or not: anybody may share a job of any name.
    """
    typed = text.strip()
    element = element_of(typed)
    if element is not None and typed.lower().startswith(PREFIX):
        return f"{whole_id(client, element[0])}.{element[1]}"
    names: set[str] = set()
    others: list[str] = []
    if not typed.lower().startswith(PREFIX):
        if _is_job(client, typed):
            return normal_id(typed)
        jobs = list(islice(client.jobs(), SEARCHED))
        names = {job.name for job in jobs if job.name}
        if typed in names:
            me = client.me().name  # administrators see everybody's
            named = [(job.id, job.status not in FINAL_STATUSES) for job in jobs if (job.name, job.user) == (typed, me)]
            if named:
                job_id = named_job(typed, named)
                say(f"{typed} is {job_id}.")
                return job_id
            others = [f"{job.id} of {clean(job.user)}" for job in jobs if job.name == typed]
        known = (job.id for job in jobs)
    else:
        known = (job.id for job in client.jobs())
        if read_otherwise(text):
            say(f"{typed} is read as {normal_id(text)}: ids have no letters o, i and l.")
    try:
        return resolve_id(text, known, among_known=not typed.lower().startswith(PREFIX))
    except NoSuchObjectError as error:
        if element is not None:
            return f"{whole_id(client, element[0])}.{element[1]}"
        try:
            return _shared_id(client, typed, names, error)
        except NoSuchObjectError:
            if not others:
                raise
            listed = ", ".join(others[:_SHOWN])
            raise NotOwnJobError(f"You have no job named {typed}, but others have: {listed}. Type an id.") from error


def _shared_id(client: GpuDevClient, typed: str, names: set[str], none_own: NoSuchObjectError) -> str:
    """The id of the job that others share and `typed` stands for; `names` are those of one's own jobs.

    Raises `none_own`, with the name that was probably meant, and AmbiguousIdError.
    """
    jobs = {job.id: job for job in islice(client.jobs(shared=True), SEARCHED)}
    named = [(job.id, job.status not in FINAL_STATUSES) for job in jobs.values() if job.name == typed]
    try:
        job_id = named_job(typed, named) if named else resolve_id(typed, jobs, among_known=True)
    except NoSuchObjectError:
        meant = did_you_mean(typed, names.union(job.name for job in jobs.values() if job.name))
        raise NoSuchObjectError(f"{none_own.detail}{meant}", next_command=none_own.next_command) from none_own
    say(f"{typed} is {job_id}, which {clean(jobs[job_id].user)} shares with you.")
    return job_id


def _is_job(client: GpuDevClient, typed: str) -> bool:
    """Whether a text without prefix is a whole id of a job, rather than a name."""
    try:
        if not is_whole(normal_id(typed)):
            return False
        client.job(normal_id(typed))
    except ClientError as error:
        if error.exit_code is not ExitCode.NOT_FOUND:
            raise
        return False
    return True


def booking_id_of(client: GpuDevClient, text: str, *, of_series: bool = False) -> str:
    """The id of the booking that `text` stands for: an id, or the title of an open booking of one's own.

    With `of_series` the title of a series stands for its first open date.
    """
    if text.strip().lower().startswith("bkg-"):
        return whole_booking_id(text)
    bookings = list(islice(client.bookings.calendar(statuses=OPEN_BOOKINGS, mine=True), SEARCHED))
    titled = [one for one in reversed(bookings) if one.title == text.strip()]
    first = {(of_series and one.series_id) or one.id: one.id for one in titled}.values()
    known = ((one.id, one.title if one.id in first else None) for one in bookings)
    try:
        return named_id(text, "bkg-", known, "open booking", "gpu-dev book list")
    except NoSuchObjectError as error:
        if meant := did_you_mean(text.strip(), {one.title for one in bookings if one.title}):
            raise NoSuchObjectError(f"{error.detail}{meant}", next_command=error.next_command) from error
        if len(text.strip()) != FULL_LENGTH or not text.strip().isalnum():
            raise
        return whole_booking_id(text)  # of a booking that is over, or somebody else's


def check_type(client: GpuDevClient, gpu_type: str, known: Iterable[str]) -> str:
    """The type as the server has it. Raises UsageError where it is not `known` here and no job may ask for it."""
    wanted = gpu_type.lower()
    if wanted not in known:
        from gpu_dev.inputs.requests import make_request
        from gpu_dev.wire.policy import ExplainRequest

        asked = make_request(ExplainRequest, {"gpus": 1, "gpu_type": wanted, "duration": timedelta(minutes=1)})
        answer = client.policy.explain(asked)
        for reason in answer.reasons if answer.verdict is RequestVerdict.REFUSED else ():
            if reason.code == "no_such_type":
                raise UsageError(local_sentence(reason.detail))
    return wanted


def own_names(
    client: GpuDevClient, found: "Iterable[TokenOut | NoticeTargetOut | SshKeyOut]"
) -> Iterator[tuple[str, str | None]]:
    """Ids, with their names where they are one's own: administrators see all users'."""
    me = client.me().name
    for one in found:
        yield one.id, one.name if one.user == me else None


def complete_job_id(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids of the newest jobs that begin so, for the shell's completion."""
    try:
        with client_for(ctx) as client:
            newest = [
                (job.id, clean(f"{job.status.value} {job.name or ''}")) for job in islice(client.jobs(), _COMPLETED)
            ]
    except ClientError:
        # A shell that completes has no place for an error; the command itself will tell it.
        return []
    return [one for one in newest if one[0].startswith(incomplete) or one[0].startswith(f"job-{incomplete}")]
