"""Whether a pod that asks for GPUs may be, by its owner's booking: with an end, without a right to stay, or not at all.

Decided on what is known now. What two replicas of the webhook let by at the same instant, or what changes later, is for
those who end pods; here nothing is written but on the pod.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import assert_never

from pod_scheduling.domain.enforcement import enforcement_marks as marks
from pod_scheduling.domain.enforcement.pod_gpus import GpuNeed
from reservation_core.domain.pods.booked_nodes import restrict_to_nodes
from reservation_core.domain.pods.cards_in_containers import NO_CARDS, NVIDIA_VISIBLE_DEVICES
from reservation_core.domain.pods.gpu_resources import is_gpu_resource
from reservation_core.domain.pods.pod_changes import Path, PodChanges
from reservation_core.domain.pods.reviews import (
    Denied,
    Operation,
    Patched,
    PodReview,
    Untouched,
    Verdict,
    annotations_of,
)


class Unbooked(StrEnum):
    """The treatment of a pod whose owner has no booking for it."""

    DENY = "deny"
    PREEMPTIBLE = "preemptible"
    WITHOUT_GPUS = "without_gpus"


class Silence(StrEnum):
    """The treatment of pods while the schedulability service does not answer."""

    FAIL_OPEN = "fail_open"
    FAIL_CLOSED = "fail_closed"
    LAST_KNOWN = "last_known"


class Place(StrEnum):
    """Where pods on bookings run."""

    BOOKED_NODES = "booked_nodes"
    ANYWHERE = "anywhere"


@dataclass(frozen=True, slots=True)
class EnforcementRules:
    """Rules of enforcement. `gpu_resources` are those that are GPUs; `silence` is asked when there is no answer.

    `mark_keepers`: the names of those who may change marks of pods that are there, such as who ends them.
    """

    unbooked: Unbooked = Unbooked.DENY
    silence: Silence = Silence.LAST_KNOWN
    gpu_resources: Sequence[str] = ("nvidia.com/gpu", "amd.com/gpu")
    mark_keepers: Sequence[str] = ()
    place: Place = Place.BOOKED_NODES


@dataclass(frozen=True, slots=True)
class Standing:
    """What the schedulability service said of a user and a need. `until` None while schedulable: without end.

    `fresh`: said just now; else it is the last that was heard, and the service is silent. `nodes`: those on which the
    booking has room for one such pod; None: nobody has said.
    """

    schedulable: bool
    reason: str
    until: datetime | None = None
    booking_id: str | None = None
    fresh: bool = True
    nodes: tuple[str, ...] | None = None


def enforcement(
    review: PodReview,
    need: GpuNeed,
    owner: str | None,
    standing: Standing | None,
    rules: EnforcementRules,
    now: datetime,
) -> Verdict:
    """The verdict on a pod of a namespace where bookings are enforced. `standing` None: nobody could say.

    Marks that the pod brings are taken away in any case; on updates they may not change.
    """
    match review.operation:
        case Operation.CREATE if not review.subresource and review.pod is not None:
            pass
        case Operation.UPDATE if review.pod is not None:
            return _updated(review, rules.mark_keepers)
        case _:
            return Untouched()
    changes = PodChanges(review.pod)
    if need.gpus == 0:
        changes.remove_annotations(marks.ENFORCEMENT_MARKS)
        return _verdict(changes, (), ())
    if owner is None:
        return Denied(
            f"nobody has said whose pods {review.requester.username or 'this requester'} makes in namespace"
            f" {review.namespace}; ask an administrator to map the namespace or the name to a user"
        )
    if standing is None or (not standing.fresh and not _still_counts(standing, rules.silence, now)):
        return _unknown(changes, owner, rules.silence)
    if standing.schedulable and (standing.until is None or standing.until > now):
        return _allowed(changes, need, owner, standing, rules)
    return _unbooked(changes, need, owner, standing, rules)


def _still_counts(standing: Standing, silence: Silence, now: datetime) -> bool:
    return silence is Silence.LAST_KNOWN and (standing.until is None or standing.until > now)


def _allowed(changes: PodChanges, need: GpuNeed, owner: str, standing: Standing, rules: EnforcementRules) -> Verdict:
    match rules.place:
        case Place.BOOKED_NODES if standing.nodes is not None:
            booking = "what is booked" if standing.booking_id is None else f"booking {standing.booking_id}"
            if not standing.nodes:
                reason = f"A pod's GPUs are of one node, and {booking} has {need.gpus} unused on none."
                return _unbooked(changes, need, owner, replace(standing, schedulable=False, reason=reason), rules)
            if (problem := restrict_to_nodes(changes, standing.nodes, booking)) is not None:
                return Denied(problem)
        case Place.BOOKED_NODES | Place.ANYWHERE:
            pass
        case _:
            assert_never(rules.place)
    wanted = {marks.OWNER: owner}
    if standing.until is not None:
        wanted[marks.TERMINATE_AT] = written_end(standing.until)
    if standing.booking_id is not None:
        wanted[marks.BOOKING] = standing.booking_id
    _mark(changes, wanted)
    end = f" until {wanted[marks.TERMINATE_AT]}" if marks.TERMINATE_AT in wanted else ""
    warnings = (f"the pod will be ended at {wanted[marks.TERMINATE_AT]}, the end of the booking",) if end else ()
    return _verdict(changes, (f"Admitting a pod of {owner}{end}",), warnings)


def _unknown(changes: PodChanges, owner: str, silence: Silence) -> Verdict:
    if silence is not Silence.FAIL_OPEN:
        return Denied(
            "nobody can say now whether you have booked GPUs: the schedulability service does not answer. Try again"
            " soon, and tell an administrator if it lasts"
        )
    _mark(changes, {marks.OWNER: owner})
    warning = "nobody could say whether you have booked GPUs; the pod was let by, and may be ended when it is known"
    return _verdict(changes, (f"Admitting a pod of {owner} unasked: the schedulability service is silent",), (warning,))


def _unbooked(changes: PodChanges, need: GpuNeed, owner: str, standing: Standing, rules: EnforcementRules) -> Verdict:
    match rules.unbooked:
        case Unbooked.DENY:
            return Denied(_why_not(need, standing))
        case Unbooked.PREEMPTIBLE:
            _mark(changes, {marks.OWNER: owner, marks.PREEMPTIBLE: "true"})
            warning = f"the pod may be ended when a booking needs its GPUs: {standing.reason}"
            return _verdict(changes, (f"Admitting a preemptible pod of {owner}",), (warning,))
        case Unbooked.WITHOUT_GPUS:
            if need.by_map:
                return Denied(f"{_why_not(need, standing)} (a pod with a scheduling map can't go without its GPUs)")
            _mark(changes, {})  # as of any pod without GPUs, which it is when it is reviewed again
            _take_gpus(changes, rules.gpu_resources)
            warning = f"the pod goes without GPUs: {standing.reason}"
            return _verdict(changes, (f"Admitting a pod of {owner} without GPUs",), (warning,))
        case _:
            assert_never(rules.unbooked)


def _why_not(need: GpuNeed, standing: Standing) -> str:
    kind = "" if need.gpu_type is None else f" --type {need.gpu_type}"
    booking = f"gpu-dev book create --gpus {need.gpus}{kind} --start now --for 2h"
    return f"{standing.reason} `gpu-dev book list` shows your bookings; `{booking}` makes one."


def _updated(review: PodReview, keepers: Sequence[str]) -> Verdict:
    """The marks of a pod that is there stay as they are; only the webhook writes them, and who keeps them."""
    if review.requester.username in keepers:
        return Untouched()
    had, has = annotations_of(review.old_pod), annotations_of(review.pod)
    for name in marks.ENFORCEMENT_MARKS:
        if had.get(name) != has.get(name):
            return Denied(f"the annotation {name} says what the pod was admitted with, and can't be changed")
    return Untouched()


def _mark(changes: PodChanges, wanted: dict[str, str]) -> None:
    changes.remove_annotations([name for name in marks.ENFORCEMENT_MARKS if name not in wanted])
    changes.annotate(wanted)


def _take_gpus(changes: PodChanges, resources: Sequence[str]) -> None:
    """Requests and limits of GPUs go, and the container runtime is told to hand in none."""
    spec = changes.pod.get("spec") or {}
    for kind in ("initContainers", "containers"):
        for position, container in enumerate(spec.get(kind) or ()):
            path: Path = ("spec", kind, position)
            asked = container.get("resources") or {}
            for part in ("limits", "requests"):
                for name in [resource for resource in asked.get(part) or () if is_gpu_resource(resource, resources)]:
                    changes.remove((*path, "resources", part, name))
            _hide_gpus(changes, path, container.get("env"))


def _hide_gpus(changes: PodChanges, path: Path, env: object) -> None:
    hidden = {"name": NVIDIA_VISIBLE_DEVICES, "value": NO_CARDS}
    if not isinstance(env, list) or not env:
        changes.add((*path, "env"), [hidden])
        return
    there = [position for position, variable in enumerate(env) if variable.get("name") == hidden["name"]]
    for position in there:
        if env[position] != hidden:
            changes.replace((*path, "env", position), hidden)
    if not there:
        changes.add((*path, "env", len(env)), hidden)


def _verdict(changes: PodChanges, log: tuple[str, ...], warnings: tuple[str, ...]) -> Verdict:
    if not changes.operations:
        return Untouched(warnings)
    return Patched(changes.pod, changes.operations, log, warnings)


def written_end(at: datetime) -> str:
    """An end as the annotation has it: RFC 3339, UTC, whole seconds."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
