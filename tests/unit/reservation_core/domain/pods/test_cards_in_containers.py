"""What a container's variables mean on its node, by the runtime's rule written once more; and all orders of asking."""

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pod_scheduling.domain.maps.map_injection import InjectionRules, injection
from reservation_core.adapters.kubernetes.pods.mapped_cards import MappedCards, mapped_cards
from reservation_core.domain.pods.cards_in_containers import cuda_devices, node_devices, renumbered_devices
from reservation_core.domain.pods.reviews import Denied, Operation, Patched, PodReview, Requester

TOLD, GIVEN = InjectionRules(), InjectionRules(own_cards=True)
UUIDS = "GPU-11111111-1111-1111-1111-111111111111,GPU-22222222-2222-2222-2222-222222222222"
PRIVILEGED = {"securityContext": {"privileged": True}}


def container(cuda: str, nvidia: str | None = None, **more: Any) -> dict[str, Any]:
    said = [] if nvidia is None else [{"name": "NVIDIA_VISIBLE_DEVICES", "value": nvidia}]
    return {"name": "main", "env": [*said, {"name": "CUDA_VISIBLE_DEVICES", "value": cuda}], **more}


def pod(devices: str, *containers: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"name": "p-0", "annotations": {"gpu-scheduling-map": f"0=node1:{devices}"}},
        "spec": {"schedulerName": "gpu-scheduler", "containers": list(containers) or [{"name": "main"}]},
    }


def asked(body: Any, *paths: InjectionRules) -> dict[str, Any]:
    for rules in paths:
        verdict = injection(PodReview(Operation.CREATE, body, requester=Requester("ann")), rules)
        assert not isinstance(verdict, Denied), verdict.reason
        body = verdict.pod if isinstance(verdict, Patched) else body
    return dict(body)


def variables(body: dict[str, Any], number: int = 0) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in body["spec"]["containers"][number]["env"]}


@pytest.mark.parametrize(
    ("devices", "inside"), [("0,1", "0,1"), ("2,3", "0,1"), ("3", "0"), ("3,1", "1,0"), ("10,9,2", "2,1,0")]
)
def test_cards_that_were_given_are_counted_from_zero_on_in_the_nodes_order(devices: str, inside: str) -> None:
    assert renumbered_devices(devices) == inside
    assert cuda_devices(container("", devices), devices) == inside
    assert node_devices(container(inside, devices)) == [devices]
    assert cuda_devices(container("", "all"), devices) == devices
    assert cuda_devices(container("", devices, **PRIVILEGED), devices) == devices
    assert node_devices(container(devices, devices, **PRIVILEGED)) == [devices]


@given(st.lists(st.integers(0, 15), min_size=1, unique=True), st.lists(st.integers(0, 15), max_size=4, unique=True))
def test_a_container_sees_what_the_runtime_would_make_of_it(given_cards: list[int], cuda: list[int]) -> None:
    """The oracle: the device files that are there, in their order, and CUDA's choice of them."""
    files = [card for card in range(16) if card in given_cards]
    seen = [files[number] for number in cuda if number < len(files)]
    said = container(",".join(map(str, cuda)), ",".join(map(str, given_cards)))
    assert node_devices(said) == [",".join(map(str, seen))]


@given(st.lists(st.integers(0, 1023), min_size=1, max_size=16, unique=True))
def test_what_was_written_is_read_as_it_was_meant(cards: list[int]) -> None:
    devices = ",".join(map(str, cards))
    body = asked(pod(devices), GIVEN)
    assert variables(body)["NVIDIA_VISIBLE_DEVICES"] == devices
    assert node_devices(body["spec"]["containers"][0]) == [devices]
    assert mapped_cards(body) == MappedCards(len(cards), tuple(sorted(cards)))


@pytest.mark.parametrize("devices", ["0,1", "2,3", "3,1", UUIDS, "none"])
@pytest.mark.parametrize("paths", [*permutations((TOLD, GIVEN)), (GIVEN, TOLD, GIVEN, TOLD), (GIVEN,)])
def test_in_whatever_order_and_however_often_both_paths_are_asked_the_pod_is_the_same(
    devices: str, paths: tuple[InjectionRules, ...]
) -> None:
    body = asked(pod(devices, {"name": "main"}, {"name": "beside", **PRIVILEGED}), *paths)
    own = "" if devices == "none" else devices
    given = {"NVIDIA_VISIBLE_DEVICES": "void" if devices == "none" else devices}
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert variables(body) == {**given, "CUDA_VISIBLE_DEVICES": renumbered_devices(own), **order}
    assert variables(body, 1) == {**given, "CUDA_VISIBLE_DEVICES": own, **order}


def test_outside_enforced_namespaces_the_runtime_is_told_nothing_and_who_tells_it_counts_right() -> None:
    assert variables(asked(pod("2,3"), TOLD)) == {"CUDA_VISIBLE_DEVICES": "2,3", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    for value, inside in (("2,3", "0,1"), ("all", "2,3")):
        own = {"name": "main", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": value}]}
        assert variables(asked(pod("2,3", own), TOLD))["CUDA_VISIBLE_DEVICES"] == inside


@given(st.sampled_from(["all", "0", "2", "2,3,4", "void", "none", " 2,3"]))
def test_other_cards_than_the_maps_are_refused(value: str) -> None:
    own = {"name": "main", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": value}]}
    verdict = injection(PodReview(Operation.CREATE, pod("2,3", own)), GIVEN)
    assert isinstance(verdict, Denied)
    assert verdict.reason.startswith(f"NVIDIA_VISIBLE_DEVICES of container 'main' is {value!r}, and the map says '2,3'")


def test_other_cards_are_overwritten_with_a_warning_where_the_rules_say_so() -> None:
    own = {"name": "main", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    rules = InjectionRules(own_cards=True, override_devices=True)
    verdict = injection(PodReview(Operation.CREATE, pod("2,3", own)), rules)
    assert isinstance(verdict, Patched)
    said = variables(dict(verdict.pod))
    assert (said["NVIDIA_VISIBLE_DEVICES"], said["CUDA_VISIBLE_DEVICES"]) == ("2,3", "0,1")
    assert verdict.warnings == (
        "NVIDIA_VISIBLE_DEVICES of container 'main' was 'all'; it is now '2,3', as the map says",
    )


def test_debugging_containers_are_given_the_pods_cards() -> None:
    old = asked(pod("3,1"), TOLD, GIVEN)
    for paths in permutations((TOLD, GIVEN)):
        body: Any = {**old, "spec": {**old["spec"], "ephemeralContainers": [{"name": "debug"}]}}
        for rules in paths:
            verdict = injection(PodReview(Operation.UPDATE, body, old, "ephemeralcontainers"), rules)
            body = verdict.pod if isinstance(verdict, Patched) else body
        said = {variable["name"]: variable["value"] for variable in body["spec"]["ephemeralContainers"][0]["env"]}
        assert (said["NVIDIA_VISIBLE_DEVICES"], said["CUDA_VISIBLE_DEVICES"]) == ("3,1", "1,0")
