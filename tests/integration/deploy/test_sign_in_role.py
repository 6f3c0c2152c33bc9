"""What the API service needs where service accounts sign in, beside its own role: `deploy/sign-in`, and no more."""

from collections.abc import AsyncIterator

import pytest

from reservation_core.adapters.identity.turns import TurnRules
from reservation_core.adapters.kubernetes.api_server.credentials import Credentials
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.adapters.kubernetes.other_objects.token_reviews import TokenReviews
from reservation_core.contracts.sign_in import KubernetesProof
from reservation_core.domain.statuses import SignInMethod
from tests.clusters.kubernetes_schemas import validate
from tests.kubernetes.api_client import JsonObject
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.fault_proxy import FaultProxy
from tests.kubernetes.manifests import DEPLOY, apply, remove
from tests.kubernetes.permissions import Permission, needed
from tests.read_yaml import read_all_yaml

US = "https://gpus.example.org"
SYSTEM = "gpu-dev-system"
DOCUMENTS: list[JsonObject] = list(read_all_yaml((DEPLOY / "sign-in" / "token-reviews.yaml").read_text()))


@pytest.fixture
async def deciding(deployed: ApiServer) -> AsyncIterator[ApiServer]:
    """An API server that knows the role; the emulator keeps none."""
    if deployed.real:
        async with deployed.client() as client:
            for document in DOCUMENTS:
                await apply(client, document)
    yield deployed
    if deployed.real:
        async with deployed.client() as client:
            for document in DOCUMENTS:
                await remove(client, document)


@pytest.mark.parametrize("version", ["1.30", "1.33", "1.37"])
def test_kubernetes_knows_every_field(version: str) -> None:
    for document in DOCUMENTS:
        validate(document, version)


async def test_it_is_what_asking_takes_and_no_more(deciding: ApiServer, namespace: str) -> None:
    [role] = [document for document in DOCUMENTS if document["kind"] == "ClusterRole"]
    granted = {
        Permission("", group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    ours = await deciding.token_of(SYSTEM, "api-service")
    theirs = await deciding.token_of(namespace, "runner", US)
    with FaultProxy(deciding) as proxy:
        transport = Transport(Credentials(proxy.kubeconfig(ours, "api-service"), None, {}), 30)
        try:
            proof = KubernetesProof(method=SignInMethod.KUBERNETES, token=theirs)
            checked = await TokenReviews(transport, {US}, TurnRules()).check(proof)
        finally:
            await transport.close()
        asked = {needed(request.method, request.path) for request in proxy.requests}
    assert checked.identity.name == f"system:serviceaccount:{namespace}:runner"
    assert asked == granted
