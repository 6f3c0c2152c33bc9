"""What every chart's objects are held to: valid for Kubernetes, and able to do no more than they have to."""

from collections.abc import Sequence

from pydantic import BaseModel

from tests.chart.rendering import JsonObject
from tests.clusters.kubernetes_schemas import validate

VERSIONS = ("1.25", "1.36")  # the oldest and the newest whose schemas are at hand
HOSTILE = "x\n  injected: true # '\"{{ .Release.Name }}"
_OF_OTHERS = ("Certificate", "Issuer", "PodMonitor", "PrometheusRule")


def check_objects(documents: list[JsonObject], version: str) -> None:
    """Kubernetes takes each of them, and no two are one."""
    assert documents
    for document in documents:
        if document["kind"] not in _OF_OTHERS:
            validate(document, version)
    names = [
        (document["kind"], document["metadata"].get("namespace"), document["metadata"]["name"])
        for document in documents
    ]
    assert len(names) == len(set(names))


def pod_specs(documents: list[JsonObject]) -> list[JsonObject]:
    """The pod specs of all workloads."""
    found = []
    for document in documents:
        match document["kind"]:
            case "Deployment" | "StatefulSet":
                found.append(document["spec"]["template"]["spec"])
            case "CronJob":
                found.append(document["spec"]["jobTemplate"]["spec"]["template"]["spec"])
    return found


def check_pods(documents: list[JsonObject]) -> None:
    """Pods run as nobody, on a file system that they can't write, and within limits."""
    for spec in pod_specs(documents):
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not spec.get("hostNetwork")
        for container in spec["containers"]:
            allowed = container["securityContext"]
            assert allowed["allowPrivilegeEscalation"] is False
            assert allowed["readOnlyRootFilesystem"] is True
            assert allowed["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]
            check_patience(container)
        assert not any("hostPath" in volume for volume in spec.get("volumes", ()))


def check_patience(container: JsonObject) -> None:
    """One that may be ended for not answering has minutes to begin: a busy node has little time for it."""
    if "livenessProbe" in container:
        starting = container["startupProbe"]
        assert starting["periodSeconds"] * starting["failureThreshold"] >= 240


def check_roles(documents: list[JsonObject], own_secret: str) -> None:
    """No role has wildcards; Secrets are read and changed by name, and made in one namespace only."""
    for document in documents:
        for rule in document.get("rules", ()) if document["kind"] in ("Role", "ClusterRole") else ():
            assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]
            if "secrets" in rule["resources"]:
                assert document["kind"] == "Role"
                assert rule["verbs"] == ["create"] or rule["resourceNames"] == [own_secret]


def check_variables(container: JsonObject, settings: type[BaseModel]) -> None:
    """Every variable of a container is a setting of its program."""
    for variable in container["env"]:
        field, _, nested = variable["name"].removeprefix("GPU_DEV_").lower().partition("__")
        if field == "secrets_dir":
            continue
        known = settings.model_fields[field].annotation
        assert not nested or nested in known.model_fields  # type: ignore[union-attr]


def mounted(spec: JsonObject, container: str) -> Sequence[str]:
    """The names of the volumes that a container has."""
    (found,) = [other_container for other_container in spec["containers"] if other_container["name"] == container]
    return sorted(mount["name"] for mount in found.get("volumeMounts", ()))
