"""Pods from specs: golden objects, how cards are attached, and that a user's words stay a user's words.

The golden files are written anew by `GPU_DEV_WRITE_GOLDEN=1 pytest <this file>`; look at the difference before you keep
it.
"""

import json
import os
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reservation_core.adapters.kubernetes.pods.built_pods import PodRules, build_pod, build_service, master_address
from reservation_core.adapters.kubernetes.pods.gpu_attaching import GpuAttach
from reservation_core.adapters.kubernetes.pods.marks import holding_of
from reservation_core.adapters.kubernetes.pods.pod_defaults import PodDefaults, Toleration
from reservation_core.domain.model import PodHolding, PodWorkload
from reservation_core.domain.request_terms import Resources, Share
from reservation_core.domain.statuses import ReasonCode
from reservation_core.ports.cluster import PodRefusedError
from tests.unit.reservation_core.adapters.kubernetes.pods.specs import (
    CASES,
    GANG,
    NOW,
    RULES,
    SINGLE,
    WORKLOAD,
    container_of,
    env_of,
)

GOLDEN = Path(__file__).parent / "golden"
DEVICE_PLUGIN = replace(RULES, attach=GpuAttach.DEVICE_PLUGIN)
UUID = replace(RULES, attach=GpuAttach.UUID)


def is_golden(name: str, built: dict[str, Any]) -> None:
    file = GOLDEN / f"{name}.json"
    if os.environ.get("GPU_DEV_WRITE_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        file.write_text(json.dumps(built, indent=1) + "\n")
    assert built == json.loads(file.read_text())


def expanded(text: str, env: dict[str, str]) -> str:
    """What a kubelet makes of a command's word or a variable's value: `$(NAME)` of a known name, and `$$` as `$`."""

    def one(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return env.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", one, text)


@pytest.mark.parametrize("case", CASES)
def test_golden_pods(case: str) -> None:
    spec, rules = CASES[case]
    is_golden(f"pod-{case}", build_pod(spec, rules, NOW))


def test_a_golden_service() -> None:
    service = build_service(GANG, RULES, "0d3f5a77-0000-4000-8000-000000000000")
    is_golden("service", service)
    pod = build_pod(GANG, RULES, NOW)
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert service["metadata"]["name"] == pod["spec"]["subdomain"]
    assert dict(GANG.env)["MASTER_ADDR"] == master_address("job-7f3k9q", 2)


def test_every_rank_of_a_gang_is_found_under_its_own_name() -> None:
    for rank in (0, 1):
        pod = build_pod(replace(GANG, name=replace(GANG.name, rank=rank)), RULES, NOW)
        assert pod["spec"]["hostname"] == pod["metadata"]["name"] == f"job-7f3k9q-2-{rank}"
    assert "hostname" not in build_pod(SINGLE, RULES, NOW)["spec"]


@pytest.mark.parametrize("uuids", [(None, None), (None, "GPU-33333333-cccc"), ("GPU-33333333-cccc",) * 2])
def test_env_shows_all_cards_and_names_its_own_by_index_where_not_all_are_known(uuids: tuple[str | None, ...]) -> None:
    pod = build_pod(replace(SINGLE, gpu_uuids=uuids), RULES, NOW)
    env = env_of(pod)
    assert (env["CUDA_VISIBLE_DEVICES"], env["NVIDIA_VISIBLE_DEVICES"]) == ("1,3", "all")
    assert env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert pod["spec"]["runtimeClassName"] == "nvidia"
    assert "nvidia.com/gpu" not in json.dumps(container_of(pod)["resources"])


@pytest.mark.parametrize("rules", [UUID, RULES], ids=["uuid", "env"])
def test_a_container_gets_its_own_cards_only_where_their_uuids_are_known(rules: PodRules) -> None:
    pod = build_pod(SINGLE, rules, NOW)
    env = env_of(pod)
    assert env["CUDA_VISIBLE_DEVICES"] == env["NVIDIA_VISIBLE_DEVICES"] == "GPU-11111111-aaaa,GPU-33333333-cccc"
    assert pod["spec"]["runtimeClassName"] == "nvidia"
    assert "nvidia.com/gpu" not in json.dumps(container_of(pod)["resources"])


def test_device_plugin_asks_for_a_number_and_says_nothing_of_cards() -> None:
    pod = build_pod(SINGLE, DEVICE_PLUGIN, NOW)
    assert {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"}.isdisjoint(env_of(pod))
    resources = container_of(pod)["resources"]
    assert resources["requests"]["nvidia.com/gpu"] == resources["limits"]["nvidia.com/gpu"] == "2"
    amd = build_pod(SINGLE, replace(DEVICE_PLUGIN, resource_name="amd.com/gpu"), NOW)
    assert container_of(amd)["resources"]["limits"]["amd.com/gpu"] == "2"
    there = container_of(build_pod(replace(SINGLE, gpu_resource="amd.com/gpu"), DEVICE_PLUGIN, NOW))["resources"]
    assert {part: [name for name in there[part] if name.endswith("/gpu")] for part in there} == {
        "requests": ["amd.com/gpu"],
        "limits": ["amd.com/gpu"],
    }


@pytest.mark.parametrize(
    "uuids", [(None, "GPU-3"), ("GPU-3",), (), ("all", "GPU-3"), ("GPU-3,all", "GPU-1"), ("GPU-3",) * 2]
)
def test_without_all_uuids_there_is_no_pod_by_uuid(uuids: tuple[str | None, ...]) -> None:
    with pytest.raises(PodRefusedError) as refused:
        build_pod(replace(SINGLE, gpu_uuids=uuids), UUID, NOW)
    assert "node agent" in refused.value.reason.detail
    build_pod(replace(SINGLE, gpu_uuids=uuids), RULES, NOW)


@pytest.mark.parametrize("case", CASES)
def test_nobodys_variable_replaces_ours(case: str) -> None:
    spec, rules = CASES[case]
    mine = [
        ("CUDA_VISIBLE_DEVICES", "0,1,2,3"),
        ("NVIDIA_VISIBLE_DEVICES", "all"),
        ("CUDA_DEVICE_ORDER", "FASTEST_FIRST"),
    ]
    hostile = replace(spec, env=(*spec.env, *mine))
    assert build_pod(hostile, rules, NOW) == build_pod(spec, rules, NOW)
    assert build_pod(replace(spec, env=(*mine, *spec.env)), rules, NOW) == build_pod(spec, rules, NOW)


def test_a_jobs_variable_replaces_an_administrators_default() -> None:
    defaults = PodDefaults.model_validate(
        {"env": [{"name": "HF_HOME", "value": "/a"}, {"name": "TMPDIR", "value": "/t"}]}
    )
    pod = build_pod(replace(SINGLE, env=(("HF_HOME", "/b"),)), replace(RULES, defaults=defaults), NOW)
    assert (env_of(pod)["HF_HOME"], env_of(pod)["TMPDIR"]) == ("/b", "/t")


PLAIN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=40)
DOLLARS = st.text("$()AB ", max_size=12)


@given(st.lists(PLAIN | DOLLARS, min_size=1, max_size=4), PLAIN | DOLLARS)
def test_what_a_user_writes_reaches_the_process_letter_by_letter(command: list[str], value: str) -> None:
    spec = replace(SINGLE, workload=replace(WORKLOAD, command=tuple(command)), env=(("A", "secret"), ("B", value)))
    pod = build_pod(spec, RULES, NOW)
    env = env_of(pod)
    assert [expanded(word, env) for word in container_of(pod)["command"]] == command
    assert expanded(env["B"], env) == value


def test_a_session_holds_its_pod() -> None:
    pod = build_pod(replace(SINGLE, workload=replace(WORKLOAD, command=())), RULES, NOW)
    shell, flag, script = (expanded(word, {}) for word in container_of(pod)["command"])
    assert (shell, flag) == ("/bin/sh", "-c")
    assert "TERM" in script


def test_without_an_image_the_default_is_used_and_without_that_there_is_no_pod() -> None:
    spec = replace(SINGLE, workload=replace(WORKLOAD, image=None))
    pod = build_pod(spec, replace(RULES, default_image="ubuntu:24.04"), NOW)
    assert container_of(pod)["image"] == "ubuntu:24.04"
    with pytest.raises(PodRefusedError) as refused:
        build_pod(spec, RULES, NOW)
    assert "GPU_DEV_KUBERNETES__DEFAULT_IMAGE" in refused.value.reason.detail


@pytest.mark.parametrize(
    "changes",
    [
        {"workload": replace(WORKLOAD, command=("echo", "\x00"))},
        {"workload": replace(WORKLOAD, command=("echo", "\ud800"))},
        {"workload": replace(WORKLOAD, working_dir="/\x00")},
        {"env": (("A", "\x00"),)},
        {"env": (("A=B", "x"),)},
        {"env": (("", "x"),)},
        {"env": (("Ä", "x"),)},
        {"env": (("A\n", "x"),)},
    ],
)
def test_what_no_process_can_be_given_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(PodRefusedError) as refused:
        build_pod(replace(SINGLE, **changes), RULES, NOW)
    assert refused.value.reason.code is ReasonCode.START_FAILED
    assert "submit" in refused.value.reason.detail.lower()


@pytest.mark.parametrize("image", ["UPPER", "a:b:c", "a b", "-a", "a//b", "a:", "http://a/b", "a" * 600, "0" * 64])
def test_an_image_that_no_registry_could_have_is_refused_at_once(image: str) -> None:
    with pytest.raises(PodRefusedError) as refused:
        build_pod(replace(SINGLE, workload=replace(WORKLOAD, image=image)), RULES, NOW)
    assert refused.value.reason.code is ReasonCode.IMAGE_PULL_FAILED


@pytest.mark.parametrize(
    "image",
    [
        "ubuntu",
        "ubuntu:24.04",
        "nvcr.io/nvidia/pytorch:25.01-py3",
        "localhost:5000/a/b_c/d__e:x",
        "10.0.0.1:5000/a",
        "[fd00::1]:5000/a",
        "a.b/c@sha256:" + "0" * 64,
        "a/b:tag@sha256:" + "f" * 64,
    ],
)
def test_images_as_people_name_them(image: str) -> None:
    pod = build_pod(replace(SINGLE, workload=replace(WORKLOAD, image=image)), RULES, NOW)
    assert container_of(pod)["image"] == image


@pytest.mark.parametrize(
    ("deadline_s", "room_s", "seconds"),
    [(7200, 3600, 10_800), (0.2, 0, 1), (1.2, 0, 2), (-99, 0, 1), (10**10, 10**10, 2**31 - 1)],
)
def test_the_second_belt(deadline_s: float, room_s: float, seconds: int) -> None:
    spec = replace(SINGLE, deadline=NOW + timedelta(seconds=deadline_s))
    pod = build_pod(spec, replace(RULES, extension_room=timedelta(seconds=room_s)), NOW)
    assert pod["spec"]["activeDeadlineSeconds"] == seconds


@pytest.mark.parametrize(("grace_s", "seconds"), [(0, 1), (0.2, 1), (1.5, 2), (10, 10)])
def test_a_pod_never_goes_without_its_nodes_word(grace_s: float, seconds: int) -> None:
    pod = build_pod(replace(SINGLE, grace=timedelta(seconds=grace_s)), RULES, NOW)
    assert pod["spec"]["terminationGracePeriodSeconds"] == seconds


def test_whose_a_pod_is_stands_only_where_we_write() -> None:
    pod = build_pod(
        replace(SINGLE, user="ada@example.org", workload=PodWorkload(command=("true",), image="a")), RULES, NOW
    )
    assert pod["metadata"]["annotations"]["gpu-dev/user"] == "ada@example.org"
    assert "@" not in json.dumps({**pod, "metadata": {**pod["metadata"], "annotations": {}}})
    assert pod["metadata"]["labels"]["gpu-dev/user-id"] == "7"


@given(st.text(max_size=254))
@example("ada")
@example("ann+b@x.org")
@example("-" * 70 + "a")
def test_the_label_for_people_is_one_that_kubernetes_takes(user: str) -> None:
    found = build_pod(replace(SINGLE, user=user), RULES, NOW)["metadata"]["labels"].get("gpu-dev/user")
    assert found is None or re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", found)
    assert found == {"ada": "ada", "ann+b@x.org": "ann-b-x.org"}.get(user, found)


def test_resources_grow_with_the_gpus() -> None:
    resources = {
        "requests": {"per_pod": {"cpu": "250m", "memory": "512Mi"}, "per_gpu": {"cpu": "1500m", "memory": "8Gi"}},
        "limits": {"per_pod": {"cpu": 1}, "per_gpu": {"cpu": 4, "memory": "32Gi", "ephemeral-storage": "10G"}},
    }
    rules = replace(RULES, defaults=PodDefaults.model_validate({"resources": resources}))
    assert container_of(build_pod(SINGLE, rules, NOW))["resources"] == {
        "requests": {"cpu": "3250m", "memory": "16896Mi"},
        "limits": {"cpu": "9", "memory": "64Gi", "ephemeral-storage": "19531250Ki"},
    }


def test_what_a_job_asked_for_goes_before_the_defaults() -> None:
    share = {"per_pod": {"cpu": 1, "memory": "1Gi"}, "per_gpu": {"ephemeral-storage": "10Gi"}}
    rules = replace(RULES, defaults=PodDefaults.model_validate({"resources": {"requests": share}, "shm_size": "8Gi"}))
    asked = replace(SINGLE, resources=Resources(Share(2500, 64 * 2**30), 2**30))
    built = build_pod(asked, rules, NOW)
    assert container_of(built)["resources"] == {
        "requests": {"cpu": "2500m", "memory": "64Gi", "ephemeral-storage": "20Gi"},
        "limits": {"cpu": "2500m", "memory": "64Gi"},
    }
    assert built["spec"]["volumes"][0] == {"name": "dev-shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}
    part = build_pod(replace(SINGLE, resources=Resources(Share(None, 2**30))), rules, NOW)
    assert container_of(part)["resources"]["requests"]["cpu"] == "1"
    assert part["spec"]["volumes"][0]["emptyDir"]["sizeLimit"] == "8Gi"


FULL_DEFAULTS = {
    "tolerations": [{"key": "team", "value": "ml", "effect": "NoSchedule"}],
    "runtimeClassName": "nvidia-cdi",
    "priorityClassName": "batch",
    "imagePullSecrets": [{"name": "pull"}],
    "volumes": [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "conf", "configMap": {"name": "c"}},
    ],
    "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "conf", "mountPath": "/conf", "readOnly": True}],
    "securityContext": {"runAsUser": 2000, "runAsGroup": 3000, "fsGroup": None, "supplementalGroups": [44]},
    "shm_size": "8Gi",
    "env": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
}


def test_a_golden_pod_with_everything_that_administrators_can_say() -> None:
    rules = replace(RULES, defaults=PodDefaults.model_validate(FULL_DEFAULTS), scheduler_name="ours")
    is_golden("pod-all-defaults", build_pod(SINGLE, rules, NOW))


def test_a_silent_node_is_no_reason_to_take_its_pods_away() -> None:
    built = build_pod(SINGLE, RULES, NOW)["spec"]["tolerations"]
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        assert {"key": key, "operator": "Exists", "effect": "NoExecute"} in built


def test_administrators_may_have_pods_taken_away_from_silent_nodes() -> None:
    key = "node.kubernetes.io/unreachable"
    theirs = Toleration(key=key, operator="Exists", effect="NoExecute", tolerationSeconds=600)
    rules = replace(RULES, defaults=PodDefaults(tolerations=(theirs,)))
    about = [
        toleration for toleration in build_pod(SINGLE, rules, NOW)["spec"]["tolerations"] if toleration["key"] == key
    ]
    assert about == [{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 600}]


def test_tools_are_put_beside_sessions_alone_read_only() -> None:
    rules = replace(RULES, session_tools_image="session-tools:1")
    session = replace(SINGLE, workload=replace(SINGLE.workload, command=()))
    built = build_pod(session, rules, NOW)["spec"]
    [tools] = built["initContainers"]
    assert tools["image"] == "session-tools:1"
    assert tools["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    [container] = built["containers"]
    [mount] = [mount for mount in container["volumeMounts"] if mount["name"] == tools["volumeMounts"][0]["name"]]
    assert mount == {"name": "gpu-dev-session-tools", "mountPath": "/opt/gpu-dev", "readOnly": True}
    assert mount["name"] in {volume["name"] for volume in built["volumes"]}
    for other in (build_pod(SINGLE, rules, NOW), build_pod(session, RULES, NOW)):
        assert "initContainers" not in other["spec"]
        assert all(volume["name"] != mount["name"] for volume in other["spec"]["volumes"])


@pytest.mark.parametrize("attach", GpuAttach)
def test_a_job_without_gpus_sees_none_and_asks_the_cluster_for_none(attach: GpuAttach) -> None:
    asked = Resources(Share(2500, 2**31))
    spec = replace(SINGLE, gpu_indices=(), gpu_uuids=(), resources=asked)
    pod = build_pod(spec, replace(RULES, attach=attach), NOW)
    env, container = env_of(pod), container_of(pod)
    assert (env["CUDA_VISIBLE_DEVICES"], env["NVIDIA_VISIBLE_DEVICES"]) == ("", "void")
    assert not [kind for kind in container["resources"]["limits"] if "gpu" in kind]
    assert container["resources"]["limits"]["cpu"] == "2500m"
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert spec.node in json.dumps(terms)
    assert holding_of(pod) == PodHolding(spec.node, (), 1, spec.starts_at or NOW, spec.ends_at or NOW)
