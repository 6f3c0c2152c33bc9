"""The webhook over HTTPS: its answers, what it refuses to read, its certificate's renewal, and its end."""

import base64
import json
import os
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonpatch
import pytest

from reservation_core.adapters.certificates.pairs import Pair
from tests.people.client_certificates import signed_client
from tests.programs.prepared_processes import ran
from tests.programs.webhook_process import (
    WebhookProcess,
    admission_review,
    client_of,
    new_pair,
    trusting,
    webhook_process,
    write_pair,
)
from tests.waiting import PATIENCE_S, eventually_sync

MAP = "0=node1:0,1\n1=node2:2\n"


def pod(name: str = "webhook-test-0", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {"gpu-scheduling-map": MAP}},
        "spec": {"schedulerName": "gpu-scheduler", "containers": [{"name": "test", "image": "busybox"}], **spec},
    }


@pytest.fixture(scope="module")
def pair() -> Pair:
    return new_pair()


@pytest.fixture(scope="module")
def webhook(tmp_path_factory: pytest.TempPathFactory, pair: Pair) -> Iterator[WebhookProcess]:
    folder = tmp_path_factory.mktemp("webhook")
    write_pair(pair, folder)
    with webhook_process(folder) as webhook:
        yield webhook


@pytest.fixture
def client(webhook: WebhookProcess, pair: Pair) -> Iterator[httpx.Client]:
    with client_of(webhook, pair) as client:
        yield client


def asked(client: httpx.Client, review: dict[str, Any]) -> dict[str, Any]:
    """The response part of an answer."""
    answer = client.post("/mutate", json=review)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert (body["apiVersion"], body["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    return dict(body["response"])


# --- Answers.


def test_a_pod_with_a_map_is_patched_and_the_log_says_so(client: httpx.Client, webhook: WebhookProcess) -> None:
    response = asked(client, admission_review(pod(), uid="705ab4f5-6393-11e8-b7cc-42010a800002"))
    assert response["uid"] == "705ab4f5-6393-11e8-b7cc-42010a800002"
    assert response["allowed"] is True
    assert response["patchType"] == "JSONPatch"
    after = jsonpatch.apply_patch(pod(), json.loads(base64.b64decode(response["patch"])))
    assert after["spec"]["containers"][0]["env"] == [
        {"name": "CUDA_VISIBLE_DEVICES", "value": "0,1"},
        {"name": "CUDA_DEVICE_ORDER", "value": "PCI_BUS_ID"},
    ]
    assert after["metadata"]["annotations"]["gpu-dev/map-node"] == "node1"
    assert "Injecting CUDA_VISIBLE_DEVICES=0,1 for pod webhook-test-0 (index 0)" in webhook.text()
    again = asked(client, admission_review(after))
    assert again == {"uid": "an-uid", "allowed": True}


def test_a_denial_says_why(client: httpx.Client) -> None:
    response = asked(client, admission_review(pod("webhook-test-7")))
    assert response["allowed"] is False
    assert response["status"] == {
        "code": 403,
        "reason": "Forbidden",
        "message": "gpu-scheduling-map: the map has no entry for index 7; add a line 7=NODE:DEVICES",
    }
    assert "patch" not in response


def test_warnings_go_with_the_answer(client: httpx.Client) -> None:
    given = pod()
    del given["metadata"]["annotations"]
    response = asked(client, admission_review(given))
    assert response["allowed"] is True
    assert "will stay Pending" in response["warnings"][0]
    assert "patch" not in response


def test_changes_and_deletions_are_answered(client: httpx.Client) -> None:
    old, new = pod(), pod()
    new["metadata"]["annotations"]["gpu-scheduling-map"] = "0=node9:9"
    response = asked(client, admission_review(new, "UPDATE", oldObject=old))
    assert "can't be changed" in response["status"]["message"]
    assert asked(client, admission_review(None, "DELETE", oldObject=old)) == {"uid": "an-uid", "allowed": True}


def test_what_is_no_pod_is_let_be_with_a_word(client: httpx.Client) -> None:
    resource = {"group": "apps", "version": "v1", "resource": "deployments"}
    response = asked(client, admission_review({"kind": "Deployment"}, resource=resource))
    assert response["allowed"] is True
    assert "only pods" in response["warnings"][0]


def test_a_name_with_line_breaks_writes_no_line_of_its_own(client: httpx.Client, webhook: WebhookProcess) -> None:
    lines = len(webhook.text().splitlines())
    asked(client, admission_review(pod("a\nInjecting-1")))
    assert len(webhook.text().splitlines()) == lines + 1


# --- Unread bodies.


def changed(**members: Any) -> dict[str, Any]:
    return {**admission_review(pod()), **members}


def asking(**members: Any) -> dict[str, Any]:
    return admission_review(pod(), **members)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'{"a": NaN}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "kind AdmissionReview"),
        (b"null", "kind AdmissionReview"),
        (changed(kind="Pod"), "kind AdmissionReview"),
        (changed(apiVersion="admission.k8s.io/v1beta1"), "v1beta1. Set admissionReviewVersions: [v1]"),
        (changed(apiVersion=None), "not something else"),
        (changed(request=None), "holds no request"),
        (changed(request=[]), "holds no request"),
        (asking(uid=""), "request.uid"),
        (asking(uid=None), "request.uid"),
        (asking(uid=7), "request.uid"),
        (asking(uid="u" * 300), "request.uid"),
        (asking(operation="PATCH"), "request.operation"),
        (asking(resource=None), "request.resource"),
        (asking(resource={"group": "", "version": "v2", "resource": "pods"}), "version v1"),
        (admission_review([]), "request.object must be an object"),
        (asking(oldObject="pod"), "request.oldObject must be an object"),
        (asking(subResource=3), "request.subResource must be a text"),
    ],
)  # fmt: skip
def test_half_a_question_gets_no_answer(client: httpx.Client, body: Any, told: str) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = client.post("/mutate", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert told in answer.text


def test_a_pod_of_a_wrong_shape_is_denied_and_not_let_by(client: httpx.Client) -> None:
    for spec in ({"containers": "all"}, {"containers": [7]}, {"containers": [{"env": 7}]}):
        assert asked(client, admission_review(pod(**spec)))["allowed"] is False


def test_a_body_that_is_too_large_is_not_read(client: httpx.Client) -> None:
    headers = {"Content-Type": "application/json"}
    large = b" " * (3 * 2**20 + 1)
    assert client.post("/mutate", content=large, headers=headers).status_code == 413
    pieces = (b" " * 2**19 for _ in range(7))  # its length isn't announced
    assert client.post("/mutate", content=pieces, headers=headers).status_code == 413
    fits = json.dumps(admission_review(pod())).encode()
    assert client.post("/mutate", content=fits + b" " * (3 * 2**20 - len(fits)), headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [{}, {"Content-Type": "text/plain"}, {"Content-Type": "application/json", "Content-Encoding": "gzip"}],
)
def test_only_plain_json_is_read(client: httpx.Client, headers: dict[str, str]) -> None:
    content = json.dumps(admission_review(pod())).encode()
    assert client.post("/mutate", content=content, headers=headers).status_code == 415


def test_only_posts_to_mutate_are_answered(client: httpx.Client) -> None:
    assert client.get("/mutate").status_code == 405
    assert client.post("/validate", json={}).status_code == 404
    assert client.get("/openapi.json").status_code == 404


# --- How it is.


def test_health_readiness_and_metrics(client: httpx.Client) -> None:
    assert client.get("/health").json() == {"service": "admission-webhook", "status": "healthy"}
    assert client.get("/ready").json() == {"status": "ready"}
    before = counted(client, "patched")
    asked(client, admission_review(pod()))
    assert counted(client, "patched") == before + 1
    text = client.get("/metrics").text
    ends = next(line for line in text.splitlines() if line.startswith("gpu_dev_webhook_certificate_ends_seconds"))
    assert float(ends.split()[1]) > 1.7e9


def counted(client: httpx.Client, outcome: str) -> float:
    wanted = f'gpu_dev_webhook_reviews_total{{outcome="{outcome}"}}'
    return next(float(line.split()[1]) for line in client.get("/metrics").text.splitlines() if line.startswith(wanted))


def test_nothing_older_than_tls_1_2(webhook: WebhookProcess, pair: Pair) -> None:
    for version, works in ((ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_3, True)):
        context = trusting(pair)
        context.minimum_version = context.maximum_version = version
        assert handshake(webhook, context) is works
    context = trusting(pair)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = ssl.TLSVersion.TLSv1_1
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    assert handshake(webhook, context) is False


def handshake(webhook: WebhookProcess, context: ssl.SSLContext) -> bool:
    try:
        with httpx.Client(base_url=webhook.url, verify=context, trust_env=False, timeout=PATIENCE_S) as client:
            return client.get("/ready").status_code == 200
    except httpx.TransportError:
        return False


# --- Certificates that change.


def test_a_new_certificate_is_served_while_open_connections_live_on(tmp_path: Path) -> None:
    first, second = new_pair(), new_pair()
    write_pair(first, tmp_path)
    with webhook_process(tmp_path) as webhook, client_of(webhook, first) as open_client:
        assert asked(open_client, admission_review(pod()))["allowed"] is True
        (tmp_path / "tls.crt").write_bytes(b"half a certif")
        eventually_sync(lambda: "certificate_unusable" in webhook.events())
        assert handshake(webhook, trusting(first))
        (tmp_path / "tls.crt").write_bytes(second.certificate)  # its key is still the first one's
        eventually_sync(lambda: webhook.events().count("certificate_unusable") > 1)
        assert handshake(webhook, trusting(first))
        write_pair(second, tmp_path)
        eventually_sync(lambda: webhook.events().count("certificate_taken") == 2)
        assert handshake(webhook, trusting(second))
        assert not handshake(webhook, trusting(first))
        assert asked(open_client, admission_review(pod()))["allowed"] is True  # on the connection from before


def test_without_a_certificate_it_waits_for_one(tmp_path: Path) -> None:
    pair = new_pair()
    with webhook_process(tmp_path) as webhook:
        assert not handshake(webhook, trusting(pair))
        assert "certificate_unusable" in webhook.events()
        write_pair(pair, tmp_path)
        eventually_sync(lambda: handshake(webhook, trusting(pair)))


# --- Its end.


def test_it_serves_on_for_a_while_after_sigterm(tmp_path: Path) -> None:
    pair = new_pair()
    write_pair(pair, tmp_path)
    with webhook_process(tmp_path, GPU_DEV_WEBHOOK__DRAIN_S="6") as webhook, client_of(webhook, pair) as client:
        assert "connection" not in client.get("/ready").headers
        webhook.signal(signal.SIGTERM)
        eventually_sync(lambda: client.get("/ready").status_code == 503)
        assert client.get("/ready").json() == {"status": "draining"}
        answer = client.post("/mutate", json=admission_review(pod()))  # a new connection: the one before was closed
        assert answer.json()["response"]["allowed"] is True
        assert answer.headers["connection"] == "close"
        assert webhook.process.wait(PATIENCE_S) == 0
        assert "webhook_draining" in webhook.events()


def ended(folder: Path, arguments: list[str], **settings: str) -> tuple[int, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GPU_DEV_")}
    return ran(["admission_webhook", *arguments], {**kept, **settings}, folder / "ended.log")


def test_arguments_and_settings_that_can_not_be_used_are_told(tmp_path: Path) -> None:
    files = ["--tls-cert", str(tmp_path / "a"), "--tls-key", str(tmp_path / "b")]
    code, said = ended(tmp_path, ["serve", "--listen", "nowhere", *files])
    assert (code, "--listen must be host:port" in said) == (2, True), said
    code, said = ended(tmp_path, ["serve", "--listen", "127.0.0.1:0"])
    assert (code, "--tls-cert" in said) == (2, True), said
    code, said = ended(tmp_path, ["serve", *files], GPU_DEV_WEBHOOK__DRAIN_S="-1")
    assert (code, "GPU_DEV_WEBHOOK__DRAIN_S" in said) == (2, True), said


# --- Callers.


def test_with_an_authority_for_clients_nobody_else_learns_anything_about_a_pod(tmp_path: Path, pair: Pair) -> None:
    write_pair(pair, tmp_path)
    authority, shown = signed_client(tmp_path)
    _, of_others = signed_client(tmp_path, "somebody")
    review = admission_review(pod())
    with webhook_process(tmp_path, client_ca=authority) as webhook:

        def context(certificate: Path | None) -> ssl.SSLContext:
            made = trusting(pair)
            if certificate is not None:
                made.load_cert_chain(certificate)
            return made

        with httpx.Client(base_url=webhook.url, verify=context(shown), trust_env=False, timeout=PATIENCE_S) as known:
            assert asked(known, review)["allowed"] is True
        with client_of(webhook, pair) as nobody:
            refusal = nobody.post("/mutate", json=review)
            assert (refusal.status_code, refusal.headers["content-type"]) == (403, "text/plain; charset=utf-8")
            assert "showed no client certificate" in refusal.text
            # Kubelets ask after health and have no certificate for it.
            assert [nobody.get(path).status_code for path in ("/health", "/ready", "/metrics")] == [200] * 3
            assert 'outcome="stranger"} 1.0' in nobody.get("/metrics").text
        with (
            httpx.Client(base_url=webhook.url, verify=context(of_others), trust_env=False, timeout=PATIENCE_S) as other,
            pytest.raises(httpx.TransportError),
        ):
            other.post("/mutate", json=review)
        # An authority that changes is taken anew.
        authority.write_bytes((tmp_path / "somebody-authority.pem").read_bytes())
        eventually_sync(lambda: webhook.events().count("certificate_taken") == 2)
        with httpx.Client(
            base_url=webhook.url, verify=context(of_others), trust_env=False, timeout=PATIENCE_S
        ) as known:
            assert asked(known, review)["allowed"] is True
