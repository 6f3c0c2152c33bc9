"""Volcano's contract: what each version sends, and what each decodes of our answers.

The types are those of its plugin `extender`: a text in `errorMessage` in 1.7; a list of statuses in `status` in 1.8 and
1.9; a text in `status` with a `code` from 1.10 on.
"""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from gpu_admission.json_walk import BadJsonError
from gpu_admission.volcano import (
    read_allocation,
    read_predicate,
    read_prioritize,
    written_allocation,
    written_predicate,
    written_scores,
)
from pod_scheduling.ports.extender import Filtered
from pod_scheduling.runtime.settings.admission import VolcanoShape
from tests.unit.gpu_admission.go_decoding import GoTypeError, ListOf, MapOf, Real, Struct, Text, Whole, decode

POD = {"metadata": {"name": "train-0", "namespace": "team-a", "uid": "u-1"}, "spec": {"containers": []}, "status": {}}
REASON = "GPU quota of namespace team-a: 8 of 8 H100 used; ask an administrator, or wait"
FITS, FULL = Filtered(("n1",)), Filtered((), {"n1": REASON})
UNLISTED = Filtered((), {}, {"n1": REASON})


@dataclass(frozen=True)
class Read:
    """What a Volcano takes an answer for."""

    fits: bool
    reason: str = ""
    code: int = 0


def read_by_1_7(answer: bytes) -> Read:
    message = decode(answer, Struct({"errorMessage": Text()}))["errorMessage"]
    return Read(message == "", message)


def read_by_1_8(answer: bytes) -> Read:
    """Also by 1.9: any status that is not success is none."""
    found = decode(answer, Struct({"status": ListOf(Struct({"Code": Whole(), "Reason": Text()}, pointer=True))}))
    statuses = [status for status in found["status"] or [] if status is not None]
    bad = [status for status in statuses if status["Code"] != 0]
    return Read(not bad, ",".join(status["Reason"] for status in bad), bad[0]["Code"] if bad else 0)


def read_by_1_10(answer: bytes) -> Read:
    """Also by every newer one."""
    found = decode(answer, Struct({"status": Text(), "code": Whole()}))
    if not found["status"]:
        return Read(True)
    return Read(False, found["status"], found["code"] or 1)


TASK_1_7 = {
    "UID": "u-1", "Job": "team-a/train", "Name": "train-0", "Namespace": "team-a",
    "Resreq": {"MilliCPU": 1000, "Memory": 1, "ScalarResources": {}, "MaxTaskNum": 0}, "InitResreq": {},
    "NodeName": "", "Status": 1, "LastTransaction": None, "Priority": 1, "VolumeReady": False, "Preemptable": False,
    "BestEffort": False, "RevocableZone": "", "NumaInfo": None, "PodVolumes": None, "Pod": POD,
}  # fmt: skip
TASK_1_10 = {**TASK_1_7, "EvictionOccurred": False, "SchGated": False, "HasRestartableInitContainer": False}
_NODE = {
    "Name": "n1", "Node": {"metadata": {"name": "n1"}}, "State": {"Phase": 1, "Reason": ""}, "Releasing": {},
    "Pipelined": {}, "Idle": {}, "Used": {}, "Allocatable": {}, "ResourceUsage": None, "Tasks": {"other": TASK_1_7},
    "NumaInfo": None, "NumaChgFlag": 0, "NumaSchedulerInfo": None, "RevocableZone": "", "Others": {},
    "OversubscriptionNode": False, "OfflineJobEvicting": False, "OversubscriptionResource": {}, "ImageStates": {},
}  # fmt: skip
NODE_1_7 = {**_NODE, "Capability": {}, "GPUDevices": {}}
NODE_1_8 = {**_NODE, "Capacity": {}}
NODE_1_14 = {**NODE_1_8, "Generation": 1, "BindGeneration": 1}
TASK_1_12 = {key: value for key, value in TASK_1_10.items() if key != "PodVolumes"} | {"JobAllocatedHyperNode": ""}

VERSIONS = {
    "1.7": (TASK_1_7, NODE_1_7, read_by_1_7, VolcanoShape.V1_7),
    "1.8": (TASK_1_7, NODE_1_8, read_by_1_8, VolcanoShape.V1_8),
    "1.9": ({**TASK_1_7, "CustomBindErrHandlerSucceeded": False}, NODE_1_8, read_by_1_8, VolcanoShape.V1_8),
    "1.10": (TASK_1_10, NODE_1_8, read_by_1_10, VolcanoShape.V1_10),
    "1.12": (TASK_1_12, NODE_1_8, read_by_1_10, VolcanoShape.V1_10),
    "1.15": ({**TASK_1_12, "DRAResreq": None}, NODE_1_14, read_by_1_10, VolcanoShape.V1_10),
}


def question(task: Any, node: Any) -> bytes:
    return json.dumps({"task": task, "node": node}).encode()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("filtered", [FITS, FULL, UNLISTED])
def test_every_version_reads_its_answer_right_without_being_named(version: str, filtered: Filtered) -> None:
    task, node, reads, exact = VERSIONS[version]
    asked = read_predicate(question(task, node))
    assert (asked.pod, asked.node) == (POD, "n1")
    for shape in (VolcanoShape.AUTO, exact):
        found = reads(written_predicate(asked, filtered, shape))
        assert (found.fits, found.reason) == (bool(filtered.fitting), "" if filtered.fitting else REASON)


def test_what_goes_out() -> None:
    asked = read_predicate(question({"Pod": POD}, {"Name": "n1"}))
    assert written_predicate(asked, FITS, VolcanoShape.AUTO) == b"{}"
    for filtered, code in ((FULL, 2), (UNLISTED, 3)):
        for shape, expected in {
            VolcanoShape.AUTO: {"errorMessage": REASON, "status": REASON, "code": 2},
            VolcanoShape.V1_7: {"errorMessage": REASON},
            VolcanoShape.V1_8: {"status": [{"Code": code, "Reason": REASON}]},
            VolcanoShape.V1_10: {"status": REASON, "code": code},
        }.items():
            assert json.loads(written_predicate(asked, filtered, shape)) == expected
            assert written_predicate(asked, FITS, shape) == b"{}"


def test_a_text_is_no_status_to_1_8_and_a_list_is_none_to_1_10() -> None:
    """Why the sender is looked at: no one answer is read right by all."""
    asked = read_predicate(question({"Pod": POD}, {"Name": "n1"}))
    with pytest.raises(GoTypeError):
        read_by_1_8(written_predicate(asked, FULL, VolcanoShape.AUTO))
    with pytest.raises(GoTypeError):
        read_by_1_10(written_predicate(asked, FULL, VolcanoShape.V1_8))
    assert read_by_1_7(written_predicate(asked, FULL, VolcanoShape.V1_8)).fits  # silently wrong


def test_a_node_that_was_not_judged_does_not_fit() -> None:
    asked = read_predicate(question({"Pod": POD}, {"Name": "n1"}))
    assert "n1 was not judged" in json.loads(written_predicate(asked, Filtered(()), VolcanoShape.AUTO))["status"]


@pytest.mark.parametrize(
    ("task", "node"),
    [
        ({"Pod": POD}, {"Name": "n1"}),
        ({"pod": POD}, {"name": "n1"}),
        ({"Pod": POD}, {"Node": {"metadata": {"name": "n1"}}}),
    ],
)
def test_names_are_read_in_any_letter_case(task: Any, node: Any) -> None:
    asked = read_predicate(json.dumps({"Task": task, "NODE": node}).encode())
    assert (asked.pod, asked.node) == (POD, "n1")


def test_scores_are_on_the_scale_of_volcanos_own() -> None:
    asked = read_prioritize(json.dumps({"task": TASK_1_7, "nodes": [NODE_1_7, {**NODE_1_7, "Name": "n2"}]}).encode())
    assert (asked.pod, asked.nodes) == (POD, ("n1", "n2"))
    found = decode(written_scores(asked.nodes, (10, 3)), Struct({"nodeScore": MapOf(Real()), "errorMessage": Text()}))
    assert found == {"nodeScore": {"n1": 100.0, "n2": 30.0}, "errorMessage": ""}
    assert json.loads(written_scores((), ())) == {"nodeScore": {}}  # null would be taken for an error


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"{", "not JSON"),
        (b"[]", "task and node"),
        (question(None, {"Name": "n1"}), "task must be an object"),
        (question({}, {"Name": "n1"}), "task.Pod must be a pod"),
        (question({"Pod": {}}, {"Name": "n1"}), "metadata and spec"),
        (
            question({"Pod": {"metadata": {}, "spec": {}}}, {"Name": "n1"}),
            "task.Pod.metadata must have a uid, or a name",
        ),
        (question({"Pod": POD}, None), "node must be an object"),
        (question({"Pod": POD}, {}), "Name must be a text"),
        (question({"Pod": POD}, {"Name": 7}), "Name must be a text"),
    ],
)
def test_half_a_question_is_told_what_it_lacks(body: bytes, told: str) -> None:
    with pytest.raises(BadJsonError, match=told):
        read_predicate(body)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"[]", "the body must be an object"),
        (b"{}", "task and nodes"),
        (json.dumps({"task": {"Pod": POD}}).encode(), "task and nodes"),
        (json.dumps({"task": {"Pod": POD}, "nodes": 7}).encode(), "nodes must be a list"),
        (json.dumps({"task": {"Pod": POD}, "nodes": [7]}).encode(), "each of nodes must be an object"),
    ],
)
def test_half_a_question_about_scores_is_told_what_it_lacks(body: bytes, told: str) -> None:
    with pytest.raises(BadJsonError, match=told):
        read_prioritize(body)


def test_what_is_allocated_and_what_is_taken_back_is_read() -> None:
    allocated = read_allocation(json.dumps({"task": {**TASK_1_12, "NodeName": "n1", "Status": 2}}).encode())
    assert (allocated.pod, allocated.node, allocated.waits, allocated.pipelined) == (POD, "n1", False, False)
    assert read_allocation(json.dumps({"task": {**TASK_1_12, "NodeName": "n1", "Status": 4}}).encode()).pipelined
    taken_back = read_allocation(json.dumps({"task": {**TASK_1_12, "NodeName": "n1", "Status": 1}}).encode())
    assert (taken_back.node, taken_back.waits) == ("n1", True)
    evicted = read_allocation(json.dumps({"task": {**TASK_1_12, "NodeName": "n1", "Status": 64}}).encode())
    assert not evicted.waits
    unknown = read_allocation(json.dumps({"TASK": {"pod": POD}}).encode())
    assert (unknown.node, unknown.waits) == ("", False)


def test_an_allocation_is_answered_as_it_is_read() -> None:
    reads = Struct({"errorMessage": Text()})
    assert decode(written_allocation(None), reads)["errorMessage"] == ""
    assert decode(written_allocation(REASON), reads)["errorMessage"] == REASON


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"[]", "the body must be an object with task"),
        (b"{}", "task must be an object"),
        (json.dumps({"task": {"Pod": POD, "NodeName": 7}}).encode(), "NodeName must be a text of at most 253"),
        (json.dumps({"task": {"Pod": POD, "NodeName": "n" * 254}}).encode(), "NodeName must be a text of at most 253"),
    ],
)
def test_half_an_allocation_is_told_what_it_lacks(body: bytes, told: str) -> None:
    with pytest.raises(BadJsonError, match=told):
        read_allocation(body)
