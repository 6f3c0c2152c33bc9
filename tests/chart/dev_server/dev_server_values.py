"""The values that the chart gpu-dev-server is tried with, and ways to look at what comes of them."""

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from tests.chart.dev_server.dev_server_schema import CHART
from tests.chart.hardening import HOSTILE
from tests.chart.rendering import JsonObject, one, render
from tests.read_yaml import read_yaml

CONTROLPLANE, WORKLOADS = "gpu-controlplane", "gpu-dev"
OPERATORS = ("ServiceMonitor", "PodMonitor", "PrometheusRule", "Cluster", "BackendConfig", "HTTPRoute")
EXTERNAL: dict[str, Any] = {"postgres": {"enabled": False}, "externalDatabase": {"url": "postgresql://u:p@db:5433/x"}}
ALL_ON: dict[str, Any] = {
    "global": {"imageRegistry": "registry.test:5000/team", "imagePullSecrets": [{"name": "registry"}],
               "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["db"]}]},
    "settings": {"GPU_DEV_GPU__ATTACH": "uuid", "GPU_DEV_LOG_JSON": False, "GPU_DEV_DATABASE_POOL": 7},
    "settingsSecret": "mail",
    "adminToken": {"existingSecret": "theirs"},
    "apiService": {
        "settings": {"GPU_DEV_MAX_DURATION_S": 3600, "GPU_DEV_MAX_BODY_BYTES": 1048576},
        "policy": "[default]\nname = \"{{ .Release.Name }}\"\n",
        "signIn": {"file": "issuers = []\n", "kubernetes": True},
        "ingress": {"enabled": True, "host": "gpus.test", "tlsSecret": "tls", "className": "nginx",
                    "annotations": {"a": HOSTILE}},
        "httpRoute": {"enabled": True, "parentRefs": [{"name": "public"}], "hostnames": ["gpus.test"],
                      "annotations": {"a": HOSTILE}},
        "apps": {"host": "*.apps.test", "tlsSecret": "apps-tls"},
        "podAnnotations": {"a": HOSTILE},
        "tolerations": [{"operator": "Exists"}],
        "serviceAccount": {"annotations": {"a": HOSTILE}},
    },
    "reservationProcessor": {"settings": {"GPU_DEV_SMTP__HOST": HOSTILE}},
    "sshGateway": {"enabled": True, "service": {"type": "LoadBalancer", "annotations": {"a": HOSTILE}},
                   "settings": {"GPU_DEV_SSH__IDLE_S": 600}},
    "sessions": {"toolsImage": "registry.test/session-tools:1"},
    "reservationExpiry": {"enforcement": {"enabled": True}},
    "nodeAgent": {"enabled": True},
    "postgres": {
        "auth": {"password": HOSTILE.replace("\n", " ")},
        "configuration": {"application_name": "it's", "work_mem": "8MB"},
        "backup": {"upload": {"image": "aws:1", "command": ["sh", "-c", HOSTILE], "env": {"A": HOSTILE}}},
    },
    "monitoring": {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True},
                   "prometheusRule": {"enabled": True}, "dashboard": {"enabled": True}},
    "networkPolicy": {"apiFrom": [{"namespaceSelector": {}}], "databaseFrom": [{"namespaceSelector": {}}],
                      "extraEgress": [{"ports": [{"port": 988}]}]},
    "registryCaches": {"service": {"type": "NodePort"}, "ghcr": {"nodePort": 30500, "credentialsSecret": "ghcr"}},
}  # fmt: skip
ALL_OFF: dict[str, Any] = {
    "namespaces": {"create": False},
    "apiService": {"enabled": False},
    "reservationProcessor": {"enabled": False},
    "availabilityUpdater": {"enabled": False},
    "reservationExpiry": {"enabled": False},
    "registryCaches": {"ghcr": {"enabled": False}, "dockerhub": {"enabled": False}},
    "workloads": {"quota": {"enabled": False}, "limitRange": {"enabled": False}},
    "priorityClasses": {"create": False},
    "networkPolicy": {"enabled": False},
    "postgres": {"replica": {"enabled": False}, "backup": {"enabled": False}},
}


def file(name: str) -> dict[str, Any]:
    """A values file of the chart."""
    found = read_yaml((CHART / f"values-{name}.yaml").read_text())
    assert isinstance(found, dict)
    return found


def over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Values as Helm puts several files on each other."""
    merged = deepcopy(below)
    for name, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(name), dict)
        merged[name] = over(merged[name], value) if both else value
    return merged


SEEDS_AWS = {
    "cloudProvider": {
        "name": "aws", "region": "us-east-2",
        "aws": {"eksClusterName": "my-gpu-cluster", "primaryAvailabilityZone": "us-east-2a",
                "efsSecurityGroupId": "sg-1", "efsSubnetIds": "subnet-1,subnet-2", "efsFileSystemId": "fs-1"},
    },
    "postgres": {"auth": {"password": "your-secure-password"}},
    **{
        component: {
            "image": {"repository": f"your-registry/{name}"},
            "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": f"arn:aws:iam::ACCOUNT:role/{name}-role"}},
        }
        for component, name in (
            ("apiService", "api-service"),
            ("reservationProcessor", "reservation-processor"),
            ("availabilityUpdater", "availability-updater"),
            ("reservationExpiry", "reservation-expiry"),
        )
    },
}  # fmt: skip
SEEDS_GCP = {
    "cloudProvider": {
        "name": "gcp", "region": "us-central1",
        "gcp": {"gkeClusterName": "my-gpu-cluster", "zone": "us-central1-a", "projectId": "my-project"},
    },
    "postgres": {"auth": {"password": "your-secure-password"}},
    "apiService": {
        "image": {"repository": "gcr.io/my-project/api-service"},
        "serviceAccount": {
            "annotations": {"iam.gke.io/gcp-service-account": "api-service@my-project.iam.gserviceaccount.com"}
        },
    },
}  # fmt: skip
VALUES: dict[str, dict[str, Any]] = {
    "default": {},
    "local": file("local"),
    "aws": over(file("aws"), SEEDS_AWS),
    "gcp": over(file("gcp"), SEEDS_GCP),
    "external": EXTERNAL,
    "external, their secret": {"postgres": {"enabled": False}, "externalDatabase": {"existingSecret": "db"}},
    "external, with a replica": {
        "postgres": {"enabled": False},
        "externalDatabase": {
            "url": "postgresql://u:p@db:5433/x",
            "port": 5433,
            "replicaUrl": "postgresql://u:p@r:6432/x",
            "replicaPort": 6432,
        },
    },
    "external, their secret, with a replica": {
        "postgres": {"enabled": False},
        "externalDatabase": {"existingSecret": "db", "existingSecretReplicaKey": "replica"},
    },
    "CloudNativePG": {"postgres": {"enabled": False}, "cloudNativePG": {"enabled": True, "backup": {"a": 1}}},
    "failed over": {"postgres": {"primaryIs": "postgres-replica"}},
    "all on": ALL_ON,
    "all off": ALL_OFF,
}


def rendered(values: dict[str, Any], **more: Any) -> list[JsonObject]:
    return render("gpu-dev-server", values, name="gpu-dev", namespace="default", **more)


def templates(documents: list[JsonObject]) -> Iterator[tuple[str, JsonObject]]:
    """Every pod template with its kind."""
    for document in documents:
        match document["kind"]:
            case "Deployment" | "StatefulSet" | "DaemonSet" | "Job":
                yield document["kind"], document["spec"]["template"]
            case "CronJob":
                yield document["kind"], document["spec"]["jobTemplate"]["spec"]["template"]
            case "Pod":
                yield document["kind"], document


def containers(template: JsonObject) -> list[JsonObject]:
    return [*template["spec"].get("initContainers", ()), *template["spec"]["containers"]]


def variables(workload: JsonObject) -> dict[str, str | None]:
    """The environment of a workload's first container."""
    ((_, template),) = templates([workload])
    return {variable["name"]: variable.get("value") for variable in template["spec"]["containers"][0]["env"]}


def rules_of(documents: list[JsonObject], account: str) -> list[JsonObject]:
    """What an account may, wherever its roles say it, in one order; with the kind of place."""
    found = []
    for binding in documents:
        if binding["kind"].endswith("RoleBinding") and any(
            subject["name"] == account for subject in binding.get("subjects", ())
        ):
            role = one(
                [
                    document
                    for document in documents
                    if document["metadata"].get("namespace") == binding["metadata"].get("namespace")
                ],
                binding["roleRef"]["kind"],
                binding["roleRef"]["name"],
            )
            place = {None: "cluster", WORKLOADS: "jobs"}.get(role["metadata"].get("namespace"), "system")
            found += [{"place": place, **rule} for rule in role["rules"]]
    return sorted(found, key=json.dumps)
