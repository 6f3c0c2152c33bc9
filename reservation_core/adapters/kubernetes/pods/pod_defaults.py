"""The administrator's defaults for every pod: the YAML file in `GPU_DEV_KUBERNETES__POD_DEFAULTS`.

No default comes from a user, and none makes a pod that Pod Security `restricted` refuses.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from reservation_core.adapters.kubernetes.pods.quantities import read_quantity

RESERVED_NAMES = frozenset({"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES"})
RESERVED_PREFIX = "GPU_DEV_"
SHM_VOLUME = "dev-shm"
SHM_PATH = "/dev/shm"  # noqa: S108 -- a mount point inside the pod
LARGEST_NODE = 64  # GPUs; the largest request of a pod

_LABEL = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
_SUBDOMAIN = r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$"
_ENV_NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"


class BadPodDefaultsError(ValueError):
    """The file of pod defaults is unusable; the text says where it is wrong."""


def _quantity(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError("must be an amount such as 500m, 2 or 64Gi (quote decimals)")  # noqa: TRY004 -- for pydantic
    read_quantity(value)
    return str(value)


def _not_ours(name: str) -> str:
    if name in RESERVED_NAMES or name.startswith(RESERVED_PREFIX):
        raise ValueError("is set by the server for every pod; remove it")
    return name


Amount = Annotated[str, BeforeValidator(_quantity)]
ObjectName = Annotated[str, Field(pattern=_SUBDOMAIN)]
NotRoot = Annotated[int, Field(strict=True, ge=1, le=2**31 - 1)]


class Strict(BaseModel):
    """Base of every part: immutable, without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Toleration(Strict):
    """A toleration of taints. Without `key` it matches every taint, without `effect` every effect."""

    key: str | None = None
    operator: Literal["Exists", "Equal"] = "Equal"
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    tolerationSeconds: Annotated[int, Field(ge=0)] | None = None  # noqa: N815 -- Kubernetes' own name

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.operator == "Exists" and self.value is not None:
            raise ValueError("a toleration with operator Exists has no value; remove the value, or use Equal")
        if self.operator == "Equal" and not self.key:
            raise ValueError("a toleration without a key tolerates everything: say so with `operator: Exists`")
        if self.tolerationSeconds is not None and self.effect != "NoExecute":
            raise ValueError("tolerationSeconds goes with `effect: NoExecute` only")
        return self

    def tolerates(self, key: str, value: str, effect: str) -> bool:
        """Whether a pod may be scheduled to a node with this taint and stay there."""
        if self.tolerationSeconds is not None or (self.effect is not None and self.effect != effect):
            return False
        if self.operator == "Exists":
            return not self.key or self.key == key
        return self.key == key and (self.value or "") == value


class NameOnly(Strict):
    """A reference to an object of the pods' namespace."""

    name: ObjectName


class EnvVar(Strict):
    """An environment variable; a job's own variable of the same name wins."""

    name: Annotated[str, Field(pattern=_ENV_NAME), AfterValidator(_not_ours)]
    value: str = ""


class Volume(Strict):
    """A volume of a kind that Pod Security `restricted` allows; exactly one source."""

    name: Annotated[str, Field(pattern=_LABEL)]
    configMap: dict[str, Any] | None = None  # noqa: N815
    csi: dict[str, Any] | None = None
    downwardAPI: dict[str, Any] | None = None  # noqa: N815
    emptyDir: dict[str, Any] | None = None  # noqa: N815
    ephemeral: dict[str, Any] | None = None
    persistentVolumeClaim: dict[str, Any] | None = None  # noqa: N815
    projected: dict[str, Any] | None = None
    secret: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _one_harmless_source(self) -> Self:
        sources = [key for key in self.model_fields_set - {"name"} if getattr(self, key) is not None]
        if len(sources) != 1:
            raise ValueError(f"volume {self.name} needs exactly one source, and has {len(sources)}")
        if self.name == SHM_VOLUME:
            raise ValueError(f"the name {SHM_VOLUME} is taken by the volume at {SHM_PATH}; choose another")
        parts = (self.projected or {}).get("sources")
        if any("serviceAccountToken" in part for part in parts or () if isinstance(part, dict)):
            raise ValueError(f"volume {self.name} would give every job a service account's token; remove that source")
        return self


class VolumeMount(Strict):
    name: Annotated[str, Field(pattern=_LABEL)]
    mountPath: Annotated[str, Field(pattern=r"^/[^:]+$", max_length=4096)]  # noqa: N815
    subPath: Annotated[str, Field(pattern=r"^[^/:][^:]*$")] | None = None  # noqa: N815
    readOnly: bool = False  # noqa: N815


class Amounts(Strict):
    """Amounts of resources; 0 by default."""

    cpu: Amount = "0"
    memory: Amount = "0"
    ephemeral_storage: Annotated[Amount, Field(alias="ephemeral-storage")] = "0"


class ResourceShare(Strict):
    """What a pod gets: `per_pod` once, and `per_gpu` for each of its GPUs."""

    per_pod: Amounts = Amounts()
    per_gpu: Amounts = Amounts()


class Resources(Strict):
    """Requests and limits of pods."""

    requests: ResourceShare = ResourceShare(per_gpu=Amounts(cpu="500m", memory="1Gi"))
    limits: ResourceShare = ResourceShare(per_gpu=Amounts(cpu="8", memory="64Gi"))

    @model_validator(mode="after")
    def _limits_are_above(self) -> Self:
        for kind in ("cpu", "memory", "ephemeral_storage"):
            for gpus in (1, LARGEST_NODE):
                asked, most = (
                    read_quantity(getattr(share.per_pod, kind)) + gpus * read_quantity(getattr(share.per_gpu, kind))
                    for share in (self.requests, self.limits)
                )
                if (asked == 0 or most == 0) and kind != "ephemeral_storage":
                    raise ValueError(f"requests and limits both have to give a pod some {kind}")
                if asked > most and not (kind == "ephemeral_storage" and most == 0):
                    raise ValueError(
                        f"a pod with {gpus} GPUs would ask for more {kind} than its limit; raise the limit"
                    )
        return self


class SecurityContext(Strict):
    """The user and groups that workloads run as; never root."""

    runAsUser: NotRoot = 1000  # noqa: N815
    runAsGroup: NotRoot = 1000  # noqa: N815
    fsGroup: NotRoot | None = 1000  # noqa: N815
    supplementalGroups: tuple[NotRoot, ...] = ()  # noqa: N815


class PodDefaults(Strict):
    """The content of the file; see docs/guides/kubernetes.md.

    `runtimeClassName` applies where pods get their GPUs by variables (`env`, `uuid`); null means the cluster's default.
    """

    tolerations: tuple[Toleration, ...] = (
        Toleration(key="nvidia.com/gpu", operator="Exists"),
        Toleration(key="amd.com/gpu", operator="Exists"),
    )
    runtimeClassName: ObjectName | None = "nvidia"  # noqa: N815
    priorityClassName: ObjectName | None = None  # noqa: N815
    imagePullSecrets: tuple[NameOnly, ...] = ()  # noqa: N815
    volumes: tuple[Volume, ...] = ()
    volumeMounts: tuple[VolumeMount, ...] = ()  # noqa: N815
    securityContext: SecurityContext = SecurityContext()  # noqa: N815
    resources: Resources = Resources()
    shm_size: Amount | None = None  # null: bounded by the pod's memory limit, to which it always counts
    env: tuple[EnvVar, ...] = ()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        _unique("volumes", [volume.name for volume in self.volumes])
        _unique("env", [variable.name for variable in self.env])
        paths = [mount.mountPath.rstrip("/") for mount in self.volumeMounts]
        _unique("volumeMounts", [*paths, SHM_PATH])
        unknown = {mount.name for mount in self.volumeMounts} - {volume.name for volume in self.volumes}
        if unknown:
            raise ValueError(f"volumeMounts name volumes that are not there: {', '.join(sorted(unknown))}")
        return self


def _unique(where: str, names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{where} say {', '.join(twice)} more than once")


def read_pod_defaults(path: Path | None) -> PodDefaults:
    """Read the file's defaults; the built-in ones without a file.

    Raises BadPodDefaultsError with the file, the place and the fault, but never a value.
    """
    if path is None:
        return PodDefaults()
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        raise BadPodDefaultsError(f"{path} can't be read: {problem}. Name a readable YAML file.") from problem
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        place = "" if mark is None else f" at line {mark.line + 1}, column {mark.column + 1}"
        raise BadPodDefaultsError(f"{path} is not YAML{place}. Correct it there.") from None
    try:
        return PodDefaults.model_validate({} if content is None else content)
    except ValidationError as problem:
        wrong = "; ".join(
            ".".join(str(part) for part in error["loc"]) + f": {error['msg']}" if error["loc"] else error["msg"]
            for error in problem.errors(include_url=False, include_input=False, include_context=False)
        )
        raise BadPodDefaultsError(f"{path} can't be used: {wrong}. Correct it and start again.") from None
