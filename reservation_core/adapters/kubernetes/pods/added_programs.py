"""Programs that init containers put beside a job's command, and the folder of its files: pure, without a client."""

from typing import Any, Final

from reservation_core.domain.model import PodSpec, Reason
from reservation_core.domain.statuses import ReasonCode
from reservation_core.domain.sync.files_program import FOLDER_PATH, program_words
from reservation_core.domain.sync.job_sync import FOLDER_VARIABLE
from reservation_core.ports.cluster import PodRefusedError

PROGRAMS_PATH: Final = "/opt/gpu-dev"
"""Where sessions find sftp-server, scp and rsync, in `bin`, and jobs with files the program around their command."""

_PROGRAMS = "gpu-dev-session-tools"  # its old name: pods without files stay as they were
_FILES = f"{PROGRAMS_PATH}/files"
_FOLDER = "gpu-dev-folder"
_TOOLS_BYTES = "64Mi"
_FILES_BYTES = "256Mi"


def has_files(spec: PodSpec) -> bool:
    """Whether a pod's command runs within the program that gets and keeps its files."""
    return spec.workload.sync is not None


def command_with_files(spec: PodSpec) -> tuple[str, ...]:
    """That program, and the command within it, if it is not a session."""
    return (*program_words(_FILES), *spec.workload.command)


def file_variables(spec: PodSpec) -> dict[str, str]:
    """The variables of a container that say where its files are."""
    return {FOLDER_VARIABLE: FOLDER_PATH} if has_files(spec) else {}


def program_containers(
    spec: PodSpec, tools_image: str | None, files_image: str | None, files_pull_policy: str | None = None
) -> list[dict[str, Any]]:
    """The init containers. Raises PodRefusedError for files without an image that brings their program."""
    containers = []
    if tools_image is not None and not spec.workload.command:
        containers.append(_container("session-tools", tools_image, "/tools"))
    if has_files(spec):
        if files_image is None:
            raise PodRefusedError(
                Reason(
                    ReasonCode.START_FAILED,
                    "This cluster can't give jobs their files now. Ask an administrator to set "
                    "GPU_DEV_KUBERNETES__FILES_IMAGE.",
                )
            )
        command = ["python", "-m", "gpu_dev.sync.carried", _FILES]
        # What it says on its last lines becomes the reason of the job's end.
        said: dict[str, Any] = {"command": command, "terminationMessagePolicy": "FallbackToLogsOnError"}
        if files_pull_policy is not None:
            said["imagePullPolicy"] = files_pull_policy
        containers.append(_container("files", files_image, PROGRAMS_PATH) | said)
    return containers


def program_mounts(spec: PodSpec, *, has_programs: bool) -> list[dict[str, Any]]:
    """Where the command has the programs, which it can't change, and the folder of its files."""
    programs = [{"name": _PROGRAMS, "mountPath": PROGRAMS_PATH, "readOnly": True}] if has_programs else []
    return [*programs, *([{"name": _FOLDER, "mountPath": FOLDER_PATH}] if has_files(spec) else [])]


def program_volumes(spec: PodSpec, *, has_programs: bool) -> list[dict[str, Any]]:
    """The volumes of these, which go with the pod. The folder is bounded as all that the job writes on the node."""
    size = _FILES_BYTES if has_files(spec) else _TOOLS_BYTES
    programs = [{"name": _PROGRAMS, "emptyDir": {"sizeLimit": size}}] if has_programs else []
    return [*programs, *([{"name": _FOLDER, "emptyDir": {}}] if has_files(spec) else [])]


def _container(name: str, image: str, path: str) -> dict[str, Any]:
    """A container with next to no resources of its own."""
    return {
        "name": name,
        "image": image,
        "resources": {
            "requests": {"cpu": "10m", "memory": "32Mi"},
            "limits": {"memory": "128Mi"},
        },
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": _PROGRAMS, "mountPath": path}],
    }
