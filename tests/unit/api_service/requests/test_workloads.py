"""Where jobs can have disks."""

import pytest

from api_service.requests.workloads import refuse_disks
from reservation_core.domain.errors import NoDisksError
from reservation_core.runtime.settings.components import ApiSettings, ClusterKind
from reservation_core.runtime.settings.kubernetes import KubernetesSettings


def test_on_kubernetes_there_are_disks_once_a_storage_class_is_named() -> None:
    with pytest.raises(NoDisksError, match="GPU_DEV_KUBERNETES__DISK_CLASS"):
        refuse_disks(ApiSettings(cluster=ClusterKind.KUBERNETES))
    refuse_disks(ApiSettings(cluster=ClusterKind.KUBERNETES, kubernetes=KubernetesSettings(disk_class="shared")))
    refuse_disks(ApiSettings())
