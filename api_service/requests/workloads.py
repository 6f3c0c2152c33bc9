"""Workloads that this server's cluster can't run as they are."""

from typing import assert_never

from reservation_core.domain.errors import NoImagesError
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
