"""Pods that are reviewed, and what a review says of them."""

import copy
import json
from collections.abc import Mapping
from typing import Any

import jsonpatch

from pod_scheduling.domain.maps.map_injection import InjectionRules, injection
from pod_scheduling.domain.maps.scheduling_map import MAP_ANNOTATION
from reservation_core.domain.pods.reviews import Denied, Operation, Patched, PodReview, Requester, Verdict
from tests.clusters.pod_strategies import Json

SEED = "0=node1:0,1\n1=node2:2\n2=node3:0,1,2\n3=node4:3\n4=node4:3\n5=node5:none\n"
RULES = InjectionRules()
ORDER = {"name": "CUDA_DEVICE_ORDER", "value": "PCI_BUS_ID"}


def devices(value: str) -> Json:
    return {"name": "CUDA_VISIBLE_DEVICES", "value": value}


def pod(name: str = "check-0", *, annotations: Mapping[str, str] | None = None, **spec: Any) -> Json:
    """A pod with the seed's map; `spec` beside one container."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {MAP_ANNOTATION: SEED} if annotations is None else dict(annotations)},
        "spec": {"schedulerName": "gpu-scheduler", "containers": [{"name": "main", "image": "busybox"}], **spec},
    }


def container(**members: Any) -> Json:
    return {"name": "main", "image": "busybox", **members}


def reviewed(given: Json, rules: InjectionRules = RULES) -> Verdict:
    return injection(PodReview(Operation.CREATE, given, requester=Requester("oidc:ann")), rules)


def patched(given: Json, rules: InjectionRules = RULES) -> Json:
    """The pod as the API server's own kind of patching makes it; it must be what the verdict says."""
    before = copy.deepcopy(given)
    verdict = reviewed(given, rules)
    assert isinstance(verdict, Patched), verdict
    assert given == before
    operations = [operation.as_json() for operation in verdict.operations]
    result: Json = jsonpatch.apply_patch(given, json.loads(json.dumps(operations)))
    assert result == verdict.pod
    return result


def denied(given: Json, rules: InjectionRules = RULES) -> str:
    verdict = reviewed(given, rules)
    assert isinstance(verdict, Denied), verdict
    return verdict.reason


def marks(of: Json) -> dict[str, str]:
    return {name: value for name, value in of["metadata"]["annotations"].items() if name.startswith("gpu-dev/")}


GPU_LIMIT = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}


def updated(old: Json, new: Json, subresource: str = "") -> Verdict:
    return injection(PodReview(Operation.UPDATE, new, old, subresource), RULES)
