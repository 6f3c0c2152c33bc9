"""`gpu-dev explain`: the reasons for a job's state, and advice. Pure: decided from the job and the counted GPUs."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import assert_never

from msgspec import Struct

from gpu_dev.display.expected_starts import expected_start, start_words
from gpu_dev.display.gpu_types import TypeSummary
from gpu_dev.display.local_times import local_sentence, local_time
from gpu_dev.display.use_graphs import IDLE_BELOW, idle_since
from gpu_dev.display.views import idle_words, placed, wanted_in_words
from gpu_dev.wire.jobs import Job
from gpu_dev.wire.nodes import UseOut
from reservation_core.domain.jobs.asked_dependencies import DependencyState, DependencyWhen
from reservation_core.domain.status_words import promise_stands, queue_words
from reservation_core.domain.statuses import JobStatus, ReasonCode

_WORTH_A_WORD = timedelta(minutes=5)
_BECAME = {
    JobStatus.QUEUED: "is queued",
    JobStatus.STARTING: "is starting",
    JobStatus.RUNNING: "is running",
    JobStatus.ENDING: "is ending",
    JobStatus.SUCCEEDED: "has succeeded",
    JobStatus.FAILED: "has failed",
    JobStatus.CANCELLED: "was cancelled",
    JobStatus.EXPIRED: "has expired",
}


class JobExplanation(Struct, kw_only=True):
    """The answer of `explain` for programs: the job, with a sentence for each reason and each advice."""

    job: Job
    facts: list[str]
    what_would_help: list[str]


def explain(job: Job, types: Sequence[TypeSummary], use: UseOut | None = None) -> JobExplanation:
    """Explain a job's state, given the GPUs counted by type, and how it uses its own."""
    facts = _facts(job) if use is None else [*_facts(job), *_idle_so_far(job, use)]
    return JobExplanation(job=job, facts=facts, what_would_help=_help(job, types))


def _idle_so_far(job: Job, use: UseOut) -> list[str]:
    """How long the GPUs of a job without a warning have been idle, if it is worth a word."""
    since = idle_since(use, {(part.node, index) for part in job.allocations for index in part.gpu_indices})
    if since is None or use.end - since < _WORTH_A_WORD:
        return []
    return [
        (
            f"Each of its GPUs has been used for less than {IDLE_BELOW:.0%} since {local_time(since)}."
            " If the policy has a rule about idle GPUs, its owner is warned first."
        )
    ]


def as_text(explanation: JobExplanation) -> str:
    """The explanation for people; ends with a line break."""
    lines = [*explanation.facts]
    if explanation.what_would_help:
        lines += ["", "What would help:", *(f"  - {line}" for line in explanation.what_would_help)]
    return "\n".join(lines) + "\n"


def _facts(job: Job) -> list[str]:
    named = f"{job.id} ({job.name})" if job.name else job.id
    whose = f", for project {job.project}" if job.project else ""
    where = f", in booking {job.booking_id}" if job.booking_id else ""
    what = "It" if job.array is None else "Each element"
    facts = [
        f"{named} {_BECAME[job.status]}: {local_sentence(job.reason.detail)} [{job.reason.code.value}]",
        f"{what} asks for {wanted_in_words(job.gpus, job.gpu_type, job.nodes)}{where}{whose}.",
    ]
    if job.status is JobStatus.QUEUED and job.reason.code is ReasonCode.WAITING_FOR_JOBS:
        facts += [
            f"{needed.job} is {needed.status.value} now."
            for needed in job.after
            if needed.state is DependencyState.OPEN
        ]
        if job.estimated_start_at is not None and job.after:
            facts.append(f"Starts about: {start_words(job)}, {_after_others(job)}.")
        if job.promised_start_at is not None:
            facts.append(_promise_of(job, job.promised_start_at))
    elif job.status is JobStatus.QUEUED:
        place = "not known yet" if job.queue_position is None else str(job.queue_position)
        start = start_words(job) or "no estimate"
        facts += [
            f"Place in {queue_words(job.gpu_type, job.booking_id, job.gpus)}: {place}.",
            f"Starts about: {start}.",
        ]
        if job.promised_start_at is not None:
            facts.append(_promise_of(job, job.promised_start_at))
    if job.allocations:
        facts.append(
            f"{'Its GPUs' if job.gpus else 'It is on'}: {placed(job.allocations, typed=job.gpu_type is None)}."
        )
    if job.status is JobStatus.RUNNING and job.ends_at is not None:
        facts.append(f"It ends by {local_time(job.ends_at)} at the latest.")
    if job.idle is not None:
        facts.append(f"Its GPUs have been idle {idle_words(job)}.")
    if job.exit_code is not None:
        facts.append(f"Its exit code: {job.exit_code}.")
    return facts


def _promise_of(job: Job, promised: datetime) -> str:
    if promise_stands(promised, job.estimated_start_at):
        return f"Promised start: {local_time(promised)}."
    return f"Promised start: {local_time(promised)}, which can't be kept as things are now."


def _after_others(job: Job) -> str:
    """What the start of a job follows: `after job-7f3k9q2m ends and 2 other jobs`."""
    first, *others = [needed for needed in job.after if needed.state is DependencyState.OPEN] or job.after
    verb = "starts" if first.when is DependencyWhen.STARTED else "ends"
    more = "" if not others else " and 1 other job" if len(others) == 1 else f" and {len(others)} other jobs"
    return f"after {first.job} {verb}{more}"


def _help(job: Job, types: Sequence[TypeSummary]) -> list[str]:
    if job.status is JobStatus.RUNNING:
        return _while_running(job)
    match job.reason.code:
        case ReasonCode.SUBMITTED:
            return [f"Nothing is needed: it is about to be planned. Ask again soon: gpu-dev explain {job.id}"]
        case ReasonCode.WAITING_FOR_GPUS | ReasonCode.BEHIND_IN_LINE:
            return _while_full(job, types)
        case ReasonCode.NO_SUCH_TYPE:
            known = ", ".join(one.gpu_type for one in types) or "none yet (gpu-dev nodes)"
            return [f"Ask for a type that is here: {known}.", f"Or cancel it: gpu-dev cancel {job.id}"]
        case ReasonCode.LARGER_THAN_ANY_NODE:
            return [
                "Ask for fewer --gpus on each of more --nodes, or for another --type (sizes: gpu-dev nodes).",
                f"Cancel this one: gpu-dev cancel {job.id}",
            ]
        case ReasonCode.NOT_ENOUGH_NODES:
            return [
                "Ask for fewer --nodes; gpu-dev nodes shows those that are here.",
                f"Cancel this one: gpu-dev cancel {job.id}",
            ]
        case ReasonCode.NODE_UNAVAILABLE:
            return ["See which nodes or GPUs are unavailable and why: gpu-dev nodes. It waits until enough are back."]
        case ReasonCode.ALLOCATED | ReasonCode.RUNNING:
            return _while_running(job)
        case ReasonCode.REQUEUED | ReasonCode.PREEMPTED:
            return [f"Nothing is needed: it starts again by itself. What happened: gpu-dev events {job.id}"]
        case ReasonCode.QUOTA_REACHED:
            return _over_quota(job)
        case ReasonCode.WAITING_FOR_JOBS:
            needed = next((one.job for one in job.after if one.state is DependencyState.OPEN), "ID")
            return [
                f"See when {needed} ends: gpu-dev explain {needed}",
                f"Don't need it any more? gpu-dev cancel {job.id}",
            ]
        case _:
            return _after_end(job)


def _while_running(job: Job) -> list[str]:
    if job.array is not None:
        return [f"Its elements: gpu-dev list --elements {job.id}", f"Their output: gpu-dev logs -f {job.id}"]
    return [
        *_while_idle(job),
        f"Its output: gpu-dev logs -f {job.id}",
        f"More time, before it ends: gpu-dev extend {job.id} --by 1h",
    ]


def _after_end(job: Job) -> list[str]:
    """Advice for a job that is ending or has ended; none for one that waits or runs."""
    code = job.reason.code
    match code:
        case (
            ReasonCode.COMPLETED
            | ReasonCode.COMMAND_FAILED
            | ReasonCode.KILLED_BY_SIGNAL
            | ReasonCode.ELEMENTS_FAILED
            | ReasonCode.OUT_OF_MEMORY
        ):
            return _after_command(job)
        case ReasonCode.CANCELLED_BY_USER | ReasonCode.CANCELLED_BY_ADMIN | ReasonCode.ELEMENTS_CANCELLED:
            return [f"The user and the time: gpu-dev events {job.id}"]
        case ReasonCode.DURATION_REACHED:
            return ["Submit it again with a longer --for, or extend it in time: gpu-dev extend ID --by 1h"]
        case ReasonCode.IMAGE_PULL_FAILED:
            return ["Check the image's name and tag, and that the cluster may pull it; then submit the job again."]
        case ReasonCode.START_FAILED:
            return [f"Submit it again, and change what stopped it: gpu-dev submit --again {job.id} OPTIONS"]
        case (
            ReasonCode.START_TIMEOUT
            | ReasonCode.UNSCHEDULABLE
            | ReasonCode.POD_LOST
            | ReasonCode.POD_DELETED
            | ReasonCode.EVICTED
            | ReasonCode.NODE_LOST
            | ReasonCode.MAINTENANCE
        ):
            return [
                f"What happened: gpu-dev events {job.id}",
                "Submit it again; if it fails again, ask an administrator.",
            ]
        case ReasonCode.DEPENDENCY_FAILED:
            return [f"Submit it again without waiting for others: gpu-dev submit --again {job.id}"]
        case ReasonCode.INACTIVE:
            return ["Open another: gpu-dev dev. Nobody needs to be connected to a job with a command."]
        case ReasonCode.IDLE:
            return _after_idle(job)
        case ReasonCode.BOOKING_OVER:
            return ["Book more time (gpu-dev book create), or submit it without a booking."]
        case (
            ReasonCode.SUBMITTED
            | ReasonCode.WAITING_FOR_GPUS
            | ReasonCode.BEHIND_IN_LINE
            | ReasonCode.PREEMPTED
            | ReasonCode.NO_SUCH_TYPE
            | ReasonCode.LARGER_THAN_ANY_NODE
            | ReasonCode.NOT_ENOUGH_NODES
            | ReasonCode.NODE_UNAVAILABLE
            | ReasonCode.REQUEUED
            | ReasonCode.QUOTA_REACHED
            | ReasonCode.WAITING_FOR_JOBS
            | ReasonCode.ALLOCATED
            | ReasonCode.RUNNING
        ):
            return []
        case _:
            assert_never(code)


def _after_command(job: Job) -> list[str]:
    """Advice for a job whose command has ended."""
    more = {
        ReasonCode.OUT_OF_MEMORY: ["Submit it again with a smaller batch or more GPUs."],
        ReasonCode.ELEMENTS_FAILED: [f"Which failed: gpu-dev list --elements {job.id} --status failed"],
    }
    return [f"Its output: gpu-dev logs {job.id}", *more.get(job.reason.code, ())]


def _after_idle(job: Job) -> list[str]:
    """Advice for a job whose GPUs went to others as they were idle."""
    use = f"How it used its GPUs: gpu-dev metrics {job.id}"
    # One that has not ended may be on its way back to the queue, as its reason says.
    if job.status in (JobStatus.RUNNING, JobStatus.ENDING):
        return [use]
    return [use, "Submit it again when you need GPUs. Keep a job that is warned: gpu-dev keep ID"]


def _while_idle(job: Job) -> list[str]:
    """Advice for a job with a warning that its GPUs are idle."""
    if job.idle is None:
        return []
    return [
        f"Need it still? Keep it: gpu-dev keep {job.id}",
        f"Don't need it any more? Others get its GPUs: gpu-dev cancel {job.id}",
    ]


def _over_quota(job: Job) -> list[str]:
    others = f", or all of {job.project}," if job.project else ""
    return [
        f"It may start sooner when you{others} hold less: gpu-dev status",
        f"Don't need it any more? gpu-dev cancel {job.id}",
    ]


def _while_full(job: Job, types: Sequence[TypeSummary]) -> list[str]:
    """Advice for a job that waits its turn: another type, fewer GPUs, or a gap that it fits into."""
    if job.gpus == 0:
        return [
            "Fewer --cpus, less --memory or a shorter --for may start sooner.",
            "What each node keeps for jobs without GPUs: gpu-dev nodes -o wide",
            "All waiting jobs: gpu-dev queue",
        ]
    if job.booking_id is not None:
        # It gets only the booking's GPUs, even if others are free.
        return [
            f"When the booking is, and what runs in it: gpu-dev book show {job.booking_id}",
            "Fewer --gpus or a shorter --for may fit beside what runs in it.",
        ]
    advice = []
    for one in types:
        if one.gpu_type != job.gpu_type and job.gpu_type is not None and job.nodes == 1:
            if one.most_free_on_one_node >= job.gpus:
                advice.append(
                    f"{one.most_free_on_one_node} {one.gpu_type} are free on one node now: --type {one.gpu_type}"
                )
        elif one.gpu_type == job.gpu_type or job.gpu_type is None:
            if 0 < one.most_free_on_one_node < job.gpus:
                count = one.most_free_on_one_node
                advice.append(
                    f"{count} {one.gpu_type} {'is' if count == 1 else 'are'} free on one node now: --gpus {count}"
                )
            start = expected_start(job)
            if one.next_free_at is not None and (start is None or one.next_free_at < start):
                advice.append(f"The next {one.gpu_type} becomes free about {local_time(one.next_free_at)}.")
    advice.append("A shorter --for may fit into an earlier gap.")
    advice.append("All waiting jobs: gpu-dev queue")
    return advice
