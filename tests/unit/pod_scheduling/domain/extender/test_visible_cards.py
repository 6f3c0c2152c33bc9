"""Pods that ask by a label to be told their shares: what is written in their containers, and what is left alone."""

import copy
import json
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pod_scheduling.domain.extender.asked_cards import CardResources, asked_cards
from pod_scheduling.domain.extender.card_marks import INDEX_OF
from pod_scheduling.domain.extender.visible_cards import VisibleCardsRules, visible_cards
from reservation_core.domain.pods.reviews import Denied, Operation, Patched, PodReview, Untouched, Verdict
from tests.clusters.card_cluster import CORE, WHOLE
from tests.clusters.pod_strategies import Json, pods

RULES = VisibleCardsRules()
ORDER = {"name": "CUDA_DEVICE_ORDER", "value": "PCI_BUS_ID"}


def devices(number: int, **more: str) -> Json:
    path = f"metadata.annotations['tencent.com/predicate-gpu-idx-{number}']"
    return {"name": "CUDA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {**more, "fieldPath": path}}}


def container(name: str = "main", env: Any = None, **amounts: int) -> Json:
    limits = {{"core": CORE, "gpu": WHOLE}[key]: str(amount) for key, amount in amounts.items()}
    made: Json = {"name": name, "image": "busybox", "resources": {"limits": limits}}
    return made if env is None else {**made, "env": env}


def pod(*containers: Json, label: str | None = "visible", annotations: Any = None, **spec: Any) -> Json:
    labels = {} if label is None else {"gpu-dev/cards": label}
    return {
        "metadata": {"name": "p", "labels": labels, "annotations": annotations or {}},
        "spec": {"containers": list(containers), **spec},
    }


def reviewed(given: Json, rules: VisibleCardsRules = RULES, **review: Any) -> Verdict:
    return visible_cards(PodReview(Operation.CREATE, given, **review), rules)


def patched(given: Json, rules: VisibleCardsRules = RULES) -> Json:
    """The pod as the API server's own kind of patching makes it; it must be what the verdict says."""
    before = copy.deepcopy(given)
    verdict = reviewed(given, rules)
    assert isinstance(verdict, Patched), verdict
    assert given == before
    operations = json.loads(json.dumps([operation.as_json() for operation in verdict.operations]))
    result: Json = jsonpatch.apply_patch(given, operations)
    assert result == verdict.pod
    return result


def test_each_container_refers_to_the_annotation_of_its_own_number() -> None:
    result = patched(pod(container("a", core=30), container("b"), container("c", core=200)))
    told = [listed_container.get("env") for listed_container in result["spec"]["containers"]]
    assert told == [[devices(0), ORDER], None, [devices(2), ORDER]]


@pytest.mark.parametrize(
    "given",
    [
        pod(container(core=50), label=None),
        pod(container(core=50), label="true"),
        pod(container(core=50), schedulerName="gpu-scheduler"),
    ],
)
def test_who_did_not_ask_and_who_has_a_map_is_left_alone(given: Json) -> None:
    assert reviewed(given) == Untouched()


def test_only_new_pods_are_changed() -> None:
    given = pod(container(core=50))
    assert visible_cards(PodReview(Operation.UPDATE, given, given), RULES) == Untouched()
    assert visible_cards(PodReview(Operation.DELETE, None, given), RULES) == Untouched()
    assert reviewed(given, subresource="binding") == Untouched()


@pytest.mark.parametrize("given", [pod(container()), pod(container(gpu=2)), pod(container(core=0))])
def test_a_label_that_does_nothing_says_so(given: Json) -> None:
    assert reviewed(given) == Untouched(
        ("the label gpu-dev/cards does nothing: no container asks for tencent.com/vcuda-core alone",)
    )


def test_cards_of_a_device_plugin_and_of_init_containers_are_not_told() -> None:
    both, first = container("both", core=50, gpu=1), container("first", core=50)
    given = pod(both, container("own", core=50), initContainers=[first])
    verdict = reviewed(given)
    assert isinstance(verdict, Patched)
    assert verdict.warnings == (
        "init container 'first' does not see its GPU: no annotation names the GPUs of init containers",
        "container 'both' does not see its GPU: a device plugin gives it other GPUs, too",
    )
    spec = patched(given)["spec"]
    assert spec["initContainers"] == [first]
    assert spec["containers"] == [both, container("own", env=[devices(1), ORDER], core=50)]


@pytest.mark.parametrize(
    ("env", "after"),
    [
        ([], [devices(0), ORDER]),
        ([{"name": "A"}], [devices(0), ORDER, {"name": "A"}]),
        ([devices(0)], [ORDER, devices(0)]),
        # As the API server gives it back when it asks again.
        ([devices(0, apiVersion="v1"), {"name": "A"}], [ORDER, devices(0, apiVersion="v1"), {"name": "A"}]),
        # Somebody has put a container before it meanwhile, or it refers to something else altogether.
        ([devices(3), ORDER], [devices(0), ORDER]),
        (
            [{"name": "CUDA_VISIBLE_DEVICES", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}, ORDER],
            [devices(0), ORDER],
        ),
    ],
)
def test_what_becomes_of_an_environment(env: Any, after: Any) -> None:
    assert patched(pod(container(env=env, core=50)))["spec"]["containers"] == [container(env=after, core=50)]


def test_another_value_is_refused_or_with_the_setting_overwritten() -> None:
    given = pod(container(env=[{"name": "CUDA_VISIBLE_DEVICES", "value": "3"}], core=50))
    verdict = reviewed(given)
    assert isinstance(verdict, Denied)
    assert verdict.reason == (
        "CUDA_VISIBLE_DEVICES of container 'main' is '3', and the label gpu-dev/cards says"
        " \"metadata.annotations['tencent.com/predicate-gpu-idx-0']\". Leave the variable out, or the label."
    )
    result = patched(given, VisibleCardsRules(override_devices=True))
    assert result["spec"]["containers"][0]["env"] == [ORDER, devices(0)]


def test_an_environment_that_is_none_is_refused() -> None:
    assert isinstance(reviewed(pod(container(env="x", core=50))), Denied)


def test_cards_that_a_user_wrote_on_it_are_taken_away() -> None:
    brought = {"tencent.com/predicate-gpu-idx-0": "7", "tencent.com/predicate-gpu-idx-9": "1", "kept": "1"}
    assert patched(pod(container(core=50), annotations=brought))["metadata"]["annotations"] == {"kept": "1"}


def test_shares_may_have_another_name() -> None:
    rules = VisibleCardsRules(CardResources(share="example.org/share"))
    assert isinstance(reviewed(pod(container(core=50)), rules), Untouched)
    given = pod({"name": "a", "resources": {"limits": {"example.org/share": "5"}}})
    assert patched(given, rules)["spec"]["containers"][0]["env"] == [devices(0), ORDER]


_AMOUNTS = st.dictionaries(st.sampled_from([CORE, WHOLE, "cpu"]), st.sampled_from(["0", "1", "50", "200"]), max_size=2)


@given(pods(), st.lists(_AMOUNTS, min_size=9, max_size=9), st.booleans(), st.booleans(), st.booleans())
def test_any_pod_changed_twice_is_changed_once_and_nothing_else_of_it(
    given: Json, amounts: list[dict[str, str]], labelled: bool, override: bool, mapped: bool
) -> None:
    given["spec"]["schedulerName"] = "gpu-scheduler" if mapped else "gpu-quota-scheduler"
    containers = given["spec"].get("containers") or []
    for container, limits in zip(containers, amounts, strict=False):
        container["resources"] = {"limits": limits}
    if labelled:
        given["metadata"]["labels"] = {"gpu-dev/cards": "visible"}
    rules = VisibleCardsRules(override_devices=override)
    verdict = reviewed(given, rules)
    if not labelled or mapped:
        assert verdict == Untouched()
        return
    if not isinstance(verdict, Patched):
        return
    result = patched(given, rules)
    again = reviewed(result, rules)
    assert isinstance(again, Untouched)
    assert not [name for name in result["metadata"].get("annotations") or {} if name.startswith(INDEX_OF)]
    alone = (asked_cards({"containers": [listed_container]}, CardResources()) for listed_container in containers)
    told = {number for number, asked in enumerate(alone) if asked.shares and not asked.plugin}
    for number, (before, after) in enumerate(zip(containers, result["spec"]["containers"], strict=True)):
        if number not in told:
            assert after == before
            continue
        ours = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
        said = {variable["name"]: variable for variable in after["env"]}
        assert said["CUDA_VISIBLE_DEVICES"] == devices(number)
        assert said["CUDA_DEVICE_ORDER"] == {**said["CUDA_DEVICE_ORDER"], **ORDER}
        rest = [variable for variable in after["env"] if variable["name"] not in ours]
        assert rest == [variable for variable in before.get("env") or [] if variable["name"] not in ours]
        assert {**after, "env": None} == {**before, "env": None}
