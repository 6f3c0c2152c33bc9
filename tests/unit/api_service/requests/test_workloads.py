"""Where jobs can have disks and files."""

import pytest

from api_service.requests.workloads import refuse_disks, refuse_files
from reservation_core.domain.errors import NoDisksError, NoFilesError
from reservation_core.runtime.settings.components import ApiSettings, ClusterKind
from reservation_core.runtime.settings.kubernetes import KubernetesSettings


def test_on_kubernetes_there_are_disks_once_a_storage_class_is_named() -> None:
    with pytest.raises(NoDisksError, match="GPU_DEV_KUBERNETES__DISK_CLASS"):
        refuse_disks(ApiSettings(cluster=ClusterKind.KUBERNETES))
    refuse_disks(ApiSettings(cluster=ClusterKind.KUBERNETES, kubernetes=KubernetesSettings(disk_class="shared")))
    refuse_disks(ApiSettings())


def test_on_kubernetes_jobs_have_files_once_the_settings_say_how_they_come() -> None:
    image = KubernetesSettings(files_image="registry.test/processor:1")
    for given, missing in (
        ({}, "GPU_DEV_KUBERNETES__FILES_IMAGE and GPU_DEV_JOB_SERVER"),
        ({"kubernetes": image}, "GPU_DEV_JOB_SERVER"),
        ({"job_server": "http://api"}, "GPU_DEV_KUBERNETES__FILES_IMAGE"),
    ):
        with pytest.raises(NoFilesError, match=f"has not set {missing}\\. "):
            refuse_files(ApiSettings(cluster=ClusterKind.KUBERNETES, **given), working_dir=None)
    whole = ApiSettings(cluster=ClusterKind.KUBERNETES, kubernetes=image, job_server="http://api")
    for settings in (whole, ApiSettings()):
        refuse_files(settings, working_dir=None)
        with pytest.raises(NoFilesError, match="works in their folder"):
            refuse_files(settings, working_dir="/work")
