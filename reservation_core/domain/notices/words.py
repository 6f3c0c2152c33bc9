"""The text of notifications: for each kind of event what happened, what it means and what to do. No secrets.

Times in text are UTC. Text that a user may have chosen (a job's name, say) is reduced to one line.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, Literal, assert_never

from reservation_core.domain.event_kinds import BookingEventKind, JobEventKind, PodEventKind
from reservation_core.domain.gpu_use.health_words import gpu_words, job_gpu_words
from reservation_core.domain.notices.kinds import NoticeKind
from reservation_core.domain.notices.messages import Notice, NoticedEvent, NotifiedReservation, one_line
from reservation_core.domain.policy.usage_digest import digest_words
from reservation_core.domain.short_durations import in_words
from reservation_core.domain.time_words import range_words, time_words, with_time_words

_LONGEST_NAME = 100
_LONGEST_REASON = 1000
_MINUTE, _SECOND = timedelta(minutes=1), timedelta(seconds=1)


def notice_of(occurrence: NoticedEvent, about: NotifiedReservation | None, *, user: str, delivery: str) -> Notice:
    """The notification of an event; `about` is None for pods that use no booking."""
    if about is None and occurrence.kind is NoticeKind.GPU_HEALTH:
        subject, happened, advice = gpu_words(occurrence.event, occurrence.subject, occurrence.data)
    elif about is None and occurrence.kind is NoticeKind.DIGEST:
        subject, happened, advice = digest_words(occurrence.subject, occurrence.data)
    elif occurrence.event == PodEventKind.DISPLACED or about is None:
        subject, happened, advice = *_describe_pod(occurrence), None
    else:
        subject, (happened, advice) = _title(about), _describe(occurrence, about)
    lines = [happened]
    told = about is None or occurrence.kind is NoticeKind.GPU_HEALTH
    why = occurrence.reason or (str(occurrence.data.get("why") or "") if told else "")
    if why and occurrence.kind is not NoticeKind.IDLE:  # its words are made of the same times, as people read them
        lines.append(one_line(with_time_words(why, _format, _range), _LONGEST_REASON))
    if advice is not None:
        lines.append(advice)
    title = f"[gpu-dev] {subject}: {_HEADLINES[occurrence.kind]}"
    return Notice(delivery, occurrence.kind.value, occurrence.at, user, title, "\n\n".join(lines), about)


_HEADLINES = {
    NoticeKind.CONFIRMED: "confirmed",
    NoticeKind.MOVED: "moved",
    NoticeKind.CANCELLED: "cancelled",
    NoticeKind.WAITLISTED: "on the waitlist",
    NoticeKind.OFFERED: "GPUs are held for you",
    NoticeKind.OFFER_EXPIRED: "no longer waiting",
    NoticeKind.STARTING_SOON: "starts soon",
    NoticeKind.STARTED: "started",
    NoticeKind.ENDING_SOON: "ends soon",
    NoticeKind.ENDED: "ended",
    NoticeKind.NO_SHOW: "about to be released",
    NoticeKind.RELEASED: "released unused",
    NoticeKind.FAILED: "failed",
    NoticeKind.PROMISE_MISSED: "starts later than promised",
    NoticeKind.MAINTENANCE: "affected by maintenance",
    NoticeKind.IDLE: "GPUs idle",
    NoticeKind.PREEMPTED: "waits again",
    NoticeKind.GPU_HEALTH: "a GPU is faulty or slow",
    NoticeKind.DIGEST: "the week",
}


def _describe(occurrence: NoticedEvent, about: NotifiedReservation) -> tuple[str, str | None]:
    """What happened, and what to do about it."""
    kind = occurrence.kind
    match kind:
        case (
            NoticeKind.CONFIRMED
            | NoticeKind.MOVED
            | NoticeKind.WAITLISTED
            | NoticeKind.OFFERED
            | NoticeKind.OFFER_EXPIRED
            | NoticeKind.NO_SHOW
            | NoticeKind.RELEASED
        ):
            return _describe_booking(kind, occurrence, about)
        case NoticeKind.CANCELLED:
            return f"{_named(about)} was cancelled by {one_line(occurrence.actor, _LONGEST_NAME)}.", None
        case NoticeKind.STARTING_SOON:
            advice = "Be ready: an unused booking is released after its grace time."
            return f"{_named(about)} starts {_at('starts_at', occurrence, about)}.", advice
        case NoticeKind.STARTED:
            if about.is_job:
                until = _format(_time(occurrence.data, "ends_at") or about.ends_at)
                return f"{_named(about)} runs, until {until} at the latest.", None
            advice = f"Run jobs in it: `gpu-dev run --booking {about.id} --gpus 1 --for 1h -- COMMAND`."
            return f"{_named(about)} has begun; it ends {_at('ends_at', occurrence, about)}.", advice
        case NoticeKind.ENDING_SOON:
            command = "gpu-dev extend" if about.is_job else "gpu-dev book extend"
            advice = f"Save your work. If you need longer, ask for it before then: `{command} {about.id}`."
            inside = "" if about.is_job else "; jobs that run in it then are ended"
            return f"{_named(about)} ends {_at('ends_at', occurrence, about)}{inside}.", advice
        case NoticeKind.ENDED:
            log = f"Its output: `gpu-dev logs {about.id}`." if about.is_job else None
            well = " well" if occurrence.event == JobEventKind.SUCCEEDED else ""
            return f"{_named(about)} has ended{well}. Its GPUs are given back.", log
        case NoticeKind.FAILED:
            return _describe_failure(about)
        case NoticeKind.PROMISE_MISSED:
            return _describe_missed_start(occurrence, about)
        case NoticeKind.MAINTENANCE:
            happened = f"Maintenance affects {_named(about, begins=False)}{_window(occurrence)}."
            return happened, _maintenance_advice(occurrence, about)
        case NoticeKind.IDLE | NoticeKind.PREEMPTED | NoticeKind.GPU_HEALTH | NoticeKind.DIGEST:
            return _describe_use(kind, occurrence, about)
        case _:
            assert_never(kind)


def _describe_missed_start(occurrence: NoticedEvent, about: NotifiedReservation) -> tuple[str, str | None]:
    """A start that was late, or will be: that is known at once when GPUs of its slot can't be used, say."""
    promised = _time(occurrence.data, "promised_start_at")
    explain = f"There is nothing to do. `gpu-dev explain {about.id}` says what it waits for."
    if promised is None or promised <= occurrence.at:
        return f"{_named(about)} could not start at the time that was promised.", explain if about.is_job else None
    estimated = _time(occurrence.data, "estimated_start_at")
    now = "" if estimated is None else f" Now it starts about {_format(estimated)}."
    happened = f"{_named(about)} has lost its promised start, {_format(promised)}.{now}"
    return happened, f"If its GPUs come back before that, it starts in time all the same. {explain}"


def _describe_failure(about: NotifiedReservation) -> tuple[str, str | None]:
    if not about.is_job:
        return f"The workload of {_named(about, begins=False)} could not start.", None
    return f"{_named(about)} has failed.", f"Its output may say more: `gpu-dev logs {about.id}`."


def _describe_use(
    kind: Literal[NoticeKind.IDLE, NoticeKind.PREEMPTED, NoticeKind.GPU_HEALTH, NoticeKind.DIGEST],
    occurrence: NoticedEvent,
    about: NotifiedReservation,
) -> tuple[str, str]:
    match kind:
        case NoticeKind.IDLE:
            return _describe_idle(occurrence, about)
        case NoticeKind.PREEMPTED:
            happened = f"{_named(about)} gives its GPUs back and waits in the queue again."
            return happened, f"It will run its command from the start. Where it stands: `gpu-dev explain {about.id}`."
        case NoticeKind.GPU_HEALTH | NoticeKind.DIGEST:  # a digest is of no reservation
            return job_gpu_words(occurrence.data, _named(about, begins=False))
        case _:
            assert_never(kind)


def _describe_idle(occurrence: NoticedEvent, about: NotifiedReservation) -> tuple[str, str]:
    since = _format(_time(occurrence.data, "idle_since"))
    happened = f"The GPUs of {_named(about, begins=False)} have been idle since {since}."
    release_at = _time(occurrence.data, "release_at")
    keep = f"`gpu-dev keep {about.id}`"
    if release_at is None:
        return happened, f"End the job if you don't need it: `gpu-dev cancel {about.id}`. If you do, keep it: {keep}."
    return happened, f"They go to others at {_format(release_at)} if they still are. If you need it, keep it: {keep}."


_BookingKind = Literal[
    NoticeKind.CONFIRMED,
    NoticeKind.MOVED,
    NoticeKind.WAITLISTED,
    NoticeKind.OFFERED,
    NoticeKind.OFFER_EXPIRED,
    NoticeKind.NO_SHOW,
    NoticeKind.RELEASED,
]


def _describe_booking(
    kind: _BookingKind, occurrence: NoticedEvent, about: NotifiedReservation
) -> tuple[str, str | None]:
    name, slot = _named(about), _slot(occurrence, about)
    match kind:
        case NoticeKind.CONFIRMED:
            advice = f"If you don't need it after all, give it back: `gpu-dev book cancel {about.id}`."
            return f"{name} is confirmed: {_gpus(about)}, {slot}.", advice
        case NoticeKind.MOVED:
            who = one_line(occurrence.actor, _LONGEST_NAME)
            return f"{name} was changed by {who}. It is now: {_gpus(about)}, {slot}.", None
        case NoticeKind.WAITLISTED:
            advice = "You will be notified as soon as GPUs are free for it."
            return f"{name} is on the waitlist: {_gpus(about)}, {slot}.", advice
        case NoticeKind.OFFERED:
            until = _format(_time(occurrence.data, "offer_until") or about.offer_until)
            command = f"`gpu-dev book accept {about.id}`"
            advice = f"Accept the offer before then, or the GPUs go to the next on the waitlist: {command}."
            return f"GPUs are free for {_named(about, begins=False)} and held for you until {until}: {slot}.", advice
        case NoticeKind.OFFER_EXPIRED if occurrence.event == BookingEventKind.WAIT_EXPIRED:
            return f"{name} could not be booked: {slot}.", "`gpu-dev book slots` finds times that are free."
        case NoticeKind.OFFER_EXPIRED:
            happened = f"The offer for {_named(about, begins=False)} has expired: {slot}."
            return happened, "Ask again if you still need it."
        case NoticeKind.NO_SHOW:
            by = _format(_time(occurrence.data, "release_at") or about.release_at)
            command = f"gpu-dev run --booking {about.id} --gpus 1 --for 1h -- COMMAND"
            advice = f"Start something in it (`{command}`), or cancel it so that others can use the GPUs."
            unused = f"Nothing uses {_named(about, begins=False)}."
            return f"{unused} It is released at {by} unless something starts in it.", advice
        case NoticeKind.RELEASED:
            advice = "Book again if you still need GPUs, and cancel what you don't: others wait."
            return f"{name} was released because nothing used it: {slot}.", advice
        case _:
            assert_never(kind)


def _describe_pod(occurrence: NoticedEvent) -> tuple[str, str]:
    """The pod's title, and what happened."""
    name = "/".join(str(occurrence.data.get(part) or "?") for part in ("namespace", "name"))
    pod = f"pod {one_line(name, 2 * _LONGEST_NAME)}"
    return pod, f"Your {pod} is ended before its time."


def _title(about: NotifiedReservation) -> str:
    name = "" if about.name is None else f" ({one_line(about.name, _LONGEST_NAME)})"
    return f"{about.id}{name}"


def _named(about: NotifiedReservation, *, begins: bool = True) -> str:
    return f"{'Your' if begins else 'your'} {about.kind} {_title(about)}"


def _gpus(about: NotifiedReservation) -> str:
    kind = "GPU" if about.gpu_type is None else about.gpu_type
    where = "" if about.nodes == 1 else f" on each of {about.nodes} nodes"
    return f"{about.gpus} x {kind}{where}"


def _slot(occurrence: NoticedEvent, about: NotifiedReservation) -> str:
    """The slot at the time of the event, if recorded: the booking may have been moved since."""
    starts = _time(occurrence.data, "start") or about.starts_at
    ends = _time(occurrence.data, "end") or about.ends_at
    if starts is None or ends is None:
        return f"from {_format(starts)} to {_format(ends)}"
    return f"from {_range(starts, ends)}"


def _at(name: str, occurrence: NoticedEvent, about: NotifiedReservation) -> str:
    known = about.starts_at if name == "starts_at" else about.ends_at
    at = _time(occurrence.data, name) or known
    if at is None:
        return "soon"
    left = _rounded(at - occurrence.at)
    return f"at {_format(at)}" + (f" (in {in_words(left)})" if left > timedelta(0) else "")


def _rounded(left: timedelta) -> timedelta:
    """A length in whole minutes, or in whole seconds below one: a notification is sent some seconds late."""
    return timedelta(minutes=round(left / _MINUTE)) if left >= _MINUTE else timedelta(seconds=left // _SECOND)


def _window(occurrence: NoticedEvent) -> str:
    starts, ends = _time(occurrence.data, "starts_at"), _time(occurrence.data, "ends_at")
    return "" if starts is None or ends is None else f", from {_range(starts, ends)}"


def _maintenance_advice(occurrence: NoticedEvent, about: NotifiedReservation) -> str:
    by = _time(occurrence.data, "job_ends_by")
    if not about.is_job:
        return f"`gpu-dev book show {about.id}` says what is left of it; if that is not enough, book another time."
    if by is None:
        return f"It waits for other GPUs; there is nothing to do. `gpu-dev explain {about.id}` says when they are free."
    return f"It is ended by {_format(by)}: save your work before, and submit the rest again."


def _range(start: datetime, end: datetime) -> str:
    return range_words(start, end, UTC)


def _format(at: datetime | None) -> str:
    return "an unknown time" if at is None else time_words(at, UTC)


def _time(data: dict[str, Any], name: str) -> datetime | None:
    """A time in an event's data; None if it is missing or malformed."""
    value = data.get(name)
    if not isinstance(value, str):
        return None
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return None
    return at if at.tzinfo is not None else None
