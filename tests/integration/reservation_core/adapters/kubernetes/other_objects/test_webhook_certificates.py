"""A webhook's certificates in a Secret and a configuration: made, trusted, renewed, by several at once."""

import asyncio
import base64
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from structlog.testing import capture_logs

from reservation_core.adapters.certificates.pairs import make_pair, read_authorities, read_serving
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.adapters.kubernetes.other_objects.webhook_certificates import (
    Configuration,
    ConfigurationKind,
    SecretCertificates,
)
from reservation_core.domain.network.serving_certificates import RenewalRules
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.serving_certificates import ChangedMeanwhileError
from reservation_core.usecases.keep_certificates import keep_certificates
from tests.kubernetes.api_client import JsonObject
from tests.kubernetes.api_server import ApiServer
from tests.people.certificate_keys import key_fits

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAY = timedelta(days=1)
RULES = RenewalRules(frozenset({"webhook.system.svc"}), 90 * DAY, 30 * DAY, timedelta(minutes=1))
SECRET = "webhook-tls"


def webhook(name: str, bundle: str | None = None) -> JsonObject:
    config = {"service": {"name": "webhook", "namespace": "system", "path": "/mutate"}}
    return {
        "name": name,
        "clientConfig": config if bundle is None else {**config, "caBundle": bundle},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        # For nobody's pods: other tests make some meanwhile.
        "namespaceSelector": {"matchLabels": {"nobody": "has-this"}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }


@pytest.fixture
async def configuration(api_server: ApiServer) -> AsyncIterator[Configuration]:
    """A configuration with two webhooks, one of which trusts nobody yet and the other a placeholder."""
    found = Configuration(ConfigurationKind.MUTATING, f"webhook-{uuid.uuid4().hex[:8]}")
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": found.name},
        "webhooks": [webhook("a.gpu-dev.test"), webhook("b.gpu-dev.test")],
    }
    path = found.path.rpartition("/")[0]
    async with api_server.client() as client:
        await client.call("POST", path, body)
        yield found
        await client.try_call("DELETE", found.path, {})


@pytest.fixture
def store(transport: Transport, namespace: str, configuration: Configuration) -> SecretCertificates:
    return SecretCertificates(transport, namespace, SECRET, [configuration])


async def data(transport: Transport, namespace: str) -> dict[str, bytes]:
    found = await transport.request("GET", f"/api/v1/namespaces/{namespace}/secrets/{SECRET}")
    return {name: base64.b64decode(value) for name, value in found["data"].items()}


async def bundles(transport: Transport, configuration: Configuration) -> set[bytes]:
    found = await transport.request("GET", configuration.path)
    return {base64.b64decode(webhook["clientConfig"]["caBundle"]) for webhook in found["webhooks"]}


async def test_what_is_not_there_is_made_and_trusted(
    store: SecretCertificates, transport: Transport, namespace: str, configuration: Configuration
) -> None:
    await keep_certificates(store, RULES, NOW)
    held = await data(transport, namespace)
    assert set(held) == {"tls.crt", "tls.key", "ca.crt"}
    assert key_fits(held["tls.crt"], held["tls.key"])
    assert read_serving(held["tls.crt"], held["ca.crt"]).names == RULES.names
    assert await bundles(transport, configuration) == {held["ca.crt"]}


async def test_what_is_right_is_left_alone(store: SecretCertificates, transport: Transport, namespace: str) -> None:
    await keep_certificates(store, RULES, NOW)
    before = await data(transport, namespace)
    await keep_certificates(store, RULES, NOW + 59 * DAY)
    assert await data(transport, namespace) == before


async def test_a_renewal_is_trusted_first_and_used_then_and_what_has_ended_is_forgotten(
    store: SecretCertificates, transport: Transport, namespace: str, configuration: Configuration
) -> None:
    await keep_certificates(store, RULES, NOW)
    first = await data(transport, namespace)
    due = NOW + 60 * DAY
    await keep_certificates(store, RULES, due)
    staged = await data(transport, namespace)
    assert staged["tls.crt"] == first["tls.crt"]
    assert len(read_authorities(staged["ca.crt"])) == 2
    assert await bundles(transport, configuration) == {staged["ca.crt"]}

    await keep_certificates(store, RULES, due + RULES.settle)
    used = await data(transport, namespace)
    assert used["tls.crt"] == staged["next.crt"]
    assert key_fits(used["tls.crt"], used["tls.key"])
    assert set(used) == {"tls.crt", "tls.key", "ca.crt"}

    await keep_certificates(store, RULES, NOW + 91 * DAY)
    (left,) = read_authorities((await data(transport, namespace))["ca.crt"])
    assert left.fingerprint == read_serving(used["tls.crt"], used["ca.crt"]).authority
    ((bundle),) = await bundles(transport, configuration)
    assert read_authorities(bundle) == (left,)


async def test_of_a_secret_that_has_gone_the_authority_stays_trusted(
    store: SecretCertificates, transport: Transport, namespace: str, configuration: Configuration
) -> None:
    """Replicas serve what they have been given until their volumes say otherwise."""
    await keep_certificates(store, RULES, NOW)
    first = await data(transport, namespace)
    await transport.request("DELETE", f"/api/v1/namespaces/{namespace}/secrets/{SECRET}")
    await keep_certificates(store, RULES, NOW + DAY)
    second = await data(transport, namespace)
    assert second["tls.crt"] != first["tls.crt"]
    assert read_serving(second["tls.crt"], second["ca.crt"]).authority
    assert read_serving(first["tls.crt"], second["ca.crt"]).authority
    assert await bundles(transport, configuration) == {second["ca.crt"]}
    await transport.request("DELETE", f"/api/v1/namespaces/{namespace}/secrets/{SECRET}")
    await keep_certificates(store, RULES, NOW + 200 * DAY)
    assert len(read_authorities((await data(transport, namespace))["ca.crt"])) == 1, "what has ended is trusted no more"


async def test_whoever_empties_the_bundle_is_corrected(
    store: SecretCertificates, transport: Transport, namespace: str, configuration: Configuration
) -> None:
    await keep_certificates(store, RULES, NOW)
    found = await transport.request("GET", configuration.path)
    del found["webhooks"][1]["clientConfig"]["caBundle"]
    await transport.request("PUT", configuration.path, body=found)
    await keep_certificates(store, RULES, NOW)
    assert await bundles(transport, configuration) == {(await data(transport, namespace))["ca.crt"]}


async def test_replicas_at_once_end_with_one_certificate(
    transport: Transport, namespace: str, configuration: Configuration
) -> None:
    stores = [SecretCertificates(transport, namespace, SECRET, [configuration]) for _ in range(5)]

    async def until_done(store: SecretCertificates, now: datetime) -> None:
        while True:
            try:
                await keep_certificates(store, RULES, now)
            except ChangedMeanwhileError:
                continue
            return

    for now in (NOW, NOW + 60 * DAY, NOW + 60 * DAY + RULES.settle):
        await asyncio.gather(*(until_done(listed_store, now) for listed_store in stores))
        held = await data(transport, namespace)
        assert await bundles(transport, configuration) == {held["ca.crt"]}
        assert read_serving(held["tls.crt"], held["ca.crt"]).authority
    assert len(read_authorities(held["ca.crt"])) == 2


async def test_who_looked_before_a_renewal_takes_no_trust_away(
    transport: Transport, namespace: str, configuration: Configuration
) -> None:
    late, prompt = (SecretCertificates(transport, namespace, SECRET, [configuration]) for _ in range(2))
    await keep_certificates(prompt, RULES, NOW)
    await late.holdings()
    await keep_certificates(prompt, RULES, NOW + 60 * DAY)
    with pytest.raises(ChangedMeanwhileError):
        await late.trust(NOW + 60 * DAY)
    assert await bundles(transport, configuration) == {(await data(transport, namespace))["ca.crt"]}


async def test_certificates_of_others_are_trusted_and_never_replaced(
    store: SecretCertificates, transport: Transport, namespace: str, configuration: Configuration
) -> None:
    pair = make_pair(["webhook.system.svc"], DAY, NOW)
    given = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": pair.authority}
    body = {
        "metadata": {"name": SECRET},
        "type": "kubernetes.io/tls",
        "data": {name: base64.b64encode(value).decode() for name, value in given.items()},
    }
    await transport.request("POST", f"/api/v1/namespaces/{namespace}/secrets", body=body)
    await keep_certificates(store, RULES, NOW + 300 * DAY)
    assert await data(transport, namespace) == given
    assert await bundles(transport, configuration) == {pair.authority}


async def test_a_secret_that_is_ours_and_holds_nonsense_is_named(
    store: SecretCertificates, transport: Transport, namespace: str
) -> None:
    await keep_certificates(store, RULES, NOW)
    path = f"/api/v1/namespaces/{namespace}/secrets/{SECRET}"
    found = await transport.request("GET", path)
    found["data"]["ca.crt"] = base64.b64encode(b"nonsense").decode()
    await transport.request("PUT", path, body=found)
    with pytest.raises(ClusterUnavailableError, match="Delete it"):
        await keep_certificates(store, RULES, NOW)


async def test_a_configuration_that_is_not_there_yet_is_trusting_later(transport: Transport, namespace: str) -> None:
    absent = Configuration(ConfigurationKind.VALIDATING, "nobody-made-this")
    store = SecretCertificates(transport, namespace, SECRET, [absent])
    with capture_logs():
        await keep_certificates(store, RULES, NOW)
    assert set(await data(transport, namespace)) == {"tls.crt", "tls.key", "ca.crt"}
