"""Requests that this server's cluster can't run as they are."""

from typing import assert_never

from api_service.services import Services
from reservation_core.domain.errors import DomainError, NoImagesError, NoSuchTypeError
from reservation_core.runtime.settings.components import ClusterKind


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


async def refusals_of(image: str | None, gpu_type: str | None, services: Services) -> list[DomainError]:
    """Why this server could never run a job with this image on this type of GPU."""
    found: list[DomainError] = []
    try:
        if image is not None:
            refuse_image(services.settings.cluster)
    except NoImagesError as error:
        found.append(error)
    try:
        if gpu_type is not None:
            await services.known_types.check(gpu_type, services.policy.known or await services.policy.current())
    except NoSuchTypeError as error:
        found.append(error)
    return found
