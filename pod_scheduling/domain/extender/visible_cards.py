"""Containers with shares of cards are told which, where a pod asks for that by a label: by what its binding will say.

The scheduler extender writes an annotation for each container with the binding, before anything of the pod starts; a
variable refers to it. Where nobody wrote it the variable is empty, and CUDA finds no card. What a user brings under the
annotations' names is taken away: only who binds the pod says them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pod_scheduling.domain.extender.asked_cards import CardResources, asked_cards
from pod_scheduling.domain.extender.card_marks import INDEX_OF
from reservation_core.domain.pods import map_marks
from reservation_core.domain.pods.enforced_variables import VariableOwner, WantedVariable, set_env
from reservation_core.domain.pods.pod_changes import PodChanges
from reservation_core.domain.pods.pod_containers import RefusedPodError, container_named, containers_of
from reservation_core.domain.pods.reviews import (
    Denied,
    Operation,
    Patched,
    PodReview,
    Untouched,
    Verdict,
    annotations_of,
    labels_of,
    members,
)

LABEL: Final = "gpu-dev/cards"
VISIBLE: Final = "visible"
"""The label's value by which a pod asks to be told."""

_TOLD = f"the label {LABEL}"


@dataclass(frozen=True, slots=True)
class VisibleCardsRules:
    """What shares are called, whose pods have a map instead, and whether a variable of another value is overwritten."""

    resources: CardResources = field(default_factory=CardResources)
    map_scheduler: str = map_marks.SCHEDULER_NAME
    override_devices: bool = False


def visible_cards(review: PodReview, rules: VisibleCardsRules) -> Verdict:
    """The verdict on a pod: only new ones are changed, as an environment stays as it is."""
    pod = members(review.pod)
    if review.operation is not Operation.CREATE or review.subresource or labels_of(pod).get(LABEL) != VISIBLE:
        return Untouched()
    spec = members(pod.get("spec"))
    if spec.get("schedulerName") == rules.map_scheduler:
        return Untouched()  # the map says its cards
    try:
        return _enforce(pod, spec, rules)
    except RefusedPodError as refusal:
        return Denied(str(refusal))


def _enforce(pod: Mapping[str, Any], spec: Mapping[str, Any], rules: VisibleCardsRules) -> Verdict:
    changes, warnings, names = PodChanges(pod), list[str](), list[str]()
    by = VariableOwner(_TOLD, "the label", override=rules.override_devices)
    for path, container in containers_of(spec, "initContainers", "containers"):
        asked = asked_cards({"containers": [container]}, rules.resources)
        name = container_named(path, container)
        if not asked.shares:
            continue
        if path[1] == "initContainers":
            warnings.append(f"{name} does not see its GPU: no annotation names the GPUs of init containers")
        elif asked.plugin:
            warnings.append(f"{name} does not see its GPU: a device plugin gives it other GPUs, too")
        else:
            warnings += set_env(changes, path, container, _variables(int(path[2])), by)
            names.append(name)
    if not names:
        warnings.append(f"{_TOLD} does nothing: no container asks for {rules.resources.share} alone")
        return Untouched(tuple(warnings))
    changes.remove_annotations([annotation for annotation in annotations_of(pod) if annotation.startswith(INDEX_OF)])
    if not changes.operations:
        return Untouched(tuple(warnings))
    told = f"{map_marks.CUDA_VISIBLE_DEVICES} is what the binding will say for {', '.join(names)}"
    return Patched(changes.pod, changes.operations, (told,), tuple(warnings))


def _variables(number: int) -> tuple[WantedVariable, ...]:
    return (
        WantedVariable(map_marks.CUDA_VISIBLE_DEVICES, field=f"metadata.annotations['{INDEX_OF}{number}']"),
        WantedVariable(map_marks.CUDA_DEVICE_ORDER, map_marks.DEVICE_ORDER),
    )
