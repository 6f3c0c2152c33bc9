"""The keys that seal what people say in confidence: made once, kept, and where every program looks for them."""

import base64
from typing import Any

import pytest

from tests.chart.in_cluster import rendered_in
from tests.chart.rendering import JsonObject, one, render

OURS = "v1/Secret/gpu-controlplane/gpu-dev-seal-keys"
PROGRAMS = (
    ("Deployment", "api-service"),
    ("Deployment", "reservation-processor"),
    ("CronJob", "reservation-expiry"),
    ("CronJob", "availability-updater"),
)


def sources(documents: list[JsonObject], kind: str, name: str) -> tuple[list[str], list[str | None]]:
    """The Secrets that a program's settings come from, and where each of its containers is told the keys are."""
    spec = one(documents, kind, name)["spec"]
    pod = (spec["jobTemplate"]["spec"] if kind == "CronJob" else spec)["template"]["spec"]
    [volume] = [volume for volume in pod["volumes"] if volume["name"] == "settings"]
    told = [
        {variable["name"]: variable.get("value") for variable in container["env"]}.get("GPU_DEV_SEAL_KEY_FILE")
        for container in pod["containers"]
    ]
    return [source["secret"]["name"] for source in volume["projected"]["sources"]], told


def test_where_a_cluster_answers_a_key_is_made_once_and_kept() -> None:
    documents = rendered_in({}, {})
    made = one(documents, "Secret", "gpu-dev-seal-keys")
    assert made["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    line = base64.b64decode(made["data"]["keys"])
    assert len(base64.b64decode(line, validate=True)) == 32
    again = rendered_in({OURS: {"data": made["data"]}}, {}, upgrade=True)
    assert one(again, "Secret", "gpu-dev-seal-keys")["data"] == made["data"]
    for program in PROGRAMS:
        names, told = sources(documents, *program)
        assert "gpu-dev-seal-keys" in names
        assert told == ["/secrets/settings/seal-keys"] * len(told)


@pytest.mark.parametrize(
    ("values", "name"), [({}, None), ({"sealing": {"existingSecret": "theirs"}}, "theirs")], ids=["none", "theirs"]
)
def test_where_nobody_is_asked_no_key_is_made_anew_each_time(values: dict[str, Any], name: str | None) -> None:
    documents = render("gpu-dev-server", values)
    assert not [
        document for document in documents if document["kind"] == "Secret" and "seal" in document["metadata"]["name"]
    ]
    for program in PROGRAMS:
        names, told = sources(documents, *program)
        assert ("theirs" in names) is (name is not None)
        assert told == [None if name is None else "/secrets/settings/seal-keys"] * len(told)
