"""The account that ends pods that people made may patch every pod by its role, and by the policy beside it one
annotation.
"""

from itertools import count

import pytest

from tests.integration.deploy.conftest import SYSTEM
from tests.kubernetes.api_client import MERGE, ApiAnswerError, JsonObject
from tests.kubernetes.api_server import ApiServer
from tests.waiting import eventually

HARMFUL: dict[str, JsonObject] = {
    "an image": {"spec": {"containers": [{"name": "main", "image": "registry.test/intruder:1"}]}},
    "a label": {"metadata": {"labels": {"app": "other"}}},
    "another annotation": {"metadata": {"annotations": {"gpu-dev/owner": "eve"}}},
    "another's annotation": {"metadata": {"annotations": {"kept": None}}},
    "a changed annotation": {"metadata": {"annotations": {"kept": "no"}}},
    "a finalizer": {"metadata": {"finalizers": ["a.example/b"]}},
    "an owner": {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "0-0"}]}},
    "a deadline": {"spec": {"activeDeadlineSeconds": 1}},
}


@pytest.mark.parametrize("account", ["reservation-expiry", "standalone"])
async def test_one_annotation_of_peoples_pods_may_be_changed_and_nothing_else(
    account: str, deployed: ApiServer, namespace: str
) -> None:
    if not deployed.real:
        pytest.skip("the emulator knows no policies; set KUBEBUILDER_ASSETS")
    pods = f"/api/v1/namespaces/{namespace}/pods"
    pod = {
        "metadata": {"name": "theirs", "annotations": {"kept": "yes"}},
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [{"name": "main", "image": "registry.test/theirs:1"}],
        },
    }
    end = {"metadata": {"annotations": {"gpu-dev/terminate-at": "2030-01-01T00:00:00Z"}}}
    async with deployed.client() as owner:
        await owner.call("POST", pods, pod)
    async with deployed.client(await deployed.token_of(SYSTEM, account)) as ender:

        async def refusal(body: JsonObject) -> str:
            try:
                await ender.call("PATCH", f"{pods}/theirs", body, content_type=MERGE)
            except ApiAnswerError as problem:
                if problem.code != 403:
                    raise
                return str(problem)
            return ""

        # A policy counts from a moment after it was written; what was changed before is no change any more.
        tries = count()

        async def refused() -> bool:
            return "nothing else" in await refusal({"metadata": {"labels": {"try": str(next(tries))}}})

        await eventually(refused)
        for name, body in HARMFUL.items():
            assert "nothing else" in await refusal(body), name
        assert await refusal(end) == ""
        assert await refusal({"metadata": {"annotations": {"gpu-dev/terminate-at": None}}}) == ""
