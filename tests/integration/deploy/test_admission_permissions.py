"""The extender does its work with its own account's token, which may do nothing that it does not need."""

from collections.abc import AsyncIterator

import pytest

from reservation_core.ports.extender import Binding, BindRefusedError
from reservation_core.runtime.extender import RunningExtender, run_extender
from reservation_core.runtime.settings_admission import AdmissionSettings
from tests.card_cluster import CardCluster, card_pod, container
from tests.kubernetes.api_client import ApiAnswerError, JsonObject
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.fault_proxy import FaultProxy
from tests.kubernetes.permissions import granted, needed
from tests.waiting import eventually

SYSTEM = "gpu-dev-system"
PATIENCE_S = 60


class NamedQuotas(CardCluster):
    """With the ConfigMap that the role names."""

    @property
    def quota_name(self) -> str:
        return "gpuquota"


@pytest.fixture
async def cards(deployed: ApiServer, namespace: str) -> AsyncIterator[NamedQuotas]:
    async with deployed.client() as client:
        made = NamedQuotas(client, namespace)
        yield made
        await made.clean_up()


async def work(running: RunningExtender, cards: NamedQuotas, *, bind: bool) -> None:
    """All that it asks an API server for."""
    await eventually(running.ready, PATIENCE_S)
    node = await cards.add_node(shared=2, memory=8)
    pod = await cards.add(card_pod("pod", container(core=50)) if bind else bound_to(node))

    async def done() -> bool:
        found = (await cards.read(pod["metadata"]["name"]))["metadata"].get("annotations") or {}
        return "gpu-dev/cards" in found

    if bind:
        await eventually(lambda: running.extender.filter(pod, [node]).fitting == (node,), PATIENCE_S)
        binding = Binding(cards.namespace, "pod", pod["metadata"]["uid"], node)
        await running.extender.bind(binding)
        await running.extender.bind(binding)
        with pytest.raises(BindRefusedError, match="no pod"):  # a pod that was not seen is looked up
            await running.extender.bind(Binding(cards.namespace, "no-such-pod", "no-such-uid", node))
    await eventually(done, PATIENCE_S)
    await cards.put_quotas("broken")
    await eventually(running.problems, PATIENCE_S)

    async def told() -> bool:
        return any(each["reason"] == "BadQuotas" for each in await cards.quota_events())

    await eventually(told, PATIENCE_S)


def bound_to(node: str) -> JsonObject:
    return card_pod("beside", container(core=50), nodeName=node)


async def test_it_works_and_needs_all_that_its_account_may(deployed: ApiServer, cards: NamedQuotas) -> None:
    token = await deployed.token_of(SYSTEM, "gpu-admission")
    with FaultProxy(deployed) as proxy:
        for assume_at in ("bind", "filter"):
            settings = AdmissionSettings.model_validate(
                {
                    "kubernetes": {"kubeconfig": proxy.kubeconfig(token, "admission")},
                    "admission": {
                        "assume_at": assume_at,
                        "leader_elect": True,
                        "lease_namespace": SYSTEM,
                        "lease_s": 6,
                        "renew_within_s": 4,
                        "retry_s": 0.2,
                    },
                }
            )
            await cards.put_quotas({})
            async with run_extender(settings) as running:
                await work(running, cards, bind=assume_at == "bind")
        await eventually(lambda: proxy.cut_watches() == 0)
        asked = {each for request in proxy.requests if (each := needed(request.method, request.path)) is not None}
    may = granted("gpu-admission")
    assert {one for one in asked if not any(each.covers(one) for each in may)} == set(), "the manifests lack these"
    assert {each for each in may if not any(each.covers(one) for one in asked)} == set(), "nothing needs these"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/secrets"),
        ("GET", "/api/v1/namespaces/kube-system/configmaps"),
        ("GET", "/api/v1/namespaces/kube-system/configmaps?fieldSelector=metadata.name%3Dother"),
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x"),
        ("DELETE", "/api/v1/namespaces/default/pods/x"),
        ("DELETE", "/api/v1/nodes/x"),
    ],
)
async def test_what_is_not_its_to_do_is_refused(method: str, path: str, deployed: ApiServer) -> None:
    if not deployed.real:
        pytest.skip("the emulator refuses nobody; set KUBEBUILDER_ASSETS to a directory with kube-apiserver and etcd")
    async with deployed.client(await deployed.token_of(SYSTEM, "gpu-admission")) as client:
        with pytest.raises(ApiAnswerError, match="forbidden"):
            await client.call(method, path)
