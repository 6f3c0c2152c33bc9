"""Ways to cards that no request says."""

from typing import Any

import pytest

from pod_scheduling.domain.enforcement.pod_gpus import GpuNeed
from pod_scheduling.domain.enforcement.uncounted_gpus import uncounted_gpus
from pod_scheduling.domain.maps.map_injection import InjectionRules, injection
from reservation_core.domain.pods.reviews import Denied, Operation, Patched, PodReview

NONE, TWO, MAPPED, MAPPED_NONE = GpuNeed(0), GpuNeed(2), GpuNeed(2, by_map=True), GpuNeed(0, by_map=True)


def pod(kind: str = "containers", *, annotations: dict[str, str] | None = None, **container: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "main"}]}
    spec[kind] = [*spec.get(kind, ()), {"name": "other", **container}]
    return {"metadata": {"name": "p", "annotations": annotations or {}}, "spec": spec}


def created(body: dict[str, Any], need: GpuNeed = NONE, *, allow_claims: bool = False) -> str | None:
    return uncounted_gpus(PodReview(Operation.CREATE, body), need, allow_claims=allow_claims)


def env(name: str = "NVIDIA_VISIBLE_DEVICES", **value: Any) -> dict[str, Any]:
    return {"env": [{"name": "A", "value": "b"}, {"name": name, **value}]}


@pytest.mark.parametrize("kind", ["containers", "initContainers", "ephemeralContainers"])
@pytest.mark.parametrize("name", ["NVIDIA_VISIBLE_DEVICES", "AMD_VISIBLE_DEVICES"])
def test_who_would_see_cards_that_nobody_counted_is_told(kind: str, name: str) -> None:
    reference = {"valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}
    for value in ({"value": "all"}, {"value": "0"}, {"value": "$(A)"}, {"value": " "}, {"value": "ALL"}, reference):
        for need in (NONE, TWO, MAPPED_NONE):
            reason = created(pod(kind, **env(name, **value)), need)
            assert reason is not None
            assert f"container other sets {name}" in reason
        reason = created(pod(kind, annotations={"gpu-dev/map-devices": "2,3"}, **env(name, **value)), MAPPED)
        assert reason is not None
        assert reason.endswith("Remove the variable; the webhook writes the map's GPUs")
        own = pod(kind, annotations={"gpu-dev/map-devices": "2,3"}, **env(name, value="2,3"))
        assert created(own, MAPPED) is None
        assert created(own, TWO) is not None
    for value in ({}, {"value": ""}, {"value": None, "valueFrom": None}, {"value": "void"}, {"value": "none"}):
        assert created(pod(kind, **env(name, **value))) is None


def test_a_variable_that_stands_twice_is_looked_at_twice() -> None:
    variables = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": value} for value in ("void", "all")]
    assert created(pod(env=variables)) is not None
    assert created(pod(env=variables[::-1])) is not None


def test_devices_that_are_asked_for_otherwise() -> None:
    assert "cdi.k8s.io/x" in (created(pod(annotations={"cdi.k8s.io/x": "nvidia.com/gpu=all"})) or "")
    claims = pod()
    claims["spec"]["resourceClaims"] = [{"name": "c"}]
    extended = pod(resources={"limits": {"deviceclass.resource.kubernetes.io/gpu": "1"}})
    for body in (claims, extended):
        assert created(body) is not None
        assert created(body, allow_claims=True) is None


def test_what_is_there_is_changed_freely_but_for_debugging_containers_that_see_all() -> None:
    before = pod(**env(value="all"))
    assert uncounted_gpus(PodReview(Operation.UPDATE, before, before), NONE, allow_claims=False) is None
    assert uncounted_gpus(PodReview(Operation.DELETE, None, before), NONE, allow_claims=False) is None
    old = pod("ephemeralContainers", **env(value="all"))
    debugged = {**old, "spec": {**old["spec"], "ephemeralContainers": [*old["spec"]["ephemeralContainers"]]}}
    review = PodReview(Operation.UPDATE, debugged, old, subresource="ephemeralcontainers")
    assert uncounted_gpus(review, NONE, allow_claims=False) is None
    debugged["spec"]["ephemeralContainers"].append({"name": "new", **env(value="all")})
    assert "container new" in (uncounted_gpus(review, TWO, allow_claims=False) or "")


def test_nonsense_is_no_way_to_cards() -> None:
    for body in ({}, {"spec": None}, {"spec": {"containers": None}}, {"spec": {"containers": [None, {"env": [None]}]}}):
        assert created(body) is None


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
@pytest.mark.parametrize("part", ["requests", "limits"])
def test_shares_of_cards_are_compared_with_no_booking(kind: str, part: str) -> None:
    share = "tencent.com/vcuda-core"
    body = pod(kind, resources={part: {share: "50", "cpu": "1"}})
    review = PodReview(Operation.CREATE, body)
    assert share in (uncounted_gpus(review, NONE, allow_claims=True, shares=share) or "")
    assert share in (uncounted_gpus(review, TWO, allow_claims=False, shares=share) or "")
    assert uncounted_gpus(review, NONE, allow_claims=False) is None
    nothing = PodReview(Operation.CREATE, pod(kind, resources={part: {share: "0"}}))
    assert uncounted_gpus(nothing, NONE, allow_claims=False, shares=share) is None


@pytest.mark.parametrize("nonsense", [[None], {"a": 1}, [[]]])
def test_what_the_api_server_would_never_send_is_no_crash(nonsense: object) -> None:
    variable = {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": nonsense}, {"name": nonsense}]}
    assert "container other sets" in (created(pod(**variable)) or "")
    mapped = pod(annotations={"gpu-scheduling-map": "0=node1:0"}, env=[{"name": nonsense, "value": nonsense}])
    mapped["metadata"]["name"] = "p-0"
    mapped["spec"]["schedulerName"] = "gpu-scheduler"
    verdict = injection(PodReview(Operation.CREATE, mapped), InjectionRules())
    assert isinstance(verdict, Patched)
    debugged = {**mapped, "spec": {**mapped["spec"], "ephemeralContainers": [{"name": nonsense}]}}
    update = PodReview(Operation.UPDATE, debugged, mapped, "ephemeralcontainers")
    assert isinstance(injection(update, InjectionRules()), Denied)
