"""What of a pod has to agree before it is bound: whatever somebody forges, one row each."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from pod_scheduling.domain.maps.admitted_maps import NotAdmittedError, admitted_entry
from pod_scheduling.domain.maps.map_injection import InjectionRules, injection
from pod_scheduling.domain.maps.scheduling_map import MapEntry, map_digest
from reservation_core.domain.pods.reviews import Operation, Patched, PodReview

MAP = "0=node1:0,1\n1=node2:none\n"
Change = Callable[[dict[str, Any]], None]


def admitted(name: str = "p-0", text: str = MAP, *, own_cards: bool = False, **labels: str) -> dict[str, Any]:
    pod = {
        "metadata": {"name": name, "annotations": {"gpu-scheduling-map": text}, "labels": labels},
        "spec": {
            "schedulerName": "gpu-scheduler",
            "initContainers": [{"name": "first", "image": "i"}],
            "containers": [{"name": "main", "image": "i"}, {"name": "beside", "image": "i"}],
        },
    }
    verdict = injection(PodReview(Operation.CREATE, pod), InjectionRules(own_cards=own_cards))
    assert isinstance(verdict, Patched)
    return copy.deepcopy(dict(verdict.pod))


def env(pod: dict[str, Any], number: int = 0, kind: str = "containers") -> list[dict[str, Any]]:
    variables: list[dict[str, Any]] = pod["spec"][kind][number]["env"]
    return variables


def annotate(name: str, value: str | None) -> Change:
    def change(pod: dict[str, Any]) -> None:
        if value is None:
            del pod["metadata"]["annotations"][name]
        else:
            pod["metadata"]["annotations"][name] = value

    return change


def test_what_the_webhook_made_is_bound() -> None:
    assert admitted_entry(admitted()) == MapEntry(0, "node1", ("0", "1"))
    assert admitted_entry(admitted("p-1")) == MapEntry(1, "node2", ())


def test_an_empty_value_comes_back_from_the_server_without_it() -> None:
    pod = admitted("p-1")
    for container in (*pod["spec"]["containers"], *pod["spec"]["initContainers"]):
        for variable in container["env"]:
            if variable.get("value") == "":
                del variable["value"]
    assert admitted_entry(pod).devices == ()


def test_what_was_given_its_cards_alone_is_bound() -> None:
    assert admitted_entry(admitted(text="0=node1:3,1", own_cards=True)) == MapEntry(0, "node1", ("3", "1"))


@pytest.mark.parametrize(
    ("name", "value"),
    [("NVIDIA_VISIBLE_DEVICES", "all"), ("NVIDIA_VISIBLE_DEVICES", "1,2"), ("CUDA_VISIBLE_DEVICES", "0,1")],
)
def test_who_was_given_other_cards_than_the_map_says_is_not_bound(name: str, value: str) -> None:
    pod = admitted(text="0=node1:3,1", own_cards=True)
    next(variable for variable in env(pod) if variable["name"] == name)["value"] = value
    with pytest.raises(NotAdmittedError, match="Container main does not have CUDA_VISIBLE_DEVICES="):
        admitted_entry(pod)


def _doubled(pod: dict[str, Any]) -> None:
    env(pod).append({"name": "CUDA_VISIBLE_DEVICES", "value": "0,1,2,3"})


def _doubled_before(pod: dict[str, Any]) -> None:
    env(pod).insert(0, {"name": "CUDA_VISIBLE_DEVICES", "value": "0,1,2,3"})


def _from_elsewhere(pod: dict[str, Any]) -> None:
    source = {"fieldRef": {"fieldPath": "metadata.annotations['devices']"}}
    env(pod).append({"name": "CUDA_VISIBLE_DEVICES", "valueFrom": source})


def _both(pod: dict[str, Any]) -> None:
    for variable in env(pod):
        variable["valueFrom"] = {"fieldRef": {"fieldPath": "metadata.name"}}


def _other_case(pod: dict[str, Any]) -> None:
    for variable in env(pod):
        variable["name"] = variable["name"].lower()


def _digest_with_its_map(pod: dict[str, Any]) -> None:
    text = "0=node1:0,1,2,3"
    annotate("gpu-scheduling-map", text)(pod)
    annotate("gpu-dev/map-digest", map_digest(text))(pod)
    annotate("gpu-dev/map-devices", "0,1,2,3")(pod)


def _bad_map_and_its_digest(pod: dict[str, Any]) -> None:
    annotate("gpu-scheduling-map", "0=node1:0,0")(pod)
    annotate("gpu-dev/map-digest", map_digest("0=node1:0,0"))(pod)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (annotate("gpu-scheduling-map", None), "no annotation gpu-scheduling-map"),
        (annotate("gpu-scheduling-map", MAP + " "), "was changed after"),
        (annotate("gpu-dev/map-digest", None), "webhook did not see this pod"),
        (annotate("gpu-dev/map-digest", "0" * 64), "was changed after"),
        (annotate("gpu-dev/map-digest", ""), "was changed after"),
        (annotate("gpu-dev/map-index", "1"), "gpu-dev/map-index is not what the map says"),
        (annotate("gpu-dev/map-node", "node2"), "gpu-dev/map-node is not"),
        (annotate("gpu-dev/map-devices", None), "gpu-dev/map-devices is not"),
        (annotate("gpu-scheduling-index", "1"), "gpu-dev/map-index is not"),
        (annotate("gpu-scheduling-index", "7"), "no entry for index 7"),
        (annotate("gpu-scheduling-index", "01"), "without leading zeros"),
        (lambda pod: pod["metadata"]["labels"].update({"apps.kubernetes.io/pod-index": "1"}), "map-index is not"),
        (lambda pod: pod["metadata"].update(name="p-1"), "map-index is not"),
        (lambda pod: pod["metadata"].update(name="p"), "has no index"),
        (_digest_with_its_map, "does not have CUDA_VISIBLE_DEVICES=0,1,2,3"),
        (_bad_map_and_its_digest, "a device stands twice"),
        (_doubled, "Container main does not have"),
        (_doubled_before, "Container main does not have"),
        (_from_elsewhere, "Container main does not have"),
        (_both, "Container main does not have"),
        (_other_case, "Container main does not have"),
        (lambda pod: pod["spec"]["containers"][1].pop("env"), "Container beside does not have"),
        (lambda pod: pod["spec"]["containers"][1].update(env=None), "Container beside does not have"),
        (lambda pod: pod["spec"]["initContainers"][0].pop("env"), "Container first does not have"),
        (lambda pod: pod["spec"]["containers"].append({"name": "late"}), "Container late does not have"),
        (lambda pod: env(pod, 0, "initContainers")[0].update(value="0, 1"), "Container first does not have"),
    ],
)
def test_what_does_not_agree_is_not_bound(change: Change, words: str) -> None:
    pod = admitted()
    change(pod)
    with pytest.raises(NotAdmittedError, match=r"Delete the pod and create it again\.$") as told:
        admitted_entry(pod)
    assert words in str(told.value)
