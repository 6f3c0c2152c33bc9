"""Changes and the operations that tell them: a JSON patch library makes of the pod what the changes say."""

import copy
import json
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.pods.pod_changes import PodChanges, pointer

NAMES = st.sampled_from(["a", "gpu-dev/map-index", "x~y", "~1", "a/b~0", ""])
TEXTS = st.sampled_from(["", "1", "2"])


def applied(changes: PodChanges, pod: Any) -> Any:
    operations = [operation.as_json() for operation in changes.operations]
    return jsonpatch.apply_patch(pod, json.loads(json.dumps(operations)))


@pytest.mark.parametrize(
    ("path", "written"),
    [
        (("metadata", "annotations", "gpu-dev/map-index"), "/metadata/annotations/gpu-dev~1map-index"),
        (("a~b", "~1", 0, "c/d~e"), "/a~0b/~01/0/c~1d~0e"),
        (("",), "/"),
    ],
)
def test_a_path_as_a_pointer(path: tuple[str | int, ...], written: str) -> None:
    assert pointer(path) == written


@pytest.mark.parametrize(
    "pod",
    [
        {},
        {"metadata": None},
        {"metadata": {}},
        {"metadata": {"annotations": None}},
        {"metadata": {"annotations": {}}},
        {"metadata": {"annotations": {"gpu-dev/owner": "eve", "mine": "yes"}, "name": "n"}},
    ],
)
def test_annotations_are_set_wherever_they_are_missing(pod: dict[str, Any]) -> None:
    before = copy.deepcopy(pod)
    changes = PodChanges(pod)
    changes.annotate({"gpu-dev/owner": "ada", "a~b/c": "d"})
    assert pod == before
    result = applied(changes, pod)
    assert result == changes.pod
    had = (pod.get("metadata") or {}).get("annotations") or {}
    assert result["metadata"]["annotations"] == {**had, "gpu-dev/owner": "ada", "a~b/c": "d"}
    again = PodChanges(result)
    again.annotate({"gpu-dev/owner": "ada", "a~b/c": "d"})
    assert again.operations == ()


def test_annotations_that_are_not_there_are_not_removed() -> None:
    changes = PodChanges({"metadata": {"annotations": {"a/b": "1", "c": "2"}}})
    assert changes.remove_annotations(["a/b", "absent"]) == ("a/b",)
    assert changes.pod == {"metadata": {"annotations": {"c": "2"}}}
    assert PodChanges({}).remove_annotations(["a"]) == ()


@given(st.data(), st.dictionaries(NAMES, TEXTS, max_size=3), st.lists(TEXTS, max_size=3))
def test_any_sequence_of_changes_is_what_its_operations_make(data: st.DataObject, members: Any, items: Any) -> None:
    pod = {"metadata": {"annotations": members}, "spec": {"list": [{"env": item} for item in items]}}
    before = copy.deepcopy(pod)
    changes = PodChanges(pod)
    for _ in range(data.draw(st.integers(0, 6))):
        there: Any = changes.pod
        annotations, listed = there["metadata"]["annotations"], there["spec"]["list"]
        match data.draw(st.sampled_from(["annotate", "remove", "insert", "replace", "delete", "member"])):
            case "annotate":
                changes.annotate({data.draw(NAMES): data.draw(TEXTS)})
            case "remove":
                changes.remove_annotations([data.draw(NAMES)])
            case "insert":
                changes.add(("spec", "list", data.draw(st.integers(0, len(listed)))), {"env": data.draw(TEXTS)})
            case "replace" if listed:
                changes.replace(("spec", "list", data.draw(st.integers(0, len(listed) - 1))), {"env": "new"})
            case "delete" if listed:
                changes.remove(("spec", "list", data.draw(st.integers(0, len(listed) - 1))))
            case "member" if annotations:
                changes.replace(("metadata", "annotations", data.draw(st.sampled_from(sorted(annotations)))), "new")
    assert pod == before
    assert applied(changes, pod) == changes.pod
