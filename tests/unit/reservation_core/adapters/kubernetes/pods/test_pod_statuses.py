"""Statuses read from Pod objects, as kubelets and the cluster's controllers write them."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.adapters.kubernetes.pods.built_pods import build_pod
from reservation_core.adapters.kubernetes.pods.pod_statuses import is_finished, read_pod_status
from reservation_core.domain.model import PodHolding, PodName, PodPhase, PodStatus
from reservation_core.domain.statuses import ReasonCode
from tests.unit.reservation_core.adapters.kubernetes.pods.specs import NOW, RULES, SINGLE, container_of

STARTED, FINISHED = "2026-03-01T12:00:10Z", "2026-03-01T12:30:00Z"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def pod(phase: str, state: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    """A pod of ours in some state; `metadata` and `spec` in `status` add to what was built."""
    built = build_pod(SINGLE, RULES, NOW)
    built["metadata"] |= {"uid": "u", "resourceVersion": "5", **status.pop("metadata", {})}
    built["status"] = {"phase": phase, **status}
    if state is not None:
        built["status"]["containerStatuses"] = [{"name": "workload", "state": state}]
    return json.loads(json.dumps(built))


def terminated(exit_code: int, reason: str = "Error", **more: Any) -> dict[str, Any]:
    return {
        "terminated": {"exitCode": exit_code, "reason": reason, "startedAt": STARTED, "finishedAt": FINISHED, **more}
    }


def waiting(reason: str, message: str | None = None) -> dict[str, Any]:
    return {"waiting": {"reason": reason, **({} if message is None else {"message": message})}}


def unscheduled(reason: str) -> dict[str, Any]:
    return {"type": "PodScheduled", "status": "False", "reason": reason, "message": "0/4 nodes"}


RUNNING = {"running": {"startedAt": STARTED}}


def read(thing: dict[str, Any]) -> PodStatus:
    status = read_pod_status(thing)
    assert status is not None
    return status


def code(thing: dict[str, Any]) -> ReasonCode | None:
    reason = read(thing).reason
    if reason is None:
        return None
    assert len(reason.detail) < 800
    assert reason.detail.endswith((".", "?"))
    assert "\n" not in reason.detail
    return reason.code


def test_a_running_pod() -> None:
    assert read(pod("Running", RUNNING)) == PodStatus(
        PodName("job-7f3k9q", 1, 0),
        PodPhase.RUNNING,
        started_at=at(STARTED),
        holding=PodHolding("node2", (1, 3), 1, NOW, datetime(2026, 3, 1, 14, 0, tzinfo=UTC)),
    )


def test_a_pod_that_succeeded() -> None:
    status = read(pod("Succeeded", terminated(0, "Completed")))
    assert (status.phase, status.exit_code, status.reason) == (PodPhase.FINISHED, 0, None)
    assert (status.started_at, status.finished_at) == (at(STARTED), at(FINISHED))


@pytest.mark.parametrize("exit_code", [1, 7, 126, 127, 137, 143, 255])
def test_a_commands_exit_code_speaks_for_itself(exit_code: int) -> None:
    status = read(pod("Failed", terminated(exit_code)))
    assert (status.phase, status.exit_code, status.reason) == (PodPhase.FINISHED, exit_code, None)


def test_a_signal_that_a_runtime_reports_beside_the_code() -> None:
    assert read(pod("Failed", terminated(0, signal=9))).exit_code == 137


@pytest.mark.parametrize(
    ("thing", "phase", "wanted"),
    [
        (pod("Pending"), PodPhase.PENDING, None),
        (pod("Pending", waiting("ContainerCreating")), PodPhase.PENDING, None),
        (pod("Pending", waiting("ErrImagePull", "not found")), PodPhase.PENDING, ReasonCode.IMAGE_PULL_FAILED),
        (pod("Pending", waiting("ImagePullBackOff")), PodPhase.PENDING, ReasonCode.IMAGE_PULL_FAILED),
        (pod("Pending", waiting("InvalidImageName")), PodPhase.PENDING, ReasonCode.IMAGE_PULL_FAILED),
        (pod("Pending", waiting("ErrImageNeverPull")), PodPhase.PENDING, ReasonCode.IMAGE_PULL_FAILED),
        (pod("Pending", waiting("CreateContainerConfigError")), PodPhase.PENDING, ReasonCode.START_FAILED),
        (pod("Pending", waiting("CreateContainerError", "no")), PodPhase.PENDING, ReasonCode.START_FAILED),
        (pod("Pending", waiting("RunContainerError")), PodPhase.PENDING, ReasonCode.START_FAILED),
        (pod("Pending", conditions=[unscheduled("Unschedulable")]), PodPhase.PENDING, ReasonCode.UNSCHEDULABLE),
        (pod("Pending", conditions=[unscheduled("SchedulingGated")]), PodPhase.PENDING, ReasonCode.UNSCHEDULABLE),
        (pod("Pending", conditions=[{"type": "PodScheduled", "status": "True"}]), PodPhase.PENDING, None),
        (pod("Pending", metadata={"deletionTimestamp": STARTED}), PodPhase.PENDING, ReasonCode.POD_DELETED),
        (pod("Running", RUNNING, metadata={"deletionTimestamp": STARTED}), PodPhase.RUNNING, ReasonCode.POD_DELETED),
        (pod("Running", RUNNING, reason="NodeLost"), PodPhase.RUNNING, ReasonCode.NODE_LOST),
        (pod("Unknown", RUNNING, reason="NodeLost"), PodPhase.RUNNING, ReasonCode.NODE_LOST),
        (pod("Unknown", reason="NodeLost"), PodPhase.PENDING, ReasonCode.NODE_LOST),
        (pod("Running", terminated(3)), PodPhase.RUNNING, None),
        (pod("Failed", terminated(137, "OOMKilled")), PodPhase.FINISHED, ReasonCode.OUT_OF_MEMORY),
        (pod("Succeeded", terminated(0, "OOMKilled")), PodPhase.FINISHED, None),
        (pod("Failed", terminated(143), reason="Evicted"), PodPhase.FINISHED, ReasonCode.EVICTED),
        (pod("Failed", reason="Evicted"), PodPhase.FINISHED, ReasonCode.EVICTED),
        (pod("Failed", terminated(143), reason="Preempting"), PodPhase.FINISHED, ReasonCode.EVICTED),
        (pod("Failed", terminated(143), reason="Terminated"), PodPhase.FINISHED, ReasonCode.EVICTED),
        (pod("Failed", terminated(137), reason="DeadlineExceeded"), PodPhase.FINISHED, ReasonCode.DURATION_REACHED),
        (pod("Failed", reason="DeadlineExceeded"), PodPhase.FINISHED, ReasonCode.DURATION_REACHED),
        (pod("Failed", terminated(137, "ContainerStatusUnknown")), PodPhase.FINISHED, ReasonCode.POD_LOST),
        (pod("Failed", terminated(0, "Completed")), PodPhase.FINISHED, ReasonCode.POD_LOST),
        (pod("Failed", reason="UnexpectedAdmissionError"), PodPhase.FINISHED, ReasonCode.START_FAILED),
        (pod("Failed", reason="OutOfcpu"), PodPhase.FINISHED, ReasonCode.START_FAILED),
        (pod("Failed", reason="OutOfnvidia.com/gpu"), PodPhase.FINISHED, ReasonCode.START_FAILED),
        (pod("Failed", reason="NodeAffinity"), PodPhase.FINISHED, ReasonCode.START_FAILED),
        (pod("Failed", reason="OutOfcpu", metadata={"deletionTimestamp": STARTED, "deletionGracePeriodSeconds": 1}),
         PodPhase.FINISHED, ReasonCode.START_FAILED),
        (pod("Failed"), PodPhase.FINISHED, None),
    ],
)  # fmt: skip
def test_what_is_read(thing: dict[str, Any], phase: PodPhase, wanted: ReasonCode | None) -> None:
    assert read(thing).phase is phase
    assert code(thing) is wanted


@pytest.mark.parametrize(
    ("reason", "wanted"),
    [
        ("PreemptionByScheduler", ReasonCode.EVICTED),
        ("EvictionByEvictionAPI", ReasonCode.EVICTED),
        ("DeletionByTaintManager", ReasonCode.EVICTED),
        ("TerminationByKubelet", ReasonCode.EVICTED),
        ("DeletionByPodGC", ReasonCode.NODE_LOST),
        ("SomethingNew", ReasonCode.EVICTED),
    ],
)
def test_who_wanted_a_pods_end_is_said(reason: str, wanted: ReasonCode) -> None:
    target = [{"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "why"}]
    assert code(pod("Failed", terminated(143), conditions=target)) is wanted
    leaving = {"deletionTimestamp": STARTED, "deletionGracePeriodSeconds": 10}
    assert code(pod("Running", RUNNING, conditions=target, metadata=leaving)) is wanted
    assert code(pod("Succeeded", terminated(0), conditions=target)) is None


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_is_not_over_while_any_container_is_said_to_run(phase: str) -> None:
    for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        thing = pod(phase, terminated(0))
        thing["status"].setdefault(kind, []).append({"name": "other", "state": {"running": {"startedAt": STARTED}}})
        assert not is_finished(thing)
        status = read(thing)
        assert (status.phase, status.exit_code, status.finished_at) == (PodPhase.RUNNING, None, None)


@pytest.mark.parametrize(
    ("message", "exit_code"),
    [
        ('OCI runtime create failed: exec: "trian": executable file not found in $PATH: unknown', 127),
        ('exec: "/a/b": stat /a/b: no such file or directory: unknown', 127),
        ('exec: "/etc/passwd": permission denied: unknown', 126),
        ('chdir to cwd ("/nowhere") set in config.json failed: permission denied', 126),
    ],
)
def test_a_command_that_cannot_be_run_never_started(message: str, exit_code: int) -> None:
    state = terminated(128, "StartError", message=message, startedAt="1970-01-01T00:00:00Z")
    status = read(pod("Failed", state))
    assert (status.phase, status.exit_code, status.started_at) == (PodPhase.FINISHED, exit_code, None)
    assert status.reason is not None
    assert status.reason.code is ReasonCode.START_FAILED
    assert message.split('"')[1] in status.reason.detail


@pytest.mark.parametrize(
    ("finished", "exit_code", "wanted"),
    [
        ("12:29:00", 3, None),  # over before somebody deleted it
        ("12:30:00", 3, None),  # in the same second, by itself
        ("12:30:00", 143, ReasonCode.POD_DELETED),
        ("12:30:05", 143, ReasonCode.POD_DELETED),
        ("12:30:05", 1, ReasonCode.POD_DELETED),
        ("12:30:05", 0, ReasonCode.POD_DELETED),
    ],
)
def test_a_pod_that_ended_because_it_was_deleted(finished: str, exit_code: int, wanted: ReasonCode | None) -> None:
    asked_at_12_30 = {"deletionTimestamp": "2026-03-01T12:31:00Z", "deletionGracePeriodSeconds": 60}
    state = terminated(exit_code, finishedAt=f"2026-03-01T{finished}Z")
    phase = "Succeeded" if exit_code == 0 else "Failed"
    assert code(pod(phase, state, metadata=asked_at_12_30)) is wanted


def test_an_image_that_can_be_nobodys_is_hopeless() -> None:
    assert read(pod("Pending", waiting("InvalidImageName"))).hopeless
    assert not read(pod("Pending", waiting("ErrImagePull"))).hopeless


NO_SUCH_IMAGE = [
    'failed to resolve reference "docker.io/library/a:b": docker.io/library/a:b: not found',
    'rpc error: code = NotFound desc = failed to pull and unpack image "docker.io/library/a:b"',
    "reading manifest b in docker.io/library/a: manifest unknown",
    "pull access denied, repository does not exist or may require authorization: server message: insufficient_scope",
    "unexpected status from HEAD request to https://r.test/v2/a/manifests/b: 401 Unauthorized",
    "reading manifest b in quay.io/a: unauthorized: access to the requested resource is not authorized",
    "denied: requested access to the resource is denied",
]
PASSING = [
    "dial tcp 192.0.2.1:443: i/o timeout",
    "dial tcp: lookup r.test on 10.0.0.10:53: no such host",
    "dial tcp 192.0.2.1:443: connect: connection refused",
    "429 Too Many Requests - Server message: toomanyrequests: You have reached your unauthenticated pull rate limit",
    "unexpected status from HEAD request to https://r.test/v2/a/manifests/b: 503 Service Unavailable",
    "failed to copy: httpReadSeeker: unexpected EOF",
    'mirror.test/a:b: not found; failed to do request: Head "https://r.test/v2/a/manifests/b": dial tcp: i/o timeout',
    None,
]


@pytest.mark.parametrize("message", NO_SUCH_IMAGE)
@pytest.mark.parametrize("word", ["ErrImagePull", "ImagePullBackOff"])
def test_an_image_that_its_registry_does_not_have_will_not_come_by_waiting(word: str, message: str) -> None:
    status = read(pod("Pending", waiting(word, message)))
    assert (status.hopeless, status.hopeless_here) == (False, True)
    backing_off = f'Back-off pulling image "a:b": ErrImagePull: {message}'
    assert read(pod("Pending", waiting(word, backing_off))).hopeless_here
    assert not read(pod("Pending", waiting("ContainerCreating", message))).hopeless_here
    assert not read(pod("Running", waiting(word, message))).hopeless_here


@pytest.mark.parametrize("message", PASSING)
def test_a_registry_that_does_not_answer_is_waited_for(message: str | None) -> None:
    assert not read(pod("Pending", waiting("ErrImagePull", message))).hopeless_here
    assert not read(pod("Pending", waiting("ImagePullBackOff", f'Back-off pulling "a:b": {message}'))).hopeless_here


def test_an_image_that_may_not_be_pulled_may_be_on_another_node() -> None:
    assert read(pod("Pending", waiting("ErrImageNeverPull"))).hopeless_here
    assert not read(pod("Pending", waiting("ErrImageNeverPull"))).hopeless


def test_messages_are_bounded_and_on_one_line() -> None:
    reason = read(pod("Pending", waiting("ErrImagePull", "a\nb\x1b[31m " + "x" * 10_000))).reason
    assert reason is not None
    assert "a b [31m xxx" in reason.detail
    assert len(reason.detail) < 600


@pytest.mark.parametrize(
    "metadata",
    [
        {"name": "job-7f3k9q-1-1"},
        {"name": "somebody-elses"},
        {"labels": {}},
        {"labels": None},
        {
            "labels": {
                "gpu-dev/managed": "false",
                "gpu-dev/reservation": "job-7f3k9q",
                "gpu-dev/attempt": "1",
                "gpu-dev/rank": "0",
            }
        },
        {
            "labels": {
                "gpu-dev/managed": "true",
                "gpu-dev/reservation": "job-7f3k9q",
                "gpu-dev/attempt": "01",
                "gpu-dev/rank": "0",
            }
        },
        {
            "labels": {
                "gpu-dev/managed": "true",
                "gpu-dev/reservation": "job-7f3k9q",
                "gpu-dev/attempt": "١",
                "gpu-dev/rank": "0",
            }
        },
        {"labels": {"gpu-dev/managed": "true", "gpu-dev/reservation": "", "gpu-dev/attempt": "1", "gpu-dev/rank": "0"}},
    ],
)
def test_a_pod_with_neither_the_labels_nor_the_variable_of_its_name_is_not_ours(metadata: dict[str, Any]) -> None:
    thing = pod("Running", RUNNING, metadata=metadata)
    container_of(thing)["env"] = [{"name": "GPU_DEV_JOB_ID", "value": "job-another"}]
    assert read_pod_status(thing) is None
    container_of(thing)["env"] = None
    assert read_pod_status(thing) is None


@pytest.mark.parametrize("name", ["job-7f3k9q", "job-7f3k9q-1", "job-7f3k9q-01-0", "Job-7f3k9q-1-0", "-1-0", None, 7])
def test_what_no_pod_of_ours_can_be_called_is_not_ours(name: object) -> None:
    assert read_pod_status(pod("Running", RUNNING, metadata={"name": name})) is None


@pytest.mark.parametrize("labels", [{}, None, {"gpu-dev/managed": "true"}, {"gpu-dev/reservation": "job-another"}])
def test_whatever_becomes_of_its_labels_a_pod_is_known_by_what_it_was_made_with(labels: Any) -> None:
    changed = read(pod("Running", RUNNING, metadata={"labels": labels}))
    assert changed == read(pod("Running", RUNNING))


@given(st.from_regex(r"[a-z]([a-z0-9-]{0,46}[a-z0-9])?", fullmatch=True), st.integers(0, 999), st.integers(0, 999_999))
def test_every_name_is_read_back(reservation_id: str, attempt: int, rank: int) -> None:
    name = PodName(reservation_id, attempt, rank)
    thing = pod("Running", RUNNING, metadata={"name": str(name), "labels": {}})
    container_of(thing)["env"].append({"name": "GPU_DEV_JOB_ID", "value": name.reservation_id})
    assert read(thing).name == name


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("gpu-indices", ""),
        ("gpu-indices", "1,1"),
        ("gpu-indices", "1,x"),
        ("gpu-indices", "-1"),
        ("gpu-indices", ",".join(map(str, range(2000)))),
        ("node", ""),
        ("node", "another-node"),
        ("pods", "0"),
        ("pods", "many"),
        ("starts-at", "yesterday"),
        ("starts-at", "2026-03-01T12:00:00"),
        ("ends-at", "2026-03-01T12:00:00Z"),
        ("ends-at", "9999-12-31T23:59:59-23:59"),
        ("ends-at", None),
    ],
)
def test_broken_marks_hold_nothing(key: str, value: str | None) -> None:
    thing = pod("Running", RUNNING)
    thing["spec"]["nodeName"] = "node2"
    assert read(thing).holding is not None
    thing["metadata"]["annotations"][f"gpu-dev/{key}"] = value
    status = read(thing)
    assert (status.phase, status.holding) == (PodPhase.RUNNING, None)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from([STARTED, "True"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
STATES = st.fixed_dictionaries(
    {},
    optional={
        kind: JSON
        | st.fixed_dictionaries(
            {},
            optional=dict.fromkeys(("reason", "message", "exitCode", "signal", "startedAt", "finishedAt"), JSON),
        )
        for kind in ("waiting", "running", "terminated")
    },
)
CONDITIONS = st.fixed_dictionaries(
    {"type": st.sampled_from(["PodScheduled", "DisruptionTarget", "Ready"])},
    optional=dict.fromkeys(("status", "reason", "message", "lastTransitionTime"), JSON),
)


@given(
    phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"]) | JSON,
    status=st.fixed_dictionaries(
        {},
        optional={
            "reason": JSON,
            "message": JSON,
            "conditions": JSON | st.lists(CONDITIONS | JSON, max_size=3),
            "containerStatuses": JSON
            | st.lists(st.fixed_dictionaries({"name": JSON, "state": JSON | STATES}), max_size=2),
            "initContainerStatuses": JSON,
        },
    ),
    metadata=st.fixed_dictionaries({}, optional={"deletionTimestamp": JSON, "deletionGracePeriodSeconds": JSON}),
    annotations=JSON,
)
def test_nothing_that_an_object_holds_raises(phase: Any, status: Any, metadata: Any, annotations: Any) -> None:
    thing = build_pod(SINGLE, RULES, NOW)
    thing["metadata"] |= metadata | {"annotations": annotations}
    thing["status"] = {"phase": phase, **status}
    seen = read(thing)
    assert seen.phase is not PodPhase.GONE
    assert (seen.phase is PodPhase.FINISHED) == is_finished(thing)


@given(JSON, JSON, JSON)
def test_whatever_else_is_no_pod_of_ours(metadata: Any, spec: Any, status: Any) -> None:
    assert read_pod_status({"metadata": metadata, "spec": spec, "status": status}) is None
    assert read_pod_status({}) is None
