"""The extender does its work with its own account's token, which may do nothing that it does not need."""

from collections.abc import AsyncIterator

import pytest

from pod_scheduling.domain.extender.card_marks import ASKED_AGAIN, CARDS, INDEX_OF
from pod_scheduling.runtime.extender import run_extender
from pod_scheduling.runtime.settings.admission import AdmissionSettings
from reservation_core.adapters.kubernetes.api_server.retries import STRATEGIC_PATCH
from tests.integration.deploy.admission_work import NamedQuotas, work
from tests.kubernetes.api_client import ApiAnswerError, JsonObject
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.fault_proxy import FaultProxy
from tests.kubernetes.permissions import granted, needed
from tests.waiting import eventually

SYSTEM = "gpu-dev-system"


@pytest.fixture
async def cards(deployed: ApiServer, namespace: str) -> AsyncIterator[NamedQuotas]:
    async with deployed.client() as client:
        made = NamedQuotas(client, namespace)
        yield made
        await made.clean_up()


async def test_it_works_and_needs_all_that_its_account_may(deployed: ApiServer, cards: NamedQuotas) -> None:
    token = await deployed.token_of(SYSTEM, "gpu-admission")
    with FaultProxy(deployed) as proxy:
        for assume_at in ("bind", "filter"):
            settings = AdmissionSettings.model_validate(
                {
                    "kubernetes": {"kubeconfig": proxy.kubeconfig(token, "admission")},
                    "admission": {
                        "assume_at": assume_at,
                        "assumed_s": 1,
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
                await work(running, cards, binds=assume_at == "bind", marks=assume_at == "filter")
        await eventually(lambda: proxy.cut_watches() == 0)
        asked = {each for request in proxy.requests if (each := needed(request.method, request.path)) is not None}
    may = granted("gpu-admission")
    assert {one for one in asked if not any(permission.covers(one) for permission in may)} == set(), (
        "the manifests lack these"
    )
    assert {permission for permission in may if not any(permission.covers(one) for one in asked)} == set(), (
        "nothing needs these"
    )


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


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({"metadata": {"annotations": {CARDS: "0=1000", f"{INDEX_OF}0": "0"}}}, False),
        ({"metadata": {"annotations": {ASKED_AGAIN: "2026-11-23T12:00:00+00:00"}}}, False),
        ({"metadata": {"annotations": {"gpu-dev/terminate-at": "2030-01-01T00:00:00Z"}}}, True),
        ({"metadata": {"annotations": {"theirs": None}}}, True),
        ({"metadata": {"labels": {"app": "other"}}}, True),
        ({"spec": {"containers": [{"name": "main", "image": "other"}]}}, True),
    ],
)
async def test_of_pods_it_may_write_the_cards_alone(
    change: JsonObject, refused: bool, deployed: ApiServer, namespace: str
) -> None:
    if not deployed.real:
        pytest.skip(
            "the emulator keeps no policies; set KUBEBUILDER_ASSETS to a directory with kube-apiserver and etcd"
        )
    pod = {
        "metadata": {"name": "theirs", "annotations": {"theirs": "1"}},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    }
    pods = f"/api/v1/namespaces/{namespace}/pods"
    async with deployed.client() as administrator:
        await administrator.call("POST", pods, pod)
    async with deployed.client(await deployed.token_of(SYSTEM, "gpu-admission")) as client:

        async def answer() -> str:
            try:
                await client.call("PATCH", f"{pods}/theirs", change, content_type=STRATEGIC_PATCH)
            except ApiAnswerError as problem:
                return str(problem)
            return ""

        async def is_refused() -> bool:
            return "may write on pods which cards they have" in await answer()

        if refused:
            # A policy holds from a moment after it was made on.
            await eventually(is_refused)
        else:
            assert await answer() == ""
