"""The verdict on a request before it is made, for people: it starts now, is accepted, or is refused, and why."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import assert_never

from msgspec import UNSET

from gpu_dev.display.amounts import resource_words
from gpu_dev.display.calendar_views import LIMIT
from gpu_dev.display.local_times import local_sentence, minute
from gpu_dev.display.output import Format, View, coloured, show_list, show_one
from gpu_dev.errors import ExitCode
from gpu_dev.terminal import Rendered, harmless
from gpu_dev.wire.jobs import Job, JobSubmit, JobVerdict, SoonerRequest
from gpu_dev.wire.policy import Explanation
from reservation_core.domain.policy.prices import rounded_cost
from reservation_core.domain.request_terms import RequestChange
from reservation_core.domain.short_durations import written
from reservation_core.domain.status_words import cannot_start, queue_words
from reservation_core.domain.statuses import ReasonCode, RequestVerdict

_SOON = timedelta(minutes=1)
"""A shorter wait is not worth a line: GPUs of a job that has just ended are being given back."""

_AT_ONCE = timedelta(minutes=2)
"""A start before this is now; `now` is in whole minutes."""

_DATA = View[Explanation](name=lambda one: one.verdict.value, columns=())
_START_DATA = View[JobVerdict](name=lambda one: one.verdict.value, columns=())


def show_verdict(answer: Explanation, output: Format, search: str = "gpu-dev book slots") -> Rendered:
    """The verdict in words, with the limits that hold; or its data. Ends with a line break."""
    if output not in (Format.TABLE, Format.WIDE):
        return show_one(answer, _DATA, output)
    words = f"{coloured(_name(answer))}{harmless(_rest(answer, search) + _cost(answer))}"
    limits = "\n" + show_list(answer.limits, LIMIT, Format.TABLE) if answer.limits else ""
    return Rendered(words + limits)


NOT_ESTIMATED = "Likely start: unknown. Estimates are switched off on this server."


def show_start(
    request: JobSubmit,
    answer: JobVerdict,
    output: Format,
    now: datetime,
    changed: Callable[[JobSubmit, SoonerRequest], str] | None = None,
) -> Rendered:
    """When a job would start if it were submitted now, and which request would start sooner; or the data of that.

    `changed` writes the change of a request as options, by default as those of `gpu-dev`.
    """
    if output not in (Format.TABLE, Format.WIDE):
        return show_one(answer, _START_DATA, output)
    lines = _start_lines(request, answer, now, changed or _changed)
    return Rendered(harmless("".join(f"{line}\n" for line in lines)))


def _start_lines(
    request: JobSubmit, answer: JobVerdict, now: datetime, changed: Callable[[JobSubmit, SoonerRequest], str]
) -> Iterator[str]:
    promise = answer.promised_start_at
    if answer.verdict is RequestVerdict.STARTS_NOW:
        yield "Would start now."
        return
    if promise is None:
        yield "Would wait. No start can be promised yet."
    else:
        yield f"Would start by {minute(promise)} at the latest."
    likely = answer.estimated_start
    if likely is not None:
        yield f"Likely start: {minute(likely.p50)}; nine times in ten by {minute(likely.p90)}."
    elif _may_be_foretold(request, answer):
        yield "Likely start: not known yet." if answer.estimates is not False else NOT_ESTIMATED
    if answer.queue_position is not None:
        queue = queue_words(request.gpu_type or None, request.booking_id or None, request.gpus)
        yield f"Place in {queue}: {answer.queue_position}."
    for reason in answer.reasons:
        yield f"Reason: {local_sentence(reason.detail)}"
    if answer.instead:
        yield "Would start sooner:"
        for sooner in answer.instead:
            start = sooner.promised_start_at
            yield f"  - {changed(request, sooner)}: {'now' if start - now < _AT_ONCE else minute(start)}"


def _may_be_foretold(request: JobSubmit, answer: JobVerdict) -> bool:
    """Whether a likely start comes with more history: not within bookings, nor while a quota holds the job back."""
    if answer.promised_start_at is None or request.booking_id:
        return False
    return all(reason.code != ReasonCode.QUOTA_REACHED for reason in answer.reasons)


def _changed(request: JobSubmit, sooner: SoonerRequest) -> str:
    """The change, as options of the command."""
    match sooner.change:
        case RequestChange.SHORTER:
            return f"--for {written(sooner.duration)}"
        case RequestChange.FEWER:
            nodes = f" --nodes {sooner.nodes}" if request.nodes not in (UNSET, sooner.nodes) else ""
            return f"--gpus {sooner.gpus}{nodes}"
        case RequestChange.TYPE:
            return f"--type {sooner.gpu_type}"
        case _:
            assert_never(sooner.change)


def exit_code_of_verdict(answer: Explanation) -> ExitCode:
    """How a rehearsed request ends: as the request itself would."""
    return ExitCode.REFUSED if answer.verdict is RequestVerdict.REFUSED else ExitCode.OK


def wait_words(job: Job, answer: Explanation) -> str | None:
    """What a job that was just submitted waits for, and until about when, in one line; None if it starts at once."""
    if answer.verdict is not RequestVerdict.ACCEPTED:
        return None
    details = " ".join(local_sentence(reason.detail) for reason in answer.reasons)
    if answer.starts_at is None:
        if cannot_start(reason.code for reason in answer.reasons):
            return f"It can't start on the nodes that are here. {details} Cancel it: gpu-dev cancel {job.id}"
        return f"It waits, and no start is known{': ' if details else '.'}{details}"
    if answer.starts_at - job.created_at < _SOON:
        return None
    if job.booking_id is None and {reason.code for reason in answer.reasons} == {ReasonCode.WAITING_FOR_GPUS}:
        gpus = job.gpu_type or ("GPU" if job.gpus == 1 else "GPUs")
        nodes = f" on each of {job.nodes} nodes" if job.nodes > 1 else ""
        asked = f"{job.gpus} {gpus}{nodes}" if job.gpus else resource_words(job.resources)
        return f"Waits for {asked} until about {minute(answer.starts_at)}."
    return f"Waits until about {minute(answer.starts_at)}: {details}"


def _name(answer: Explanation) -> str:
    match answer.verdict:
        case RequestVerdict.STARTS_NOW:
            return "Starts now"
        case RequestVerdict.ACCEPTED:
            return "Accepted"
        case RequestVerdict.REFUSED:
            return "Refused"
        case _:
            assert_never(answer.verdict)


def _cost(answer: Explanation) -> str:
    if answer.cost is None or answer.verdict is RequestVerdict.REFUSED:
        return ""
    return f"It costs about {rounded_cost(answer.cost.amount, answer.cost.unit)} for its whole duration.\n"


def _rest(answer: Explanation, search: str) -> str:
    """What follows the verdict's name; ends with a line break."""
    about = "" if answer.kind == "booking" else "about "
    when = f", starts {about}{minute(answer.starts_at)}" if answer.starts_at else ", no start is known"
    if cannot_start(reason.code for reason in answer.reasons):
        when = ", but it can't start on the nodes that are here"
    first = when if answer.verdict is RequestVerdict.ACCEPTED else ""
    if not answer.reasons:
        return f"{first}.\n"
    lines = [f"{first}, because:"]
    is_refused_booking = answer.verdict is RequestVerdict.REFUSED and answer.kind == "booking"
    times = (
        {rule.code: rule for rule in answer.broken_rules} if is_refused_booking else {}
    )  # a job has no start to choose
    for reason in answer.reasons:
        lines.append(f"  - {reason.code}: {local_sentence(reason.detail)}")
        rule = times.get(reason.code)
        if rule is not None and rule.possible_from is not None:
            lines.append(f"    The rule allows a start from {minute(rule.possible_from)}.")
        if rule is not None and rule.ask_from is not None:
            lines.append(f"    Ask again from {minute(rule.ask_from)}.")
    if times and answer.possible_from is not None:
        lines.append(f"All rules allow a start from {minute(answer.possible_from)}.")
    if answer.kind == "booking":
        lines.append(f"When GPUs are free: {search}")
    return "\n".join(lines) + "\n"
