"""Pods that are let be, and changes to pods that are there."""

import copy
from dataclasses import replace

import jsonpatch
import pytest

from pod_scheduling.domain.maps.map_injection import injection
from pod_scheduling.domain.maps.scheduling_map import INDEX_ANNOTATION, MAP_ANNOTATION
from reservation_core.domain.pods.reviews import Denied, Operation, Patched, PodReview, Untouched
from tests.unit.pod_scheduling.domain.maps.injected_pods import (
    GPU_LIMIT,
    ORDER,
    RULES,
    container,
    devices,
    patched,
    pod,
    reviewed,
    updated,
)


def test_a_pod_of_another_scheduler_is_let_be() -> None:
    given = pod(schedulerName="default-scheduler", nodeName="elsewhere", containers=[container(**GPU_LIMIT)])
    verdict = reviewed(given)
    assert isinstance(verdict, Untouched)
    assert "is not read" in verdict.warnings[0]
    assert reviewed(pod(schedulerName="default-scheduler", annotations={})) == Untouched()
    assert isinstance(reviewed(pod(), replace(RULES, scheduler_name="mine")), Untouched)
    patched(pod(schedulerName="mine"), replace(RULES, scheduler_name="mine"))


def test_a_pod_of_ours_without_a_map_is_told_that_it_will_wait() -> None:
    verdict = reviewed(pod(annotations={}))
    assert isinstance(verdict, Untouched)
    assert "will stay Pending" in verdict.warnings[0]
    bare = pod()
    del bare["metadata"]["annotations"]
    assert reviewed(bare) == verdict


def test_forged_marks_on_a_pod_without_a_map_are_removed() -> None:
    forged = {"gpu-dev/map-node": "node1", "gpu-dev/map-digest": "0" * 64, "kept": "yes"}
    assert patched(pod(annotations=forged))["metadata"]["annotations"] == {"kept": "yes"}
    verdict = reviewed(pod(annotations=forged))
    assert isinstance(verdict, Patched)
    assert "will stay Pending" in verdict.warnings[0]
    assert verdict.log == ()


@pytest.mark.parametrize("operation", [Operation.DELETE, Operation.CONNECT])
def test_what_else_is_done_to_pods_is_let_be(operation: Operation) -> None:
    assert injection(PodReview(operation, None, pod()), RULES) == Untouched()


def test_what_is_created_below_a_pod_is_let_be() -> None:
    assert injection(PodReview(Operation.CREATE, {"kind": "Binding"}, subresource="binding"), RULES) == Untouched()


def test_a_review_without_its_pod_is_denied() -> None:
    assert isinstance(injection(PodReview(Operation.CREATE, None), RULES), Denied)
    assert isinstance(injection(PodReview(Operation.UPDATE, pod(), None), RULES), Denied)


@pytest.mark.parametrize(
    "name",
    [
        MAP_ANNOTATION,
        INDEX_ANNOTATION,
        "gpu-dev/map-index",
        "gpu-dev/map-node",
        "gpu-dev/map-devices",
        "gpu-dev/map-digest",
        "gpu-dev/map-owner",
    ],
)
def test_what_was_read_stays(name: str) -> None:
    old = patched(pod())
    for value in ("other", None):
        new = copy.deepcopy(old)
        new["metadata"]["annotations"][name] = value
        if value is None:
            del new["metadata"]["annotations"][name]
        verdict = updated(old, new)
        if new == old or old["metadata"]["annotations"].get(name) == value:
            assert verdict == Untouched()
        else:
            assert isinstance(verdict, Denied)
            assert name in verdict.reason
            assert isinstance(updated(old, new, "status"), Denied)


def test_a_pod_without_a_map_gets_none_later() -> None:
    """Else its own CUDA_VISIBLE_DEVICES would be one that nobody has compared with the map."""
    old = pod(annotations={}, containers=[container(env=[devices("0,1"), ORDER])])
    verdict = updated(old, patched(pod(containers=[container(env=[devices("0,1"), ORDER])])))
    assert isinstance(verdict, Denied)


def test_other_changes_are_let_be() -> None:
    old = patched(pod())
    new = copy.deepcopy(old)
    new["metadata"]["annotations"]["mine"] = "yes"
    new["metadata"]["labels"] = {"a": "b"}
    new["spec"]["containers"][0]["image"] = "other"
    assert updated(old, new) == Untouched()
    del new["metadata"]["annotations"]
    new["spec"]["schedulerName"] = old["spec"]["schedulerName"] = "default-scheduler"
    assert updated(old, new) == Untouched()


def test_an_ephemeral_container_sees_what_the_pods_own_see() -> None:
    old = patched(pod())
    old["spec"]["ephemeralContainers"] = [{"name": "earlier", "image": "busybox"}]
    new = copy.deepcopy(old)
    new["spec"]["ephemeralContainers"].append({"name": "debug", "image": "busybox", "env": [{"name": "A"}]})
    verdict = updated(old, new, "ephemeralcontainers")
    assert isinstance(verdict, Patched)
    result = jsonpatch.apply_patch(new, [operation.as_json() for operation in verdict.operations])
    assert result == verdict.pod
    assert result["spec"]["ephemeralContainers"] == [
        {"name": "earlier", "image": "busybox"},
        {"name": "debug", "image": "busybox", "env": [devices("0,1"), ORDER, {"name": "A"}]},
    ]
    assert verdict.log == ("Injecting CUDA_VISIBLE_DEVICES=0,1 for pod check-0 (ephemeral container 'debug')",)
    again = updated(old, dict(verdict.pod), "ephemeralcontainers")
    assert again == Untouched()
    new["spec"]["ephemeralContainers"][1]["env"] = [devices("0,1,2,3")]
    assert isinstance(updated(old, new, "ephemeralcontainers"), Denied)
    new["metadata"]["annotations"]["gpu-dev/map-devices"] = "0,1,2,3"
    assert isinstance(updated(old, new, "ephemeralcontainers"), Denied)


def test_an_ephemeral_container_of_a_pod_that_was_never_read_is_denied() -> None:
    old = pod()
    new = copy.deepcopy(old)
    new["spec"]["ephemeralContainers"] = [{"name": "debug"}]
    verdict = updated(old, new, "ephemeralcontainers")
    assert isinstance(verdict, Denied)
    assert "never read" in verdict.reason
    old["metadata"]["annotations"] = new["metadata"]["annotations"] = {}
    assert updated(old, new, "ephemeralcontainers") == Untouched()
