"""Service accounts' tokens, shown to the emulator or to a real API server: ours, those of others, and what is none."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from reservation_core.adapters.identity.turns import TurnRules
from reservation_core.adapters.kubernetes.api_server.credentials import Credentials
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.adapters.kubernetes.other_objects.token_reviews import TokenReviews
from reservation_core.contracts.sign_in import KubernetesProof
from reservation_core.domain.errors import ProofRefusedError, SignInRefusedError
from reservation_core.domain.statuses import SignInMethod
from reservation_core.ports.people.proofs import ProofUnavailableError
from tests.kubernetes.api_server import ApiServer

US = "https://gpus.example.org"


@asynccontextmanager
async def reviewing(server: ApiServer, token: str | None = None) -> AsyncIterator[TokenReviews]:
    """Reviews by an administrator, or by whoever has `token`."""
    kubeconfig = server.kubeconfig if token is None else server.kubeconfig_with(token, "reviewer")
    transport = Transport(Credentials(kubeconfig, None, {}), 30)
    try:
        yield TokenReviews(transport, {US, "https://gpus.internal.example"}, TurnRules())
    finally:
        await transport.close()


def proof(token: str) -> KubernetesProof:
    """What a client sends."""
    return KubernetesProof(method=SignInMethod.KUBERNETES, token=token)


async def test_a_service_accounts_token_for_us_names_it(api_server: ApiServer, namespace: str) -> None:
    async with reviewing(api_server) as reviews:
        for audiences in ((US,), ("https://other.example", US)):
            token = await api_server.token_of(namespace, "runner", *audiences)
            checked = await reviews.check(proof(token))
            assert checked.identity.name == f"system:serviceaccount:{namespace}:runner"
            assert checked.identity.attributes == {"namespace": (namespace,), "service_account": ("runner",)}
            assert checked.once is None


async def test_tokens_for_others_are_refused(api_server: ApiServer, namespace: str) -> None:
    async with reviewing(api_server) as reviews:
        token = await api_server.token_of(namespace, "runner", "https://other.example")
        with pytest.raises(ProofRefusedError, match="audience"):
            await reviews.check(proof(token))
        if api_server.real:
            # The one for the API server itself: whoever has it could do there what the account may.
            own = await api_server.token_of(namespace, "runner")
            with pytest.raises(ProofRefusedError, match="audience"):
                await reviews.check(proof(own))


async def test_what_is_no_token_is_refused(api_server: ApiServer, namespace: str) -> None:
    token = await api_server.token_of(namespace, "runner", US)
    head, _, signature = token.split(".")
    async with reviewing(api_server) as reviews:
        for forged in ("eyJhbGciOiJub25lIn0.e30.", f"{head}.e30.{signature}", f"{token}x"):
            with pytest.raises(ProofRefusedError):
                await reviews.check(proof(forged))


async def test_an_account_that_is_gone_is_nobody(api_server: ApiServer, namespace: str) -> None:
    token = await api_server.token_of(namespace, "leaving", US)
    async with api_server.client() as client:
        await client.call("DELETE", f"/api/v1/namespaces/{namespace}/serviceaccounts/leaving")
    async with reviewing(api_server) as reviews:
        with pytest.raises(ProofRefusedError):
            await reviews.check(proof(token))


async def test_without_leave_to_ask_nobody_is_let_in(api_server: ApiServer, namespace: str) -> None:
    if not api_server.real:
        pytest.skip("the emulator refuses nobody; set KUBEBUILDER_ASSETS to a directory with kube-apiserver and etcd")
    token = await api_server.token_of(namespace, "runner", US)
    async with reviewing(api_server, await api_server.token_of(namespace, "nobody")) as reviews:
        with pytest.raises(ProofUnavailableError, match="tokenreviews"):
            await reviews.check(proof(token))


class Answering:
    """A way to an API server that says this of every token."""

    def __init__(self, status: object) -> None:
        self.status = status

    async def request(self, *_path: str, body: object) -> dict[str, object]:
        """The review."""
        return {"kind": "TokenReview", "status": self.status}


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (None, ProofRefusedError),
        ({"authenticated": "true", "audiences": [US]}, ProofRefusedError),
        # A server that looks at no audiences says nothing of them.
        ({"authenticated": True, "user": {"username": "system:serviceaccount:a:b"}}, ProofRefusedError),
        (
            {"authenticated": True, "user": {"username": "system:serviceaccount:a:b"}, "audiences": []},
            ProofRefusedError,
        ),
        (
            {"authenticated": True, "user": {"username": "system:serviceaccount:a:b"}, "audiences": "x"},
            ProofRefusedError,
        ),
        ({"authenticated": True, "user": {"username": "ann"}, "audiences": [US]}, SignInRefusedError),
        (
            {"authenticated": True, "user": {"username": "system:serviceaccount:a:b:c"}, "audiences": [US]},
            SignInRefusedError,
        ),
        ({"authenticated": True, "user": {}, "audiences": [US]}, SignInRefusedError),
    ],
)
async def test_odd_answers_let_nobody_in(status: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        await TokenReviews(Answering(status), {US}, TurnRules()).check(proof("aaaaaaaa.b.c"))  # type: ignore[arg-type]


class Slow(Answering):
    """One that says it when it may, and counts."""

    def __init__(self) -> None:
        super().__init__({"authenticated": False})
        self.may = asyncio.Event()
        self.asked = self.most = 0

    async def request(self, *path: str, body: object) -> dict[str, object]:
        """The review, late."""
        self.asked += 1
        self.most = max(self.most, self.asked)
        await self.may.wait()
        self.asked -= 1
        return await super().request(*path, body=body)


async def test_a_flood_of_tokens_asks_the_api_server_about_few_at_once() -> None:
    server = Slow()
    reviews = TokenReviews(server, {US}, TurnRules(parallel=2, waiting=3, timeout_s=120))  # type: ignore[arg-type]
    flood = [asyncio.create_task(reviews.check(proof(f"aaaaaaaa{number}.b.c"))) for number in range(9)]
    async with asyncio.timeout(60):
        while sum(review.done() for review in flood) < 4:
            await asyncio.wait([review for review in flood if not review.done()], return_when=asyncio.FIRST_COMPLETED)
    server.may.set()
    outcomes = await asyncio.gather(*flood, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ProofRefusedError] * 5 + [ProofUnavailableError] * 4
    assert server.most == 2


async def test_an_api_server_that_does_not_answer_is_not_waited_for() -> None:
    reviews = TokenReviews(Slow(), {US}, TurnRules(timeout_s=0.1))  # type: ignore[arg-type]
    with pytest.raises(ProofUnavailableError, match="did not answer within"):
        await reviews.check(proof("aaaaaaaa.b.c"))
