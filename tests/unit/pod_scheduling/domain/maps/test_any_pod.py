"""Whatever a pod is, it is patched whole or denied, and a second review changes nothing."""

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jsonpatch
from hypothesis import given
from hypothesis import strategies as st

from pod_scheduling.domain.maps.scheduling_map import MAP_ANNOTATION, map_digest
from reservation_core.domain.pods.reviews import Denied, Patched, Untouched
from tests.clusters.pod_strategies import Json, pods
from tests.examples import examples
from tests.unit.pod_scheduling.domain.maps.injected_pods import RULES, SEED, marks, reviewed, updated

MAPS = st.sampled_from([SEED, "0=node1:0,1", "0=node1:none 1=node1:1 2=other:0", "nonsense"])


def visible(of: Mapping[str, Any]) -> set[str]:
    """The values that a kubelet gives to the containers: of equal names the last counts."""
    spec = of["spec"]
    found = set()
    for container in [*spec["containers"], *(spec.get("initContainers") or [])]:
        last = {variable["name"]: variable for variable in container["env"]}
        assert last["CUDA_DEVICE_ORDER"].get("value") == "PCI_BUS_ID"
        assert last["CUDA_VISIBLE_DEVICES"].get("valueFrom") is None
        found.add(last["CUDA_VISIBLE_DEVICES"].get("value") or "")
    return found


@examples(400)
@given(pods(maps=MAPS), st.booleans())
def test_any_pod_is_patched_whole_or_denied_and_twice_is_once(given: Json, override: bool) -> None:
    rules = replace(RULES, override_devices=override)
    before = copy.deepcopy(given)
    verdict = reviewed(given, rules)
    assert given == before
    if not isinstance(verdict, Patched):
        assert isinstance(verdict, Denied) or given["spec"]["schedulerName"] != "gpu-scheduler" or visible(given)
        return
    result = jsonpatch.apply_patch(
        given, json.loads(json.dumps([operation.as_json() for operation in verdict.operations]))
    )
    assert result == verdict.pod
    assert visible(result) == {marks(result)["gpu-dev/map-devices"]}
    assert marks(result)["gpu-dev/map-digest"] == map_digest(given["metadata"]["annotations"][MAP_ANNOTATION])
    assert reviewed(result, rules) == Untouched()
    assert updated(result, result) == Untouched()


@examples(200)
@given(pods())
def test_any_pod_without_a_map_keeps_all_but_forged_marks(given: Json) -> None:
    verdict = reviewed(given)
    assert not isinstance(verdict, Denied)
    if isinstance(verdict, Patched):
        result = jsonpatch.apply_patch(given, [operation.as_json() for operation in verdict.operations])
        assert result == verdict.pod
        assert marks(result) == {}
        assert isinstance(reviewed(result), Untouched)
