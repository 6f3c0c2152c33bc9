"""From what is to run to the objects that run it: pure, without a client.

What a user says reaches the image, the command, the variables and the working directory, and nothing else. Every pod
fits Pod Security `restricted`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from math import ceil
from typing import Any, assert_never

from reservation_core.adapters.kubernetes.pods.gpu_attaching import GpuAttach, GpuPin
from reservation_core.adapters.kubernetes.pods.image_names import is_image_reference
from reservation_core.adapters.kubernetes.pods.marks import annotations, attempt_labels, labels
from reservation_core.adapters.kubernetes.pods.pod_defaults import SHM_PATH, SHM_VOLUME, PodDefaults, ResourceShare
from reservation_core.adapters.kubernetes.pods.quantities import read_quantity, written_bytes, written_cores
from reservation_core.domain.model import PodName, PodSpec, Reason, ReasonCode
from reservation_core.ports.cluster import PodRefusedError

CONTAINER = "workload"
"""The container of every pod of ours: whose state, exit code and log count."""

GPU_UUID = re.compile(r"(GPU|MIG)-[A-Za-z0-9][A-Za-z0-9._/-]{0,99}")
"""What may stand in NVIDIA_VISIBLE_DEVICES: words such as `all` must never get there as somebody's UUID."""

# Holds the pod until its end and goes at once when told to: a bare `sleep` as a container's first process would ignore
# SIGTERM. Needs /bin/sh and sleep, which images without a shell don't have; those can't be used for sessions.
SESSION_COMMAND = (
    "/bin/sh",
    "-c",
    'trap \'kill "$!" 2>/dev/null; exit 0\' TERM INT; while :; do sleep 3600 & wait "$!"; done',
)

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SILENT_NODE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_MOST_SECONDS = 2**31 - 1
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_RUNTIME_VISIBLE = "NVIDIA_VISIBLE_DEVICES"
_ORDER = "CUDA_DEVICE_ORDER"


@dataclass(frozen=True, slots=True)
class PodRules:
    """What all pods of this cluster have in common.

    `extension_room` is how much later than its deadline the cluster ends a pod by itself: Kubernetes can shorten that
    time and never lengthen it. `resource_name` is what pods request with `device-plugin` from a node of which it is not
    known what it has.
    """

    namespace: str
    attach: GpuAttach = GpuAttach.ENV
    pin: GpuPin = GpuPin.AFFINITY
    scheduler_name: str = "default-scheduler"
    default_image: str | None = None
    defaults: PodDefaults = field(default_factory=PodDefaults)
    extension_room: timedelta = timedelta(days=30)
    resource_name: str = "nvidia.com/gpu"


def build_pod(spec: PodSpec, rules: PodRules, now: datetime) -> dict[str, Any]:
    """The Pod object for one rank of a reservation.

    Raises PodRefusedError for what no pod can be made of: no image, an image's name that is none, text that no process
    can be given, a card without a UUID where pods are given cards by UUID.
    """
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": str(spec.name),
            "namespace": rules.namespace,
            "labels": labels(spec),
            "annotations": annotations(spec),
        },
        "spec": {
            **_placement(spec.node, rules),
            **({"hostname": str(spec.name), "subdomain": service_name(spec.name)} if spec.pods > 1 else {}),
            "restartPolicy": "Never",
            "activeDeadlineSeconds": _seconds(spec.deadline - now + rules.extension_room),
            "terminationGracePeriodSeconds": _seconds(spec.grace),
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": _pod_security(rules.defaults),
            **_from_defaults(rules),
            "containers": [_container(spec, rules)],
            "volumes": _volumes(rules.defaults),
        },
    }


def build_service(spec: PodSpec, rules: PodRules, owner_uid: str) -> dict[str, Any]:
    """The headless Service by which the pods of a gang know each other's names from the start.

    `owner_uid` is the uid of rank 0's pod, with which the service goes.
    """
    marks = attempt_labels(spec.name)
    owner = str(PodName(spec.name.reservation_id, spec.name.attempt, 0))
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": service_name(spec.name),
            "namespace": rules.namespace,
            "labels": marks,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": owner_uid}],
        },
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": marks},
    }


def service_name(name: PodName) -> str:
    """The service of an attempt: the same for all its ranks."""
    return f"{name.reservation_id}-{name.attempt}"


def master_address(reservation_id: str, attempt: int) -> str:
    """Where the pods of a gang reach rank 0, inside their namespace."""
    first = PodName(reservation_id, attempt, 0)
    return f"{first}.{service_name(first)}"


def _placement(node: str, rules: PodRules) -> dict[str, Any]:
    match rules.pin:
        case GpuPin.NODE_NAME:
            return {"nodeName": node}
        case GpuPin.AFFINITY:
            term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
            return {"schedulerName": rules.scheduler_name, "affinity": {"nodeAffinity": required}}
        case _:
            assert_never(rules.pin)


def _seconds(length: timedelta) -> int:
    """Whole seconds within what the API takes. Never 0: that would remove a pod without its node's word."""
    return min(max(1, ceil(length.total_seconds())), _MOST_SECONDS)


def _pod_security(defaults: PodDefaults) -> dict[str, Any]:
    context = defaults.securityContext
    return {
        "runAsNonRoot": True,
        **context.model_dump(exclude_none=True, exclude={"supplementalGroups"}),
        **({"supplementalGroups": list(context.supplementalGroups)} if context.supplementalGroups else {}),
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _from_defaults(rules: PodRules) -> dict[str, Any]:
    defaults = rules.defaults
    said: dict[str, Any] = {}
    if defaults.runtimeClassName is not None and rules.attach is not GpuAttach.DEVICE_PLUGIN:
        said["runtimeClassName"] = defaults.runtimeClassName
    if defaults.priorityClassName is not None:
        said["priorityClassName"] = defaults.priorityClassName
    said["tolerations"] = _tolerations(defaults)
    if defaults.imagePullSecrets:
        said["imagePullSecrets"] = [secret.model_dump() for secret in defaults.imagePullSecrets]
    return said


def _tolerations(defaults: PodDefaults) -> list[dict[str, Any]]:
    """The administrators', and those that keep a pod when its node falls silent.

    Kubernetes would take such a pod away after 300 s. But a machine that can't be asked may well be working: what runs
    there ends when it says so, or when it is fenced.
    """
    given = [toleration.model_dump(exclude_none=True) for toleration in defaults.tolerations]
    named = {toleration.key for toleration in defaults.tolerations}
    return given + [
        {"key": key, "operator": "Exists", "effect": "NoExecute"} for key in _SILENT_NODE if key not in named
    ]


def _container(spec: PodSpec, rules: PodRules) -> dict[str, Any]:
    command = spec.workload.command or SESSION_COMMAND
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": _image(spec, rules),
        "command": [_literal(_text(word, "the command")) for word in command],
        "env": [{"name": name, "value": _literal(value)} for name, value in sorted(_environment(spec, rules).items())],
        "resources": _resources(spec, rules),
        # What the pod says of its containers is not said again: the API server keeps a record of every field.
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [
            {"name": SHM_VOLUME, "mountPath": SHM_PATH},
            *(mount.model_dump(exclude_none=True, exclude_defaults=True) for mount in rules.defaults.volumeMounts),
        ],
    }
    if spec.workload.working_dir is not None:
        container["workingDir"] = _text(spec.workload.working_dir, "the working directory")
    return container


def _image(spec: PodSpec, rules: PodRules) -> str:
    image = spec.workload.image or rules.default_image
    if image is None:
        raise _refusal(
            ReasonCode.START_FAILED,
            "The job names no image, and this cluster has no default. Submit it again with an image (`--image`), or ask"
            " an administrator to set GPU_DEV_KUBERNETES__DEFAULT_IMAGE.",
        )
    if not is_image_reference(image):
        raise _refusal(
            ReasonCode.IMAGE_PULL_FAILED,
            f"{image[:200]!r} is not the name of an image. Submit the job again with one like"
            " registry.example.org/team/train:1.2.",
        )
    return image


def _environment(spec: PodSpec, rules: PodRules) -> dict[str, str]:
    """The administrator's variables, the job's, and those by which it gets its cards: later ones win."""
    env = {variable.name: variable.value for variable in rules.defaults.env}
    for name, value in spec.env:
        if not _ENV_NAME.fullmatch(name):
            raise _refusal(
                ReasonCode.START_FAILED,
                f"{name[:200]!r} can't be a variable's name. Submit the job again with names of letters, digits and _.",
            )
        env[name] = _text(value, f"the variable {name}")
    for name in (_VISIBLE, _RUNTIME_VISIBLE):
        env.pop(name, None)
    match rules.attach:
        case GpuAttach.ENV if (uuids := _known_uuids(spec)) is not None:
            env |= _by_uuid(uuids)
        case GpuAttach.ENV:
            indices = ",".join(str(index) for index in spec.gpu_indices)
            env |= {_VISIBLE: indices, _RUNTIME_VISIBLE: "all", _ORDER: "PCI_BUS_ID"}
        case GpuAttach.UUID:
            env |= _by_uuid(_uuids(spec))
        case GpuAttach.DEVICE_PLUGIN:
            env |= {_ORDER: "PCI_BUS_ID"}
        case _:
            assert_never(rules.attach)
    return env


def _by_uuid(uuids: Sequence[str]) -> dict[str, str]:
    """Both by UUID: a container that is given some of the cards counts them anew, so the host's indices say others."""
    said = ",".join(uuids)
    return {_VISIBLE: said, _RUNTIME_VISIBLE: said, _ORDER: "PCI_BUS_ID"}


def _known_uuids(spec: PodSpec) -> list[str] | None:
    """The UUIDs of the pod's cards; None where not all are known."""
    known = [uuid for uuid in spec.gpu_uuids if uuid is not None and GPU_UUID.fullmatch(uuid)]
    return known if len(set(known)) == len(known) == len(spec.gpu_indices) else None


def _uuids(spec: PodSpec) -> list[str]:
    known = _known_uuids(spec)
    if known is None:
        # An index of the host's would name another card inside the container: rather no pod than that.
        raise _refusal(
            ReasonCode.START_FAILED,
            f"The UUIDs of the job's GPUs on {spec.node} are not all known. Submit the job again; an administrator"
            " should run the node agent there (`python -m availability_updater --node-agent`).",
        )
    return known


def _resources(spec: PodSpec, rules: PodRules) -> dict[str, Any]:
    shares, gpus = rules.defaults.resources, len(spec.gpu_indices)
    requests, limits = dict(_amounts(shares.requests, gpus)), dict(_amounts(shares.limits, gpus))
    if rules.attach is GpuAttach.DEVICE_PLUGIN:
        name = spec.gpu_resource or rules.resource_name
        requests[name] = limits[name] = str(gpus)
    return {"requests": requests, "limits": limits}


@lru_cache(maxsize=1024)
def _amounts(share: ResourceShare, gpus: int) -> Mapping[str, str]:
    def total(kind: str) -> Any:
        per_pod, per_gpu = (read_quantity(getattr(part, kind)) for part in (share.per_pod, share.per_gpu))
        return per_pod + gpus * per_gpu

    amounts = {
        "cpu": written_cores(total("cpu")),
        "memory": written_bytes(total("memory")),
        "ephemeral-storage": written_bytes(total("ephemeral_storage")),
    }
    return {kind: amount for kind, amount in amounts.items() if amount != "0"}


def _volumes(defaults: PodDefaults) -> list[dict[str, Any]]:
    # Frameworks share batches between processes there, and the 64 MiB that containers have by themselves don't do.
    memory: dict[str, Any] = {"medium": "Memory"}
    if defaults.shm_size is not None:
        memory["sizeLimit"] = defaults.shm_size
    own = {"name": SHM_VOLUME, "emptyDir": memory}
    return [own, *(volume.model_dump(exclude_none=True) for volume in defaults.volumes)]


def _text(text: str, what: str) -> str:
    """Text that a process can be given. Raises PodRefusedError for NUL and for what UTF-8 can't say."""
    try:
        text.encode()
    except UnicodeEncodeError:
        text = "\x00"
    if "\x00" in text:
        raise _refusal(
            ReasonCode.START_FAILED,
            f"There are characters in {what} that no process can be given. Remove them and submit the job again.",
        )
    return text


def _literal(text: str) -> str:
    """The text as Kubernetes must be told it: `$(NAME)` would be replaced there, and `$$` is how to say `$`."""
    return text.replace("$", "$$")


def _refusal(code: ReasonCode, detail: str) -> PodRefusedError:
    return PodRefusedError(Reason(code, detail))
