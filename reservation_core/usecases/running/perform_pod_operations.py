"""Carry out pod operations. The row decides what to do; the message is only a trigger.

The pod lock excludes creating and finalising a reservation's pods at the same time: a delete waits for a create that
read `starting` before the cancel, and a later create reads `ending` and does nothing. The lock is held during calls to
the cluster, with short transactions in between.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from reservation_core.adapters.postgres.unit_of_work import HeldPods, UnitOfWorkFactory
from reservation_core.contracts.queue_messages import PodOperation
from reservation_core.domain.changes import Event, PodsGone, PodsRunning, StartDelayed, StartFailed, StartRefused
from reservation_core.domain.jobs.lifecycle import decide
from reservation_core.domain.jobs.observation import began, event_of
from reservation_core.domain.jobs.preemption import is_preempted
from reservation_core.domain.model import PodPhase, PodSecret, PodStatus, Reason, Reservation
from reservation_core.domain.pods.pod_environment import last_end, pod_names, pod_specs
from reservation_core.domain.sessions.job_tokens import JobAccess
from reservation_core.domain.statuses import FINAL_STATUSES, JobStatus, ReasonCode
from reservation_core.ports.clock import Clock
from reservation_core.ports.cluster import Cluster, PodNotNowError, PodRefusedError
from reservation_core.ports.people.user_secrets import SecretUnreadableError
from reservation_core.ports.queues import MessageNotDueError
from reservation_core.ports.traces import Traces
from reservation_core.usecases.carry_out import carry_out
from reservation_core.usecases.nodes.fence_node import without_power
from reservation_core.usecases.running.job_spans import read_creations
from reservation_core.usecases.running.keep_log_tails import keep_tails
from reservation_core.usecases.running.last_output import LastOutput
from reservation_core.usecases.running.pod_calls import call_all
from reservation_core.usecases.running.pod_creation import PodCreation

# A restored ledger may assign GPUs that are held by pods which it does not know.
_CLAIMED = Reason(
    ReasonCode.START_FAILED,
    "A pod that the ledger does not know holds some of its GPUs; administrators see it with `gpu-dev pods`.",
)
_UNREAD = Reason(
    ReasonCode.START_FAILED,
    "Its variables are sealed with a key that the server does not have: an administrator has to put it back into the"
    " file of GPU_DEV_SEAL_KEY_FILE. The job waits for that.",
)
_KEY_MISSING = (
    "An administrator can put the key back into the file of GPU_DEV_SECRETS_KEY_FILE, or of GPU_DEV_SEAL_KEY_FILE"
    " where secrets have no file of their own. The job waits for that."
)
# Pods that are created after the end of their range would be ended at once, as if they had run.
_RANGE_OVER = Reason(
    ReasonCode.START_TIMEOUT,
    "Its pods could not be made before its time was over; administrators see why in the processor's log.",
)


@dataclass(frozen=True, slots=True)
class LaunchRules:
    """How pods are started and ended. The cluster ends a pod by itself `belt` after its range.

    `log_lines` of a log are kept before the pod is removed, if they can be read within `log_patience`. `max_starts` is
    the number of start attempts. An unanswered create may be carried out until `late` after its begin; one that takes
    longer than `slow_after` is stored. A taken pod lock is waited for during `lock_patience` and retried after
    `busy_pause`; a pod that the cluster can't take now is retried after `not_now_pause`, and the end of a pod that may
    still appear after `unsettled_pause`. `access` is how programs in jobs reach the server.
    """

    grace: timedelta
    belt: timedelta
    log_lines: int = 1000
    log_patience: timedelta = timedelta(seconds=3)
    max_starts: int = 3
    late: timedelta = timedelta(0)
    slow_after: timedelta = timedelta(seconds=1)
    lock_patience: timedelta = timedelta(seconds=2)
    busy_pause: timedelta = timedelta(seconds=1)
    not_now_pause: timedelta = timedelta(seconds=5)
    unsettled_pause: timedelta = timedelta(seconds=5)
    access: JobAccess | None = None


async def perform(
    uow_factory: UnitOfWorkFactory,
    cluster: Cluster,
    operation: PodOperation,
    clock: Clock,
    rules: LaunchRules,
    traces: Traces | None = None,
    last_output: LastOutput | None = None,
) -> None:
    """Carry out an operation as its row requires. Stale, repeated and late operations do nothing.

    Raises ClusterUnavailableError when the cluster does not answer, or MessageNotDueError with the next attempt's time.
    """
    async with uow_factory.hold_pods([operation.id], patience=rules.lock_patience) as held:
        if not held.ids:
            raise MessageNotDueError(f"somebody else is making or ending pods of {operation.id}", rules.busy_pause)
        async with held.work(one_statement=True) as uow:
            reservation = (await uow.reservations.get([operation.id])).get(operation.id)
        if reservation is None or reservation.attempt != operation.attempt:
            return
        match operation.op:
            case "create":
                await _create(held, cluster, reservation, clock, rules, traces)
            case "delete":
                await _delete(held, cluster, reservation, clock, rules, last_output)
            case "deadline":
                await _move_deadline(cluster, reservation, rules)
            case "signal":
                await _send_signal(cluster, reservation)


async def _finalise(held: HeldPods, reservation: Reservation, clock: Clock, rules: LaunchRules) -> None:
    """Close a reservation whose pods are gone. Raises MessageNotDueError while one may still appear."""
    left = _unsettled_for(reservation, clock)
    if left > timedelta(0):
        # Checked regularly until then, so that a pod that appears is ended at once.
        pause = min(left, rules.unsettled_pause)
        raise MessageNotDueError(f"a pod of {reservation.id} that was asked for may still come to be", pause)
    await _change(held, reservation.id, PodsGone(), clock)


def _unsettled_for(reservation: Reservation, clock: Clock) -> timedelta:
    """How long from now a pod may still appear after an unanswered create."""
    until = reservation.unsettled_until
    return timedelta(0) if until is None else max(timedelta(0), until - clock.now())


async def _create(
    held: HeldPods,
    cluster: Cluster,
    reservation: Reservation,
    clock: Clock,
    rules: LaunchRules,
    traces: Traces | None,
) -> None:
    if reservation.status is not JobStatus.STARTING:
        await _add_wait(held, reservation, traces)
        return
    async with held.work(one_statement=True) as uow:
        allocations = (await uow.reservations.allocations([reservation.id])).get(reservation.id, ())
        spans = await read_creations(uow, traces, [reservation])
    begun = clock.now()
    if any(gpu.claimed_by is not None for gpu in allocations):
        await _change(held, reservation.id, StartFailed(_CLAIMED, rules.max_starts), clock)
        spans.add(reservation, allocations, begun, begun, _CLAIMED.detail)
        return
    over = reservation.range_end is not None and reservation.range_end <= clock.now()
    if over and not await cluster.find_pods(reservation.id, pod_names(reservation)):
        await _change(held, reservation.id, StartFailed(_RANGE_OVER, rules.max_starts), clock)
        spans.add(reservation, allocations, begun, clock.now(), _RANGE_OVER.detail)
        return
    if reservation.workload.unread is not None:
        await _change(held, reservation.id, StartDelayed(_UNREAD), clock)
        raise MessageNotDueError(_UNREAD.detail, rules.not_now_pause)
    secrets = await _read_secrets(held, reservation, clock, rules)
    if secrets is None:
        spans.add(reservation, allocations, begun, clock.now(), "A secret of the job was deleted before it started.")
        return
    master = cluster.master_address(reservation.id, reservation.attempt)
    specs = pod_specs(reservation, allocations, clock.now(), rules.grace, rules.belt, master, rules.access, secrets)
    begun = clock.now()
    creation = PodCreation(held, cluster, clock, late=rules.late, slow_after=rules.slow_after)
    # Rank 0 comes last, as the others wait for it: when one is refused, no work has begun.
    others = [spec for spec in specs if spec.name.rank]
    try:
        for group in (others, [spec for spec in specs if not spec.name.rank]):
            await creation.all([partial(creation.create, spec) for spec in group])
    except PodRefusedError as refusal:
        await _change(held, reservation.id, StartRefused(refusal.reason), clock)
        spans.add(reservation, allocations, begun, clock.now(), refusal.reason.detail)
    except PodNotNowError as refusal:
        await _change(held, reservation.id, StartDelayed(refusal.reason), clock)
        raise MessageNotDueError(refusal.reason.detail, rules.not_now_pause) from refusal
    else:
        spans.add(reservation, allocations, begun, clock.now())


async def _add_wait(held: HeldPods, reservation: Reservation, traces: Traces | None) -> None:
    """Add the wait of a job that ended before its pods were created, which nothing else adds."""
    is_over = reservation.status is JobStatus.ENDING or reservation.status in FINAL_STATUSES
    if traces is None or reservation.trace is None or reservation.started_at is not None or not is_over:
        return
    async with held.work(one_statement=True) as uow:
        allocations = (await uow.reservations.allocations([reservation.id])).get(reservation.id, ())
        spans = await read_creations(uow, traces, [reservation])
    spans.add_wait(reservation, allocations)


async def _read_secrets(
    held: HeldPods, reservation: Reservation, clock: Clock, rules: LaunchRules
) -> tuple[PodSecret, ...] | None:
    """The job's secrets with their values now; None when one was deleted, which ends the job.

    Raises MessageNotDueError while one can't be read.
    """
    uses = reservation.workload.secrets
    if not uses:
        return ()
    try:
        async with held.work(one_statement=True) as uow:
            values = await uow.secrets.values(reservation.user_id, {use.name for use in uses})
    except SecretUnreadableError as problem:
        reason = Reason(ReasonCode.START_FAILED, f"{problem} {_KEY_MISSING}")
        await _change(held, reservation.id, StartDelayed(reason), clock)
        raise MessageNotDueError(reason.detail, rules.not_now_pause) from problem
    missing = sorted({use.name for use in uses} - values.keys())
    if missing:
        attempt = reservation.attempt
        start = "the job" if attempt == 1 else f"attempt {attempt} of the job"
        detail = f"The secret {missing[0]} was deleted before {start} started. Set it again and resubmit the job."
        await _change(held, reservation.id, StartRefused(Reason(ReasonCode.START_FAILED, detail)), clock)
        return None
    return tuple(PodSecret(use, values[use.name]) for use in uses)


async def _change(held: HeldPods, reservation_id: str, event: Event, clock: Clock) -> None:
    async with held.work() as uow:
        row = (await uow.reservations.lock([reservation_id]))[reservation_id]
        change = decide(row, event, clock.now())
        if change is not None:
            await carry_out(uow, [change])


async def _delete(
    held: HeldPods,
    cluster: Cluster,
    reservation: Reservation,
    clock: Clock,
    rules: LaunchRules,
    last_output: LastOutput | None,
) -> None:
    if reservation.status is not JobStatus.ENDING:
        return
    pods = await cluster.find_pods(reservation.id, pod_names(reservation))
    if pods:
        await _note_exit(held, reservation, pods, clock, rules)
        await keep_tails(held, cluster, pods, clock, lines=rules.log_lines, patience=rules.log_patience)
        async with held.work(one_statement=True) as uow:
            powerless = await without_power(uow, reservation, pods)
        if last_output is not None:
            running = [pod.name for pod in pods if pod.phase is PodPhase.RUNNING and str(pod.name) not in powerless]
            last_output.follow(running, rules.grace)
        # While a create may still be carried out, finished pods stay: a taken name can't run a second time.
        unsettled = _unsettled_for(reservation, clock) > timedelta(0)
        deletes = [
            partial(cluster.forget_pod, name)
            if name in powerless
            else partial(cluster.delete_pod, name, rules.grace, keep_name=unsettled, why=reservation.reason)
            for name in (str(pod.name) for pod in pods if not (unsettled and pod.phase is PodPhase.FINISHED))
        ]
        await call_all(deletes)
        await _note_late_start(held, reservation, pods, clock)
        pods = await cluster.find_pods(reservation.id, pod_names(reservation))
    # Finished pods hold no GPU, even if their deleted objects still exist.
    if all(pod.phase is PodPhase.FINISHED for pod in pods):
        await _finalise(held, reservation, clock, rules)


async def _note_exit(
    held: HeldPods, reservation: Reservation, pods: Sequence[PodStatus], clock: Clock, rules: LaunchRules
) -> None:
    """Record how a finished pod ended before it is removed, in case its end was not observed yet."""
    if reservation.exit_code is not None:
        return
    if reservation.outcome is JobStatus.QUEUED and not is_preempted(reservation):
        return
    for pod in pods:
        if pod.name.attempt == reservation.attempt and pod.phase is PodPhase.FINISHED:
            event = event_of(reservation, pod, pods, clock.now(), rules.max_starts)
            if event is not None:
                await _change(held, reservation.id, event, clock)
                return


async def _note_late_start(held: HeldPods, reservation: Reservation, pods: Sequence[PodStatus], clock: Clock) -> None:
    """Record a start after the start was given up, so that the job is not requeued."""
    begun = [
        pod
        for pod in pods
        if pod.name.attempt == reservation.attempt and (pod.phase is PodPhase.RUNNING or pod.started_at is not None)
    ]
    if reservation.outcome is not JobStatus.QUEUED or len(begun) < reservation.nodes:
        return
    at = max((at for pod in begun if (at := began(pod)) is not None), default=clock.now())
    await _change(held, reservation.id, PodsRunning(at), clock)


async def _move_deadline(cluster: Cluster, reservation: Reservation, rules: LaunchRules) -> None:
    last = last_end(reservation)
    if reservation.status not in (JobStatus.STARTING, JobStatus.RUNNING) or last is None:
        return
    for name in pod_names(reservation):
        await cluster.extend_deadline(str(name), last + rules.belt)


async def _send_signal(cluster: Cluster, reservation: Reservation) -> None:
    """Send a job the signal that it asked for before its end; more than once after a crash at a bad moment."""
    terms = reservation.preemption
    if terms.end_signal is None or (terms.signalled_at is None and terms.asked_at is None):
        return
    if reservation.status in (JobStatus.RUNNING, JobStatus.ENDING):
        signal = terms.end_signal.signal
        await call_all([partial(cluster.signal_pod, str(name), signal) for name in pod_names(reservation)])
