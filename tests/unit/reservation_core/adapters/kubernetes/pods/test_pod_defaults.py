"""The administrators' file: what it may say, and what is told to those who write something else."""

from pathlib import Path

import pytest

from reservation_core.adapters.kubernetes.pods.pod_defaults import (
    BadPodDefaultsError,
    PodDefaults,
    Toleration,
    read_pod_defaults,
)


def read(tmp_path: Path, text: str) -> PodDefaults:
    file = tmp_path / "pods.yaml"
    file.write_text(text)
    return read_pod_defaults(file)


def test_without_a_file_and_with_an_empty_one_the_built_in_defaults_stand(tmp_path: Path) -> None:
    assert read_pod_defaults(None) == read(tmp_path, "") == read(tmp_path, "# nothing\n") == PodDefaults()


def test_a_file_as_administrators_write_it(tmp_path: Path) -> None:
    text = """
tolerations:
- {key: dedicated, value: gpu, effect: NoSchedule}
runtimeClassName: null
imagePullSecrets: [{name: registry}]
resources:
  requests: {per_pod: {cpu: 1}, per_gpu: {memory: 4Gi, cpu: 500m}}
  limits: {per_gpu: {cpu: 16, memory: 100Gi}}
shm_size: 16Gi
"""
    defaults = read(tmp_path, text)
    assert defaults.runtimeClassName is None
    assert defaults.resources.requests.per_pod.cpu == "1"
    assert [secret.name for secret in defaults.imagePullSecrets] == ["registry"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("toleration: []", "toleration: Extra inputs"),
        (
            "tolerations: [{key: a, operator: Exists, value: b}]",
            "tolerations.0: Value error, a toleration with operator",
        ),
        ("tolerations: [{effect: NoSchedule}]", "operator: Exists"),
        ("tolerations: [{key: a, operator: Exists, tolerationSeconds: 5}]", "NoExecute"),
        ("securityContext: {runAsUser: 0}", "securityContext.runAsUser: Input should be greater than or equal to 1"),
        ("securityContext: {runAsUser: '5'}", "securityContext.runAsUser"),
        ("env: [{name: CUDA_VISIBLE_DEVICES, value: '0'}]", "env.0.name: Value error, is set by the server"),
        ("env: [{name: GPU_DEV_NODE, value: x}]", "is set by the server"),
        ("env: [{name: A}, {name: A}]", "env say A more than once"),
        ("env: [{name: A, valueFrom: {}}]", "env.0.valueFrom: Extra inputs"),
        ("volumes: [{name: a}]", "needs exactly one source, and has 0"),
        ("volumes: [{name: a, emptyDir: {}, secret: {}}]", "needs exactly one source, and has 2"),
        ("volumes: [{name: dev-shm, emptyDir: {}}]", "is taken"),
        ("volumes: [{name: a, emptyDir: {}}, {name: a, emptyDir: {}}]", "volumes say a more than once"),
        ("volumeMounts: [{name: a, mountPath: /a}]", "name volumes that are not there: a"),
        (
            "{volumes: [{name: a, emptyDir: {}}], volumeMounts: [{name: a, mountPath: /dev/shm/}]}",
            "/dev/shm more than once",
        ),
        ("volumeMounts: [{name: a, mountPath: a}]", "volumeMounts.0.mountPath"),
        ("resources: {limits: {per_gpu: {cpu: 1}}}", "both have to give a pod some memory"),
        ("resources: {limits: {per_gpu: {cpu: 250m, memory: 1Gi}}}", "would ask for more cpu than its limit"),
        ("resources: {requests: {per_gpu: {cpu: 1.5}}}", "quote decimals"),
        ("resources: {requests: {per_gpu: {gpu: 1}}}", "gpu: Extra inputs"),
        ("shm_size: lots", "shm_size: Value error, 'lots' is not an amount"),
        ("[]", "Input should be a valid dictionary"),
        ("just a word", "Input should be a valid dictionary"),
        ("a: [", "is not YAML at line 1"),
        ("a: !!python/object/apply:os.getcwd []", "is not YAML"),
    ],
)
def test_mistakes_are_told_with_their_place(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(BadPodDefaultsError) as told:
        read(tmp_path, text)
    assert complaint in str(told.value)
    assert "pods.yaml" in str(told.value)
    assert "orrect it" in str(told.value)


def test_values_are_not_told(tmp_path: Path) -> None:
    with pytest.raises(BadPodDefaultsError) as told:
        read(tmp_path, "env: [{name: TOKEN, value: [hunter2]}]")
    assert "env.0.value" in str(told.value)
    assert "hunter2" not in str(told.value)


def test_a_file_that_is_not_there_and_one_that_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(BadPodDefaultsError, match="can't be read"):
        read_pod_defaults(tmp_path / "missing.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(BadPodDefaultsError, match="can't be read"):
        read_pod_defaults(tmp_path / "bytes.yaml")


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration(key="a", operator="Exists"), True),
        (Toleration(key="b", operator="Exists"), False),
        (Toleration(operator="Exists"), True),
        (Toleration(operator="Exists", effect="NoExecute"), False),
        (Toleration(key="a", value="1"), True),
        (Toleration(key="a", value="2"), False),
        (Toleration(key="a"), False),
        (Toleration(key="a", value="1", effect="NoSchedule"), True),
        (Toleration(key="a", operator="Exists", effect="NoExecute", tolerationSeconds=60), False),
    ],
)
def test_which_taint_is_tolerated(toleration: Toleration, tolerated: bool) -> None:
    assert toleration.tolerates("a", "1", "NoSchedule") is tolerated


def test_a_while_is_not_for_good() -> None:
    assert not Toleration(key="a", operator="Exists", effect="NoExecute", tolerationSeconds=60).tolerates(
        "a", "", "NoExecute"
    )
    assert Toleration(key="a", operator="Exists", effect="NoExecute").tolerates("a", "", "NoExecute")
