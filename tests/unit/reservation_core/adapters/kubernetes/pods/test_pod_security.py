"""Whatever users and administrators write, pods pass Pod Security `restricted` and the API's schemas."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import kubernetes_validate
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from reservation_core.adapters.kubernetes.pods.built_pods import build_pod, build_service
from reservation_core.adapters.kubernetes.pods.gpu_attaching import GpuAttach, GpuPin
from reservation_core.adapters.kubernetes.pods.pod_defaults import PodDefaults
from reservation_core.domain.model import PodWorkload
from reservation_core.ports.cluster import PodRefusedError
from tests.clusters.kubernetes_schemas import validate
from tests.unit.reservation_core.adapters.kubernetes.pods.pod_security import violations
from tests.unit.reservation_core.adapters.kubernetes.pods.specs import (
    CASES,
    FILES_RULES,
    GANG,
    NOW,
    RULES,
    SINGLE,
    WITH_FILES,
    container_of,
)
from tests.unit.reservation_core.adapters.kubernetes.pods.test_built_pods import FULL_DEFAULTS

VERSIONS = ("1.27", "1.30", "1.33", "1.35", "1.37")
ALL_DEFAULTS = replace(RULES, defaults=PodDefaults.model_validate(FULL_DEFAULTS))


@pytest.mark.parametrize("version", VERSIONS)
def test_pods_and_services_are_valid_for_the_api(version: str) -> None:
    for spec, rules in [*CASES.values(), (SINGLE, ALL_DEFAULTS), (WITH_FILES, FILES_RULES)]:
        pod = json.loads(json.dumps(build_pod(spec, rules, NOW)))
        validate(pod, version)
    validate(build_service(GANG, RULES, "uid"), version)


def test_the_schemas_would_see_a_mistake() -> None:
    pod = build_pod(SINGLE, RULES, NOW)
    container_of(pod)["comand"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        validate(pod, "1.37")


@pytest.mark.parametrize("case", CASES)
def test_every_kind_of_pod_is_restricted(case: str) -> None:
    spec, rules = CASES[case]
    assert violations(build_pod(spec, rules, NOW)) == []
    assert violations(build_pod(spec, replace(rules, defaults=ALL_DEFAULTS.defaults), NOW)) == []
    assert violations(build_pod(WITH_FILES, FILES_RULES, NOW)) == []


ANYTHING = st.text(max_size=30)
NAMES = st.sampled_from(["PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "LD_PRELOAD", "A"]) | ANYTHING
IMAGES = st.sampled_from(["a", "a/b:c"]) | ANYTHING


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    command=st.lists(ANYTHING, max_size=4),
    image=IMAGES,
    env=st.lists(st.tuples(NAMES, ANYTHING), max_size=5),
    working_dir=st.none() | ANYTHING,
    user=ANYTHING,
    grace_s=st.floats(0, 1e9),
    attach=st.sampled_from(GpuAttach),
    pin=st.sampled_from(GpuPin),
)
def test_no_word_of_a_users_reaches_what_decides_over_a_pod(
    command: list[str],
    image: str,
    env: list[tuple[str, str]],
    working_dir: str | None,
    user: str,
    grace_s: float,
    attach: GpuAttach,
    pin: GpuPin,
) -> None:
    workload = PodWorkload(tuple(command), image, tuple(env), working_dir)
    spec = replace(SINGLE, workload=workload, env=tuple(env), user=user, grace=timedelta(seconds=grace_s))
    rules = replace(RULES, attach=attach, pin=pin)
    try:
        pod = build_pod(spec, rules, NOW)
    except PodRefusedError as refused:
        assert "ubmit" in refused.reason.detail  # noqa: PT017 -- being refused is one of two good ends
        return
    assert violations(pod) == []
    json.dumps(pod).encode()
    usual = build_pod(replace(SINGLE, grace=spec.grace), rules, NOW)
    theirs, ours = container_of(pod), container_of(usual)
    users = {"image", "command", "env", "workingDir"}
    assert {k: v for k, v in theirs.items() if k not in users} == {k: v for k, v in ours.items() if k not in users}
    pod["spec"].pop("containers")
    usual["spec"].pop("containers")
    assert pod["spec"] == usual["spec"]
    # A label of this name decides over nothing: nobody selects by it but people.
    for said in ("annotations", "labels"):
        pod["metadata"][said].pop("gpu-dev/user", None)
        usual["metadata"][said].pop("gpu-dev/user")
    assert pod["metadata"] == usual["metadata"]


@pytest.mark.parametrize(
    "unrestrict",
    [
        lambda pod: pod["spec"].update(hostNetwork=True),
        lambda pod: pod["spec"]["securityContext"].pop("runAsNonRoot"),
        lambda pod: pod["spec"]["securityContext"].pop("seccompProfile"),
        lambda pod: pod["spec"]["securityContext"].update(runAsUser=0),
        lambda pod: container_of(pod)["securityContext"].update(privileged=True),
        lambda pod: container_of(pod)["securityContext"].pop("allowPrivilegeEscalation"),
        lambda pod: container_of(pod)["securityContext"].pop("capabilities"),
        lambda pod: container_of(pod)["securityContext"]["capabilities"].update(add=["SYS_ADMIN"]),
        lambda pod: container_of(pod)["securityContext"].update(seccompProfile={"type": "Unconfined"}),
        lambda pod: pod["spec"]["volumes"].append({"name": "root", "hostPath": {"path": "/"}}),
        lambda pod: container_of(pod).update(ports=[{"hostPort": 80}]),
    ],
)
def test_the_checker_sees_what_is_not_restricted(unrestrict: Callable[[dict[str, Any]], object]) -> None:
    pod = copy.deepcopy(build_pod(SINGLE, RULES, NOW))
    unrestrict(pod)
    assert len(violations(pod)) >= 1


@pytest.mark.parametrize(
    "defaults",
    [
        {"securityContext": {"runAsUser": 0}},
        {"securityContext": {"runAsGroup": 0}},
        {"securityContext": {"supplementalGroups": [0]}},
        {"securityContext": {"privileged": True}},
        {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]},
        {"volumes": [{"name": "nfs", "nfs": {"server": "a", "path": "/"}}]},
        {"volumes": [{"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
        {"hostNetwork": True},
        {"serviceAccountName": "admin"},
        {"automountServiceAccountToken": True},
    ],
)
def test_not_even_administrators_can_ask_for_more(defaults: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        PodDefaults.model_validate(defaults)
