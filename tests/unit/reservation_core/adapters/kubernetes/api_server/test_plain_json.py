"""Objects of lists and watches are read without what nothing reads; odd ones are read whole."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from reservation_core.adapters.kubernetes.api_server.plain_json import ANYTHING, EVENT, LIST, OBJECT, decoded

ROOT = Path(__file__).parents[6]
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "job-1-0",
        "namespace": "jobs",
        "uid": "u",
        "resourceVersion": "7",
        "labels": {"gpu-dev/managed": "true"},
        "annotations": {"gpu-dev/node": "n"},
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 30,
        "finalizers": ["gpu-dev/name-kept"],
        "ownerReferences": [{"uid": "o"}],
    },
    "spec": {"nodeName": "n", "containers": [{"env": [{"name": "A", "value": "1"}]}]},
    "status": {"phase": "Running"},
}
MANAGED = [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}]
STORED = {**POD, "metadata": {**POD["metadata"], "managedFields": MANAGED}}  # type: ignore[dict-item]
FAILURE = {"kind": "Status", "metadata": {}, "status": "Failure", "code": 410, "reason": "Expired", "message": "old"}


def read(thing: Any, decoder: Any) -> Any:
    return decoded(json.dumps(thing).encode(), decoder)


def test_all_but_managed_fields_is_read() -> None:
    assert read(STORED, OBJECT) == POD
    assert read({"type": "ADDED", "object": STORED}, EVENT) == {"type": "ADDED", "object": POD}
    whole = {"metadata": {"continue": "t", "resourceVersion": "9"}, "items": [STORED]}
    assert read(whole, LIST) == {**whole, "items": [POD]}
    assert read(STORED, ANYTHING) == STORED


def test_a_failure_keeps_its_reason() -> None:
    assert read({"type": "ERROR", "object": FAILURE}, EVENT) == {"type": "ERROR", "object": FAILURE}


@pytest.mark.parametrize("odd", [{"metadata": ["?"], "spec": 7}, {"metadata": None}, ["?"], "?", 7, None])
def test_what_has_another_type_is_kept(odd: Any) -> None:
    """Those who read it count it as absent: a decoder that refused it would end the watch."""
    assert read(odd, OBJECT) == odd
    assert read({"type": "ADDED", "object": odd}, EVENT) == {"type": "ADDED", "object": odd}
    assert read({"items": odd, "metadata": {}}, LIST) == {"items": odd, "metadata": {}}


def test_text_that_is_not_json_is_refused() -> None:
    for decoder in (OBJECT, LIST, EVENT, ANYTHING):
        with pytest.raises(ValueError, match=r"(?i)malformed|truncated"):
            decoded(b"{oh", decoder)


def test_each_field_of_metadata_that_is_read_anywhere_is_kept() -> None:
    """A list's own metadata is not among them."""
    asked = re.compile(r'metadata(?:"\)\))?\.get\("(\w+)"')
    packages = ("reservation_core", "pod_scheduling", "gpu_scheduler", "node_agent")
    files = [file for package in packages for file in (ROOT / package).rglob("*.py")]
    read_anywhere = {name for file in files for name in asked.findall(file.read_text(encoding="utf-8"))}
    assert {"generateName", "uid", "labels"} <= read_anywhere
    whole = dict.fromkeys(read_anywhere - {"continue", "managedFields"}, "x")
    assert read({"metadata": whole}, OBJECT) == {"metadata": whole}
