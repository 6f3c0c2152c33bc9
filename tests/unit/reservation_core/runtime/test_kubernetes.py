"""Settings that name a Kubernetes cluster."""

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.kubernetes.jobs.cluster import KubernetesCluster
from reservation_core.adapters.kubernetes.pods.gpu_attaching import GpuAttach, GpuPin
from reservation_core.runtime.kubernetes import cluster_rules
from reservation_core.runtime.settings.components import CommonSettings
from reservation_core.runtime.settings.error import SettingsError
from reservation_core.runtime.wiring import open_cluster
from tests.kubernetes.kubeconfigs import write_kubeconfig


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Settings for a cluster that a kubeconfig names."""
    kubeconfig = write_kubeconfig(tmp_path / "config", "http://127.0.0.1:1", "token")
    monkeypatch.setenv("GPU_DEV_CLUSTER", "kubernetes")
    monkeypatch.setenv("GPU_DEV_KUBERNETES__KUBECONFIG", str(kubeconfig))
    return monkeypatch


async def test_a_cluster_is_opened_without_asking_it_anything(environment: pytest.MonkeyPatch) -> None:
    cluster = open_cluster(CommonSettings(), SystemClock())
    assert isinstance(cluster, KubernetesCluster)
    await cluster.close()


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("KUBECONFIG", "/nowhere/config", "/nowhere/config"),
        ("CONTEXT", "elsewhere", "GPU_DEV_KUBERNETES__CONTEXT"),
        ("POD_DEFAULTS", "/nowhere/defaults.yaml", "GPU_DEV_KUBERNETES__POD_DEFAULTS"),
    ],
)
def test_files_that_can_not_be_used_are_told_before_anything_starts(
    environment: pytest.MonkeyPatch, name: str, value: str, told: str
) -> None:
    environment.setenv(f"GPU_DEV_KUBERNETES__{name}", value)
    with pytest.raises(SettingsError, match=told):
        open_cluster(CommonSettings(), SystemClock())


def test_every_setting_reaches_the_rules(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    defaults = tmp_path / "defaults.yaml"
    defaults.write_text("runtimeClassName: fancy\n")
    for name, value in {
        "GPU__ATTACH": "uuid",
        "GPU__PIN": "nodeName",
        "GPU__RESOURCE_NAMES": '["example.test/gpu", "amd.com/gpu"]',
        "GPU__TYPE_LABELS": '["example.test/type"]',
        "GPU__TYPES": '{"weird": "h100"}',
        "KUBERNETES__NAMESPACE": "pods",
        "KUBERNETES__NODE_SELECTOR": "pool=gpu",
        "KUBERNETES__SCHEDULER_NAME": "ours",
        "KUBERNETES__DEFAULT_IMAGE": "registry.test/image:1",
        "KUBERNETES__POD_DEFAULTS": str(defaults),
        "KUBERNETES__CREATES_PER_S": "0",
        "KUBERNETES__EXTENSION_ROOM_S": "60",
    }.items():
        environment.setenv(f"GPU_DEV_{name}", value)
    rules = cluster_rules(CommonSettings())
    assert (rules.pods.attach, rules.nodes.attach, rules.foreign.attach) == (GpuAttach.UUID,) * 3
    assert (rules.pods.pin, rules.pods.scheduler_name) == (GpuPin.NODE_NAME, "ours")
    assert (rules.pods.namespace, rules.foreign.namespace) == ("pods", "pods")
    assert rules.pods.default_image == "registry.test/image:1"
    assert rules.pods.defaults.runtimeClassName == "fancy"
    assert rules.nodes.tolerations == rules.pods.defaults.tolerations
    assert rules.pods.extension_room == timedelta(seconds=60)
    assert rules.pods.resource_name == "example.test/gpu"
    assert tuple(rules.nodes.resource_names) == ("example.test/gpu", "amd.com/gpu")
    assert tuple(rules.foreign.resource_names) == ("example.test/gpu", "amd.com/gpu")
    assert tuple(rules.nodes.type_labels) == ("example.test/type",)
    assert dict(rules.nodes.types) == {"weird": "h100"}
    assert (rules.node_selector, rules.creates_per_s) == ("pool=gpu", 0)


def test_a_local_cluster_does_not_load_the_client() -> None:

    program = "import reservation_core.runtime.wiring, sys; sys.exit('kubernetes' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
