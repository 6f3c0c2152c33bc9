"""Build the Pod and Service objects of a job: pure, without a client. `secret_objects` builds Secrets.

User input reaches only the image, the command, the environment and the working directory. Every pod fits Pod Security
`restricted`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from math import ceil
from typing import Any, assert_never

from reservation_core.adapters.kubernetes.pods.added_programs import (
    command_with_files,
    file_variables,
    has_files,
    program_containers,
    program_mounts,
    program_volumes,
)
from reservation_core.adapters.kubernetes.pods.disk_volumes import disk_mounts, disk_variables, disk_volumes
from reservation_core.adapters.kubernetes.pods.gpu_attaching import GpuAttach, GpuPin
from reservation_core.adapters.kubernetes.pods.image_names import is_image_reference
from reservation_core.adapters.kubernetes.pods.marks import annotations, attempt_labels, labels
from reservation_core.adapters.kubernetes.pods.pod_defaults import SHM_PATH, SHM_VOLUME, PodDefaults, ResourceShare
from reservation_core.adapters.kubernetes.pods.quantities import format_bytes, format_cores, read_quantity
from reservation_core.adapters.kubernetes.pods.secret_objects import secret_mounts, secret_variables, secret_volumes
from reservation_core.domain.model import PodName, PodSpec, Reason
from reservation_core.domain.request_terms import MILLI, Share
from reservation_core.domain.statuses import ReasonCode
from reservation_core.domain.sync.files_program import FOLDER_PATH
from reservation_core.ports.cluster import PodRefusedError

CONTAINER = "workload"
"""The container of every job pod whose state, exit code and log count."""

GPU_UUID = re.compile(r"(GPU|MIG)-[A-Za-z0-9][A-Za-z0-9._/-]{0,99}")
"""A UUID that may be written to NVIDIA_VISIBLE_DEVICES: words such as `all` must never pass as a UUID."""

# Keeps a session's pod running and ends at once on SIGTERM, which a bare `sleep` as PID 1 would ignore. Needs /bin/sh
# and sleep in the image.
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


@dataclass(frozen=True, slots=True, eq=False)  # a key by identity: hashing all defaults takes as long as a small pod
class PodRules:
    """The common properties of all job pods of this cluster.

    `extension_room` is added to the deadline in activeDeadlineSeconds, which Kubernetes can shorten but not extend.
    `resource_name` is requested with `device-plugin` on nodes whose resource is unknown. An init container with
    `session_tools_image` puts sftp-server, scp and rsync beside sessions, one with `files_image` the program that gives
    jobs their files.
    """

    namespace: str
    attach: GpuAttach = GpuAttach.ENV
    pin: GpuPin = GpuPin.AFFINITY
    scheduler_name: str = "default-scheduler"
    default_image: str | None = None
    session_tools_image: str | None = None
    files_image: str | None = None
    files_pull_policy: str | None = None
    defaults: PodDefaults = field(default_factory=PodDefaults)
    extension_room: timedelta = timedelta(days=30)
    resource_name: str = "nvidia.com/gpu"


def build_pod(spec: PodSpec, rules: PodRules, now: datetime) -> dict[str, Any]:
    """The Pod object for one rank of a reservation.

    Raises PodRefusedError without a valid image name, for text that no process can receive, for GPUs without UUIDs
    where pods get GPUs by UUID, and for files where no image brings their program.
    """
    programs = program_containers(spec, rules.session_tools_image, rules.files_image, rules.files_pull_policy)
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
            **({"hostname": _label(str(spec.name)), "subdomain": service_name(spec.name)} if spec.pods > 1 else {}),
            "activeDeadlineSeconds": _seconds(spec.deadline - now + rules.extension_room),
            "terminationGracePeriodSeconds": _seconds(spec.grace),
            **_alike(rules),
            **({"initContainers": programs} if programs else {}),
            "containers": [_container(spec, rules, has_programs=bool(programs))],
            "volumes": _volumes(spec, rules, has_programs=bool(programs)),
        },
    }


def build_service(spec: PodSpec, rules: PodRules, owner_uid: str) -> dict[str, Any]:
    """The headless Service that gives the pods of a gang their DNS names.

    `owner_uid` is the uid of rank 0's pod; the service is deleted with it.
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
    """The name of the service of an attempt, the same for all its ranks."""
    return f"{_label(name.reservation_id)}-{name.attempt}"


def master_address(reservation_id: str, attempt: int) -> str:
    """The DNS name of rank 0 within the namespace of a gang's pods."""
    first = PodName(reservation_id, attempt, 0)
    return f"{_label(str(first))}.{service_name(first)}"


def _label(name: str) -> str:
    """A name for DNS: ids of an array's elements have a dot."""
    return name.replace(".", "-")


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
    """Whole seconds in the range of the API; never 0, which would remove a pod before its kubelet ended it."""
    return min(max(1, ceil(length.total_seconds())), _MOST_SECONDS)


def _pod_security(defaults: PodDefaults) -> dict[str, Any]:
    context = defaults.securityContext
    return {
        "runAsNonRoot": True,
        **context.model_dump(exclude_none=True, exclude={"supplementalGroups"}),
        **({"supplementalGroups": list(context.supplementalGroups)} if context.supplementalGroups else {}),
        "seccompProfile": {"type": "RuntimeDefault"},
    }


@lru_cache(maxsize=16)
def _alike(rules: PodRules) -> Mapping[str, Any]:
    """The fields of a pod's spec that are the same in all pods."""
    defaults = rules.defaults
    fields: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": _pod_security(defaults),
    }
    if defaults.runtimeClassName is not None and rules.attach is not GpuAttach.DEVICE_PLUGIN:
        fields["runtimeClassName"] = defaults.runtimeClassName
    if defaults.priorityClassName is not None:
        fields["priorityClassName"] = defaults.priorityClassName
    fields["tolerations"] = _tolerations(defaults)
    if defaults.imagePullSecrets:
        fields["imagePullSecrets"] = [secret.model_dump() for secret in defaults.imagePullSecrets]
    return fields


def _tolerations(defaults: PodDefaults) -> list[dict[str, Any]]:
    """The configured tolerations, and those that keep a pod on an unreachable node.

    Kubernetes would evict such a pod after 300 s, but its processes may still run: they end when the node reports it or
    is fenced.
    """
    configured = [toleration.model_dump(exclude_none=True) for toleration in defaults.tolerations]
    named = {toleration.key for toleration in defaults.tolerations}
    return configured + [
        {"key": key, "operator": "Exists", "effect": "NoExecute"} for key in _SILENT_NODE if key not in named
    ]


def _container(spec: PodSpec, rules: PodRules, *, has_programs: bool) -> dict[str, Any]:
    command = command_with_files(spec) if has_files(spec) else spec.workload.command or SESSION_COMMAND
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": _image(spec, rules),
        "command": [_literal(_text(word, "the command")) for word in command],
        "env": [
            *({"name": name, "value": _literal(value)} for name, value in sorted(_environment(spec, rules).items())),
            *secret_variables(spec),
            *disk_variables(spec),
        ],
        "resources": _resources(spec, rules),
        # Settings of the pod are not repeated here: the API server stores an owner for every field.
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [
            {"name": SHM_VOLUME, "mountPath": SHM_PATH},
            *secret_mounts(spec),
            *disk_mounts(spec),
            *program_mounts(spec, has_programs=has_programs),
            *(mount.model_dump(exclude_none=True, exclude_defaults=True) for mount in rules.defaults.volumeMounts),
        ],
    }
    if has_files(spec):
        container["workingDir"] = FOLDER_PATH
    elif spec.workload.working_dir is not None:
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
    """The administrator's variables, then the job's, then those for its GPUs; later ones win."""
    secret = {variable["name"] for variable in secret_variables(spec)}
    env = {variable.name: variable.value for variable in rules.defaults.env if variable.name not in secret}
    for name, value in spec.env:
        if not _ENV_NAME.fullmatch(name):
            raise _refusal(
                ReasonCode.START_FAILED,
                f"{name[:200]!r} can't be a variable's name. Submit the job again with names of letters, digits and _.",
            )
        if name not in secret:
            env[name] = _text(value, f"the variable {name}")
    env |= file_variables(spec)
    for name in (_VISIBLE, _RUNTIME_VISIBLE):
        env.pop(name, None)
    if not spec.gpu_indices:
        return env | {_VISIBLE: "", _RUNTIME_VISIBLE: "void"}
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
    """GPU variables by UUID, as indices are renumbered in a container with some of the GPUs."""
    devices = ",".join(uuids)
    return {_VISIBLE: devices, _RUNTIME_VISIBLE: devices, _ORDER: "PCI_BUS_ID"}


def _known_uuids(spec: PodSpec) -> list[str] | None:
    """The UUIDs of the pod's GPUs; None unless all are known."""
    known = [uuid for uuid in spec.gpu_uuids if uuid is not None and GPU_UUID.fullmatch(uuid)]
    return known if len(set(known)) == len(known) == len(spec.gpu_indices) else None


def _uuids(spec: PodSpec) -> list[str]:
    known = _known_uuids(spec)
    if known is None:
        # The host's index would select another GPU inside the container.
        raise _refusal(
            ReasonCode.START_FAILED,
            f"The UUIDs of the job's GPUs on {spec.node} are not all known. Submit the job again; an administrator"
            " should run the node agent there (`python -m availability_updater --node-agent`).",
        )
    return known


def _resources(spec: PodSpec, rules: PodRules) -> dict[str, Any]:
    gpus = len(spec.gpu_indices)
    requests, limits = (dict(amounts) for amounts in _amounts(rules, gpus))
    for kind, amount in _asked(spec).items():
        requests[kind] = limits[kind] = amount
    if gpus and rules.attach is GpuAttach.DEVICE_PLUGIN:
        name = spec.gpu_resource or rules.resource_name
        requests[name] = limits[name] = str(gpus)
    return {"requests": requests, "limits": limits}


def _asked(spec: PodSpec) -> dict[str, str]:
    """What the job asks for, which goes before the administrator's defaults."""
    cpu_milli, memory_bytes = Share() if spec.resources is None else spec.resources.share
    return {
        **({} if cpu_milli is None else {"cpu": format_cores(Decimal(cpu_milli) / MILLI)}),
        **({} if memory_bytes is None else {"memory": format_bytes(Decimal(memory_bytes))}),
    }


@lru_cache(maxsize=1024)
def _amounts(rules: PodRules, gpus: int) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """The requests and the limits of so many GPUs by the administrator's defaults."""
    shares = rules.defaults.resources
    return _total(shares.requests, gpus), _total(shares.limits, gpus)


def _total(share: ResourceShare, gpus: int) -> Mapping[str, str]:
    def total(kind: str) -> Any:
        per_pod, per_gpu = (read_quantity(getattr(part, kind)) for part in (share.per_pod, share.per_gpu))
        return per_pod + gpus * per_gpu

    amounts = {
        "cpu": format_cores(total("cpu")),
        "memory": format_bytes(total("memory")),
        "ephemeral-storage": format_bytes(total("ephemeral_storage")),
    }
    return {kind: amount for kind, amount in amounts.items() if amount != "0"}


def _volumes(spec: PodSpec, rules: PodRules, *, has_programs: bool) -> list[dict[str, Any]]:
    defaults = rules.defaults
    # Frameworks share batches through /dev/shm, and the default 64 MiB are too small for that.
    memory: dict[str, Any] = {"medium": "Memory"}
    if spec.resources is not None and spec.resources.shm_bytes is not None:
        memory["sizeLimit"] = format_bytes(Decimal(spec.resources.shm_bytes))
    elif defaults.shm_size is not None:
        memory["sizeLimit"] = defaults.shm_size
    own: list[dict[str, Any]] = [{"name": SHM_VOLUME, "emptyDir": memory}]
    own += program_volumes(spec, has_programs=has_programs)
    asked = [*secret_volumes(spec), *disk_volumes(spec)]
    return [*own, *asked, *(volume.model_dump(exclude_none=True) for volume in defaults.volumes)]


def _text(text: str, what: str) -> str:
    """Return text that a process can receive. Raises PodRefusedError for NUL and for text that is not UTF-8."""
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
    """Escape `$` for Kubernetes, which would replace `$(NAME)`."""
    return text.replace("$", "$$")


def _refusal(code: ReasonCode, detail: str) -> PodRefusedError:
    return PodRefusedError(Reason(code, detail))
