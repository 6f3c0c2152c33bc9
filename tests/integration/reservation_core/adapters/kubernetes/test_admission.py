"""Every kind of pod that is built is accepted where Pod Security `restricted` is enforced.

The emulator admits anything; on a real API server (KUBEBUILDER_ASSETS) this is the standard's own judgement.
"""

import json
from dataclasses import replace

import pytest

from reservation_core.adapters.kubernetes.attaching import GpuPin
from reservation_core.adapters.kubernetes.pod_defaults import PodDefaults
from reservation_core.adapters.kubernetes.pod_statuses import read_pod_status
from reservation_core.adapters.kubernetes.pods import build_pod, build_service
from tests.kubernetes.api_client import MERGE, ApiAnswerError
from tests.kubernetes.api_server import ApiServer
from tests.unit.reservation_core.adapters.kubernetes.specs import CASES, GANG, NOW, RULES, SINGLE
from tests.unit.reservation_core.adapters.kubernetes.test_pods import FULL_DEFAULTS


@pytest.fixture
async def restricted(api_server: ApiServer, namespace: str) -> str:
    """The test's namespace, with the standard enforced, and what the defaults name."""
    labels = {
        "pod-security.kubernetes.io/enforce": "restricted",
        "pod-security.kubernetes.io/enforce-version": "latest",
    }
    async with api_server.client() as client:
        labelled = {"metadata": {"labels": labels}}
        await client.call("PATCH", f"/api/v1/namespaces/{namespace}", labelled, content_type=MERGE)
        if api_server.real:
            group = "/apis/node.k8s.io/v1/runtimeclasses"
            for name in ("nvidia", "nvidia-cdi"):
                await client.try_call("POST", group, {"metadata": {"name": name}, "handler": "nvidia"})
            priority = {"metadata": {"name": "batch"}, "value": 5}
            await client.try_call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", priority)
    return namespace


@pytest.mark.parametrize("case", [*CASES, "all-defaults"])
async def test_the_api_server_takes_it_and_keeps_what_we_said(
    api_server: ApiServer, restricted: str, case: str
) -> None:
    all_defaults = replace(RULES, defaults=PodDefaults.model_validate(FULL_DEFAULTS))
    spec, rules = (SINGLE, all_defaults) if case == "all-defaults" else CASES[case]
    built = build_pod(spec, replace(rules, namespace=restricted), NOW)
    async with api_server.client() as client:
        await client.call("POST", f"/api/v1/namespaces/{restricted}/pods", json.loads(json.dumps(built)))
        kept = await client.call("GET", f"/api/v1/namespaces/{restricted}/pods/{spec.name}")
    status = read_pod_status(kept)
    assert status is not None
    assert status.name == spec.name
    assert status.holding is not None
    assert status.holding.gpu_indices == spec.gpu_indices
    for key in ("command", "image", "resources", "securityContext"):
        assert kept["spec"]["containers"][0][key] == built["spec"]["containers"][0][key]
    for key in ("nodeName",) if rules.pin is GpuPin.NODE_NAME else ("affinity", "schedulerName"):
        assert kept["spec"][key] == built["spec"][key]
    assert kept["spec"]["automountServiceAccountToken"] is False


async def test_a_gangs_service_is_taken(api_server: ApiServer, restricted: str) -> None:
    service = build_service(GANG, replace(RULES, namespace=restricted), "0d3f5a77-0000-4000-8000-000000000000")
    async with api_server.client() as client:
        kept = await client.call("POST", f"/api/v1/namespaces/{restricted}/services", service)
    assert kept["spec"]["clusterIP"] == "None"


async def test_the_standard_is_enforced_there(api_server: ApiServer, restricted: str) -> None:
    if not api_server.real:
        pytest.skip("the emulator does not judge pods")
    loose = build_pod(SINGLE, replace(RULES, namespace=restricted), NOW)
    loose["spec"]["containers"][0]["securityContext"].pop("allowPrivilegeEscalation")
    async with api_server.client() as client:
        with pytest.raises(ApiAnswerError, match="restricted"):
            await client.call("POST", f"/api/v1/namespaces/{restricted}/pods", loose)
