"""Pods with shares on a real API server: admitted with a reference, bound by the extender with what it refers to."""

from collections.abc import AsyncIterator, Iterator

import pytest

from pod_scheduling.ports.extender import Binding
from pod_scheduling.runtime.extender import run_extender
from pod_scheduling.runtime.settings.admission import AdmissionSettings
from reservation_core.adapters.certificates.pairs import Pair
from tests.clusters.card_cluster import CardCluster, card_pod, container
from tests.clusters.webhook_registration import registered
from tests.kubernetes.api_client import ApiAnswerError, JsonObject
from tests.kubernetes.api_server import ApiServer
from tests.programs.webhook_process import WebhookProcess, new_pair, webhook_process, write_pair
from tests.waiting import eventually

PATIENCE_S = 120


@pytest.fixture(scope="module")
def pair() -> Pair:
    return new_pair()


@pytest.fixture(scope="module")
def webhook(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory, pair: Pair) -> Iterator[WebhookProcess]:
    if not api_server.real:
        pytest.skip("the emulator calls no webhooks; set KUBEBUILDER_ASSETS")
    folder = tmp_path_factory.mktemp("webhook")
    write_pair(pair, folder)
    with webhook_process(folder) as webhook:
        yield webhook


@pytest.fixture
async def cards(
    api_server: ApiServer, namespace: str, webhook: WebhookProcess, pair: Pair
) -> AsyncIterator[CardCluster]:
    """A namespace about which the webhook is asked."""
    async with (
        registered(api_server, namespace, namespace, webhook.url, [pair], labelled=True),
        api_server.client() as client,
    ):
        made = CardCluster(client, namespace)
        yield made
        await made.clean_up()


def labelled(name: str, *containers: JsonObject, **annotations: str) -> JsonObject:
    pod = card_pod(name, *containers)
    pod["metadata"] |= {"labels": {"gpu-dev/cards": "visible"}, "annotations": annotations}
    return pod


def told(pod: JsonObject) -> list[dict[str, str]]:
    """What each container's variables are: a value, or the annotation's that they refer to."""
    annotations = pod["metadata"].get("annotations") or {}
    by_path = {f"metadata.annotations['{name}']": value for name, value in annotations.items()}
    return [
        {
            variable["name"]: by_path.get(variable["valueFrom"]["fieldRef"]["fieldPath"], "")
            if "valueFrom" in variable
            else variable["value"]
            for variable in one.get("env") or []
        }
        for one in pod["spec"]["containers"]
    ]


async def test_containers_refer_to_the_cards_that_come_with_the_binding(
    api_server: ApiServer, namespace: str, cards: CardCluster
) -> None:
    node = await cards.add_node(shared=3, memory=32)
    settings = AdmissionSettings.model_validate(
        {
            "kubernetes": {"kubeconfig": api_server.kubeconfig},
            "admission": {"quota_name": cards.quota_name, "lease_namespace": namespace},
        }
    )
    brought = {"tencent.com/predicate-gpu-idx-0": "7"}
    async with run_extender(settings) as running:
        await eventually(running.ready, PATIENCE_S)
        other = await cards.add(card_pod("other", container(core=70)))
        asked = [container("a", core=60), container("b"), container("c", core=200)]
        pod = await cards.add(labelled("told", *asked, **brought))
        order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        assert told(other) == [{}]
        assert told(pod) == [{"CUDA_VISIBLE_DEVICES": "", **order}, {}, {"CUDA_VISIBLE_DEVICES": "", **order}]

        def knows() -> bool:
            return running.extender.filter(pod, [node]).fitting == (node,)

        await eventually(knows, PATIENCE_S)
        metadata = pod["metadata"]
        await running.extender.bind(Binding(namespace, "told", metadata["uid"], node))
    kept = await cards.read("told")
    first, second, third = told(kept)
    annotations = kept["metadata"]["annotations"]
    assert first == {"CUDA_VISIBLE_DEVICES": annotations["tencent.com/predicate-gpu-idx-0"], **order}
    assert second == {}
    assert third == {"CUDA_VISIBLE_DEVICES": annotations["tencent.com/predicate-gpu-idx-2"], **order}
    cards_of = {*first["CUDA_VISIBLE_DEVICES"].split(","), *third["CUDA_VISIBLE_DEVICES"].split(",")}
    assert cards_of == {"0", "1", "2"}


async def test_another_value_is_refused_by_the_server(cards: CardCluster) -> None:
    own = {**container(core=50), "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "3"}]}
    with pytest.raises(ApiAnswerError, match="Leave the variable out, or the label") as refused:
        await cards.add(labelled("own", own))
    assert refused.value.code == 403
