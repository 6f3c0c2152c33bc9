"""Pods with files: the program around their command, the folder, and a token that no pod shows."""

import base64
import json
from dataclasses import replace

import pytest

from reservation_core.adapters.kubernetes.pods.built_pods import build_pod
from reservation_core.adapters.kubernetes.pods.secret_objects import build_secret, has_secret
from reservation_core.domain.model import PodSecret
from reservation_core.domain.sessions.secret_uses import SecretUse
from reservation_core.domain.statuses import ReasonCode
from reservation_core.ports.cluster import PodRefusedError
from tests.unit.reservation_core.adapters.kubernetes.pods.specs import (
    FILES_RULES,
    NOW,
    RULES,
    SINGLE,
    WITH_FILES,
    container_of,
)

TOKEN = "gpudev-job.secret"
SESSION = replace(WITH_FILES, workload=replace(WITH_FILES.workload, command=()))


def test_the_command_runs_within_the_program_in_the_folder() -> None:
    pod = build_pod(WITH_FILES, FILES_RULES, NOW)["spec"]
    [files] = pod["initContainers"]
    assert files["image"] == "registry.test/reservation-processor:1"
    assert files["command"][:3] == ["python", "-m", "gpu_dev.sync.carried"]
    assert files["terminationMessagePolicy"] == "FallbackToLogsOnError"
    [container] = pod["containers"]
    place = files["command"][3]
    assert container["command"][0].startswith(f"{place}/")
    assert container["command"][-4:] == [
        f"{place}/app/gpu_dev/sync/inside.py", "python", "train.py", "--name=$$(hostname)",
    ]  # fmt: skip
    assert container["workingDir"] == "/gpu-dev"
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    [brought] = files["volumeMounts"]
    programs = mounts[brought["mountPath"]]
    assert place.startswith(brought["mountPath"])
    assert (programs["name"], programs["readOnly"]) == (brought["name"], True)
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes[mounts["/gpu-dev"]["name"]] == {"name": mounts["/gpu-dev"]["name"], "emptyDir": {}}
    assert "emptyDir" in volumes[programs["name"]]


def test_the_token_is_in_the_secret_alone() -> None:
    mine = PodSecret(SecretUse("t.x", env="TOKEN"), "hunter2")
    for spec in (WITH_FILES, replace(WITH_FILES, secrets=(mine,)), SESSION):
        pod = build_pod(spec, FILES_RULES, NOW)
        assert TOKEN not in json.dumps(pod)
        env = container_of(pod)["env"]
        assert len({variable["name"] for variable in env}) == len(env)
        [named] = [variable for variable in env if variable["name"] == "GPU_DEV_JOB_TOKEN"]
        reference = named["valueFrom"]["secretKeyRef"]
        secret = build_secret(spec, "gpu-dev", "uid")
        assert has_secret(spec)
        assert reference["name"] == secret["metadata"]["name"]
        assert base64.b64decode(secret["data"][reference["key"]]).decode() == TOKEN
    assert not has_secret(SINGLE)


def test_a_session_has_the_tools_and_the_files_in_one_place() -> None:
    pod = build_pod(SESSION, replace(FILES_RULES, session_tools_image="session-tools:1"), NOW)["spec"]
    assert [container["name"] for container in pod["initContainers"]] == ["session-tools", "files"]
    assert len({mount["name"] for container in pod["initContainers"] for mount in container["volumeMounts"]}) == 1
    assert pod["containers"][0]["command"][-1].endswith("/inside.py")


def test_the_image_of_files_is_pulled_by_the_setting() -> None:
    for policy, said in ((None, None), ("Always", "Always")):
        rules = replace(FILES_RULES, session_tools_image="session-tools:1", files_pull_policy=policy)
        tools, files = build_pod(SESSION, rules, NOW)["spec"]["initContainers"]
        assert (tools.get("imagePullPolicy"), files.get("imagePullPolicy")) == (None, said)


def test_without_an_image_there_is_no_pod_with_files() -> None:
    with pytest.raises(PodRefusedError) as refused:
        build_pod(WITH_FILES, RULES, NOW)
    assert refused.value.reason.code is ReasonCode.START_FAILED
    assert "GPU_DEV_KUBERNETES__FILES_IMAGE" in refused.value.reason.detail
    assert "initContainers" not in build_pod(SINGLE, FILES_RULES, NOW)["spec"]
