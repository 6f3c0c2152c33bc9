"""The chart gpu-dev-server: who signs in how, what the API may reach for it, and by which name people know it."""

import json
import re
from typing import Any

import helm_python
import pytest

from reservation_core.runtime.settings.auth import AuthSettings
from reservation_core.runtime.settings.web import WebSettings
from tests.chart.dev_server.dev_server_values import (
    ALL_ON,
    VALUES,
    containers,
    over,
    rendered,
    rules_of,
    templates,
    variables,
)
from tests.chart.rendering import one

SIGN_IN = """
[[issuer]]
url = "https://accounts.google.com"
audiences = ["https://gpus.test"]

[[oidc]]
issuer = "https://accounts.google.com"
email = "*@lab.example"
user = "{email_name}"
"""
BY_ACCOUNTS = '[[kubernetes]]\nnamespace = "ci"\nservice_account = "runner"\nuser = "ci"\n'


def signing_in(file: str, **more: Any) -> dict[str, Any]:
    return {"apiService": {"signIn": {"file": file, "kubernetes": BY_ACCOUNTS in file}, **more}}


def test_the_api_alone_reads_who_may_sign_in_and_begins_anew_with_another_file() -> None:
    first, second = (rendered(signing_in(file)) for file in (SIGN_IN, SIGN_IN + "create = true\n"))
    data = one(first, "ConfigMap", "gpu-dev-api-configuration")["data"]
    assert data == {"sign-in.toml": SIGN_IN}
    for kind, name, changes in (
        ("Deployment", "api-service", True),
        ("Deployment", "reservation-processor", False),
        ("CronJob", "reservation-expiry", False),
    ):
        before, after = (one(documents, kind, name) for documents in (first, second))
        assert (before != after) is changes, name
        ((_, template),) = templates([before])
        names = {volume["name"] for volume in template["spec"]["volumes"]}
        assert ("api-configuration" in names) is changes
    api = one(first, "Deployment", "api-service")
    path = variables(api)["GPU_DEV_AUTH__FILE"]
    (mount,) = [
        mount
        for mount in containers(api["spec"]["template"])[-1]["volumeMounts"]
        if mount["name"] == "api-configuration"
    ]
    assert path == f"{mount['mountPath']}/sign-in.toml"
    plain = rendered({})
    assert "GPU_DEV_AUTH__FILE" not in variables(one(plain, "Deployment", "api-service"))
    assert not [
        manifest for manifest in plain if manifest["metadata"]["name"] in ("gpu-dev-api-configuration", "sign-in")
    ]


def test_what_the_api_reads_is_what_was_given() -> None:
    data = one(rendered(ALL_ON), "ConfigMap", "gpu-dev-api-configuration")["data"]
    given = ALL_ON["apiService"]
    assert data == {"policy.toml": given["policy"], "sign-in.toml": given["signIn"]["file"]}


@pytest.mark.parametrize(
    ("file", "outside"),
    [
        (SIGN_IN, True),
        ('[[aws]]\naccount = "1"\n', True),
        ('oidc = [{issuer = "x", user = "y"}]\n', True),
        (BY_ACCOUNTS, False),
        ("# [[aws]] not yet\n" + BY_ACCOUNTS, False),
    ],
)
def test_the_api_reaches_issuers_only_where_their_word_is_taken(file: str, outside: bool) -> None:
    ids = {"GPU_DEV_AUTH__SERVER_IDS": "https://gpus.test"}
    at = [{"ipBlock": {"cidr": "10.0.0.1/32"}}]
    documents = rendered({**signing_in(file, settings=ids), "networkPolicy": {"kubernetesAt": at}})
    everywhere = [
        document["metadata"]["name"]
        for document in documents
        if document["kind"] == "NetworkPolicy"
        and document["spec"]["podSelector"].get("matchLabels") == {"app": "api-service"}
        and "Egress" in document["spec"]["policyTypes"]
    ]
    assert everywhere == (["sign-in"] if outside else [])
    (rule,) = one(documents, "NetworkPolicy", "to-kubernetes")["spec"]["egress"]
    assert rule["to"] == at
    asks = [rule for rule in rules_of(documents, "api-service") if rule["place"] == "cluster"]
    assert [rule["resources"] for rule in asks] == ([["tokenreviews"]] if BY_ACCOUNTS in file else [])


def test_people_know_the_server_by_the_name_of_its_ingress_unless_told_otherwise() -> None:
    ingress = {"enabled": True, "host": "gpus.test"}
    told = variables(one(rendered(signing_in(BY_ACCOUNTS, ingress=ingress)), "Deployment", "api-service"))
    assert AuthSettings.model_validate({"server_ids": told["GPU_DEV_AUTH__SERVER_IDS"]}).server_ids == (
        "https://gpus.test",
    )
    assert WebSettings(public_url=told["GPU_DEV_WEB__PUBLIC_URL"]).public_url == "https://gpus.test"
    ids = {"GPU_DEV_AUTH__SERVER_IDS": "https://a.test,https://b.test", "GPU_DEV_WEB__PUBLIC_URL": "https://a.test"}
    values = signing_in(BY_ACCOUNTS, ingress=ingress, settings=ids)
    assert variables(one(rendered(values), "Deployment", "api-service")).items() >= ids.items()


def test_googles_load_balancer_takes_its_ingress_and_has_time_for_streams() -> None:
    """GKE's controller goes by the annotation, and leaves what names a class in its spec to others."""
    ingress = {"enabled": True, "host": "gpus.test"}
    documents = rendered(over(VALUES["gcp"], {"apiService": {"ingress": ingress}}))
    made = one(documents, "Ingress")
    assert made["metadata"]["annotations"]["kubernetes.io/ingress.class"] == "gce"
    assert "ingressClassName" not in made["spec"]
    service = one(documents, "Service", "api-service")["metadata"]["annotations"]
    backend = one(documents, "BackendConfig", json.loads(service["cloud.google.com/backend-config"])["default"])
    (container,) = one(documents, "Deployment", "api-service")["spec"]["template"]["spec"]["containers"]
    assert backend["spec"]["healthCheck"]["port"] == container["ports"][0]["containerPort"]
    assert backend["spec"]["healthCheck"]["requestPath"] == container["readinessProbe"]["httpGet"]["path"]
    assert not [manifest for manifest in rendered(VALUES["gcp"]) if manifest["kind"] == "BackendConfig"]


@pytest.mark.parametrize(
    ("sign_in", "said"),
    [
        ({"file": BY_ACCOUNTS}, "apiService.signIn.kubernetes=true"),
        ({"file": BY_ACCOUNTS, "kubernetes": True}, "GPU_DEV_AUTH__SERVER_IDS"),
        ({"file": '[[aws]]\naccount = "1"\n'}, "GPU_DEV_AUTH__SERVER_IDS"),
    ],
)
def test_what_would_not_work_is_said_before_anything_is_installed(sign_in: dict[str, Any], said: str) -> None:
    with pytest.raises(helm_python.HelmError, match=re.escape(said)):
        rendered({"apiService": {"signIn": sign_in}})
