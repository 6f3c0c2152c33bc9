"""Requests that this server's cluster can't run as they are."""

from typing import assert_never

from api_service.services import Services
from reservation_core.domain.errors import DomainError, NoDisksError, NoFilesError, NoImagesError, NoSuchTypeError
from reservation_core.ports.people.identities import Principal
from reservation_core.runtime.settings.components import ClusterKind, CommonSettings, GraceSettings
from reservation_core.usecases.disks.snapshots import CopyRules


def refuse_image(cluster: ClusterKind) -> None:
    """Return where the cluster runs container images. Raises NoImagesError."""
    match cluster:
        case ClusterKind.LOCAL:
            raise NoImagesError(
                "This server runs jobs as processes of its own machine, so it can't run a container image. "
                "Leave out the image: the command runs with the programs that the machine has."
            )
        case ClusterKind.KUBERNETES:
            return
        case _:
            assert_never(cluster)


def refuse_files(settings: GraceSettings, *, working_dir: str | None) -> None:
    """Return where a job can have files. Raises NoFilesError."""
    match settings.cluster:
        case ClusterKind.LOCAL:
            pass
        case ClusterKind.KUBERNETES:
            unset = {
                "GPU_DEV_KUBERNETES__FILES_IMAGE": settings.kubernetes.files_image,
                "GPU_DEV_JOB_SERVER": settings.job_server,
            }
            if missing := [name for name, value in unset.items() if value is None]:
                raise NoFilesError(
                    f"This server can't give jobs files: its administrator has not set {' and '.join(missing)}. "
                    "Leave out `sync`, and put the files into the image or on a volume."
                )
        case _:
            assert_never(settings.cluster)
    if working_dir is not None:
        raise NoFilesError("A job with files works in their folder. Leave out the working directory.")


def has_disks(settings: CommonSettings) -> bool:
    """Whether users of this server have disks."""
    return settings.cluster is ClusterKind.LOCAL or settings.kubernetes.disk_class is not None


def refuse_disks(settings: CommonSettings) -> None:
    """Return where jobs can have disks. Raises NoDisksError."""
    match settings.cluster:
        case ClusterKind.LOCAL:
            return
        case ClusterKind.KUBERNETES:
            if settings.kubernetes.disk_class is None:
                raise NoDisksError(
                    "This server has no disks for users: its administrator has not named a storage class for them "
                    "(GPU_DEV_KUBERNETES__DISK_CLASS)."
                )
        case _:
            assert_never(settings.cluster)


def refuse_snapshots(settings: CommonSettings) -> None:
    """Return where disks can have snapshots. Raises NoDisksError."""
    refuse_disks(settings)
    if settings.cluster is ClusterKind.KUBERNETES and settings.kubernetes.snapshot_class is None:
        raise NoDisksError(
            "This server takes no snapshots: its administrator has not named a class for them "
            "(GPU_DEV_KUBERNETES__SNAPSHOT_CLASS). Clone the disk instead."
        )


def copy_rules(settings: CommonSettings) -> CopyRules:
    """How disks are copied: on the local cluster file by file, so that no job may write meanwhile."""
    return CopyRules(settings.disks.bounds, is_still=settings.cluster is ClusterKind.LOCAL)


async def refusals_of(
    image: str | None, gpu_type: str | None, caller: Principal, services: Services
) -> list[DomainError]:
    """Why this server could never run a job with this image on this type of GPU."""
    found: list[DomainError] = []
    try:
        if image is not None:
            refuse_image(services.settings.cluster)
    except NoImagesError as error:
        found.append(error)
    try:
        if gpu_type is not None:
            policy = services.policy.known or await services.policy.current()
            await services.known_types.check(gpu_type, policy, is_admin=caller.is_admin)
    except NoSuchTypeError as error:
        found.append(error)
    return found
